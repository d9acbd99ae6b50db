"""`coopgroup sweep`: errors before Spark starts, and the output."""

import json
from pathlib import Path

import pytest

from coopgroup.cli import sweep as sweep_command
from coopgroup.pipeline.sweep.grid import Sweep, parse_sweep
from coopgroup.report.charts import Setting, Spread
from tests.support.small_scenario import SMALL


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "small.toml").write_text(SMALL)
    return tmp_path


def sweep(folder: Path) -> Sweep:
    return parse_sweep('scenarios = "small.toml"', file=str(folder / "grid.toml"))


def setting(timeout_ms: int, moved: float | None) -> Setting:
    spreads = {} if moved is None else {"moved": Spread(median=moved, low=moved, high=moved)}
    return Setting(
        parameters={"policy": "deferred", "scheduled_rebalance_timeout_ms": timeout_ms},
        seeds=3,
        failed=3 if moved is None else 0,
        violations=0,
        spreads=spreads,
    )


def test_table_has_what_varies_and_medians(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = [setting(0, 4), setting(30_000, None)]
    sweep_command._show(sweep(folder), settings, as_json=False)  # noqa: SLF001 - without Spark
    lines = capsys.readouterr().out.splitlines()
    assert "scheduled rebalance timeout ms" in lines[2]
    assert "policy" not in lines[2]
    rows = [[cell.strip() for cell in line.split("│")[1:3]] for line in lines if "│" in line]
    assert [row[0] for row in rows] == ["0 s", "30 s"]
    assert "never" in next(line for line in lines if "30 s" in line)


def test_json_has_a_line_for_each_setting(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep_command._show(sweep(folder), [setting(0, 4)], as_json=True)  # noqa: SLF001 - likewise
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line) == {
        "sweep": "grid",
        "parameters": {"policy": "deferred", "scheduled_rebalance_timeout_ms": 0},
        "seeds": 3,
        "failed": 0,
        "violations": 0,
        "spreads": {"moved": {"median": 4, "low": 4, "high": 4}},
    }
