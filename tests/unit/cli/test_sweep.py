"""`coopgroup sweep`: errors before Spark starts, and the output."""

import json
from pathlib import Path

import pytest

from coopgroup.cli import sweep as sweep_command
from coopgroup.cli.app import run
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


def test_file_when_wrong_is_one_line_with_file_line_and_key(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = folder / "grid.toml"
    file.write_text('scenarios = "small.toml"\n[grid]\npolicy = "simple"')
    assert run(["sweep", str(file)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"coopgroup: {file}: grid.policy: got 'simple', but there is no")
    assert len(said.err.splitlines()) == 1


def test_page_that_cannot_be_written_is_refused_before_the_runs(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error must come first: otherwise hours of simulation are lost."""
    file = folder / "grid.toml"
    file.write_text('scenarios = "small.toml"')
    assert run(["sweep", str(file), "--html", str(folder / "no" / "page.html")]) == 2
    assert "--html" in capsys.readouterr().err


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
