"""Sweep files: contents and error messages."""

from pathlib import Path

import pytest

from coopgroup.errors import ConfigurationError
from coopgroup.pipeline.sweep_file import parse_sweep, read_sweep
from coopgroup.pipeline.sweep_grid import cells_of
from coopgroup.simulator.scenario import Choice
from tests.architecture.tree import ROOT
from tests.support.small_scenario import SMALL

SWEEPS = sorted((ROOT / "simulations" / "sweeps").glob("*.toml"))

FULL = """\
description = "Everything at once."
scenarios = ["small.toml"]
seeds = [3, 5]

[grid]
policies = ["simple", { name = "incremental", options = { max_moves_per_round = 2 } }]
assignors = "range"
sizes = [1, 4]
scheduled_rebalance_timeout_ms = [0, 5_000]
session_timeout_ms = 20_000
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "small.toml").write_text(SMALL)
    return tmp_path


def test_file_is_read_whole(folder: Path) -> None:
    path = folder / "full.toml"
    path.write_text(FULL)
    sweep = read_sweep(path)
    assert (sweep.name, sweep.description, sweep.seeds) == ("full", "Everything at once.", (3, 5))
    assert [one.scenario.name for one in sweep.scenarios] == ["small"]
    assert sweep.policies == (
        Choice(name="simple"),
        Choice(name="incremental", options={"max_moves_per_round": 2}),
    )
    assert sweep.assignors == (Choice(name="range"),)
    assert sweep.options == {"scheduled_rebalance_timeout_ms": (0, 5_000)}
    assert sweep.settings == {"session_timeout_ms": (20_000,)}
    assert sweep.sizes == (1, 4)


def test_file_without_grid_is_the_scenario_itself(folder: Path) -> None:
    sweep = parse_sweep('scenarios = "small.toml"\nseeds = 2', file=str(folder / "s.toml"))
    assert sweep.seeds == (1, 2)
    assert len(cells_of(sweep)) == 2


@pytest.mark.parametrize(
    ("text", "place", "expected"),
    [
        ("seeds = 1", "1: scenarios", "required"),
        ('scenarios = "small.toml"\nseed = 3', "2: seed", "did you mean seeds?"),
        ('scenarios = "small.toml"\n\nseeds = true', "3: seeds", "an integer from 1"),
        ('scenarios = "small.toml"\nseeds = [1, 1]', "2: seeds", "each value once"),
        ('scenarios = "small.toml"\nseeds = []', "2: seeds", "at least one value"),
        ('scenarios = "gone.toml"', "1: scenarios", "the path of a scenario file"),
        ('scenarios = ["small.toml",\n"./small.toml"]', "2: scenarios", "different names"),
        ('scenarios = "small.toml"\n[grid]\npolicies = "lazy"', "3: grid.policies", "one of"),
        (
            'scenarios = "small.toml"\n[grid]\npolicies = [{ name = "eager", options = { a = 3 }}]',
            "3: grid.policies",
            "no options at all",
        ),
        (
            'scenarios = "small.toml"\n[grid]\npolicies = [{ options = {} }]',
            "3: grid.policies",
            "a name, or a table",
        ),
        ('scenarios = "small.toml"\n[grid]\nassignors = 3', "3: grid.assignors", "a name"),
        (
            'scenarios = "small.toml"\n[grid]\nmax_moves_per_round = [0]',
            "3: grid.max_moves_per_round",
            "an integer from 1",
        ),
        (
            'scenarios = "small.toml"\n[grid]\nsession_timeout_ms = [9_000, 2_000]',
            "3: grid.session_timeout_ms",
            "less than session_timeout_ms (2000)",
        ),
        (
            'scenarios = "small.toml"\n[grid]\npolicies = ["incremental"]\nmove_interval_ms = [5]',
            "4: grid.move_interval_ms",
            "max_moves_per_round beside it",
        ),
        ('scenarios = "small.toml"\nseeds = 1_000_000\n[grid]\nsizes=[1,2]', "3: grid", "at most"),
        ('scenarios = "small.toml"\n[grid]\nsizes = [5_000]', "3: grid.sizes", "at most"),
        ("scenarios = [", "1", "TOML"),
    ],
)
def test_file_when_wrong_is_refused_by_file_line_and_key(
    folder: Path, text: str, place: str, expected: str
) -> None:
    file = str(folder / "bad.toml")
    with pytest.raises(ConfigurationError) as refused:
        parse_sweep(text, file=file)
    assert str(refused.value).startswith(f"{file}:{place}: got ")
    assert expected in str(refused.value)
    assert "\n" not in str(refused.value)


def test_scenario_when_wrong_is_refused_by_its_own_file(folder: Path) -> None:
    (folder / "small.toml").write_text("duration_ms = 0")
    with pytest.raises(ConfigurationError, match=r"small\.toml:1: "):
        parse_sweep('scenarios = "small.toml"', file=str(folder / "s.toml"))


def test_file_when_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"sweep file: .*a file to read"):
        read_sweep(tmp_path / "gone.toml")


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
def test_sweeps_of_the_repository_can_be_read(path: Path) -> None:
    sweep = read_sweep(path)
    assert sweep.description
    assert len(cells_of(sweep)) > len(sweep.seeds)
