"""Sweep files: contents and error messages."""

from pathlib import Path

import pytest

from coopgroup.errors import ConfigurationError
from coopgroup.pipeline.sweep.file import parse_sweep, read_sweep
from coopgroup.pipeline.sweep.grid import GROUP_AXES, OPTION_AXES, cells_of
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
        ("seeds = 1", "scenarios", "required"),
        ('scenarios = "small.toml"\nseed = 3', "seed", "did you mean seeds?"),
        ('scenarios = "small.toml"\n\nseeds = true', "seeds", "an integer"),
        ('scenarios = "small.toml"\nseeds = [1, 1]', "seeds[1]", "each value once"),
        ('scenarios = "small.toml"\nseeds = []', "seeds", "at least one value"),
        ('scenarios = "gone.toml"', "scenarios", "the path of a scenario file"),
        ('scenarios = ["small.toml",\n"./small.toml"]', "scenarios[1]", "different names"),
        ('scenarios = "small.toml"\n[grid]\npolicies = "lazy"', "grid.policies", "one of"),
        (
            'scenarios = "small.toml"\n[grid]\npolicies = [{ name = "eager", options = { a = 3 }}]',
            "grid.policies: option of policy eager",
            "no options at all",
        ),
        (
            'scenarios = "small.toml"\n[grid]\npolicies = [{ options = {} }]',
            "grid.policies[0].name",
            "required",
        ),
        ('scenarios = "small.toml"\n[grid]\nassignors = 3', "grid.assignors", "a name"),
        (
            'scenarios = "small.toml"\n[grid]\nmax_moves_per_round = [0]',
            "grid.max_moves_per_round[0]",
            "an integer from 1",
        ),
        (
            'scenarios = "small.toml"\n[grid]\nsession_timeout_ms = [9_000, 2_000]',
            "grid.session_timeout_ms",
            "less than session_timeout_ms (2000)",
        ),
        (
            'scenarios = "small.toml"\n[grid]\npolicies = ["incremental"]\nmove_interval_ms = [5]',
            "grid.move_interval_ms",
            "max_moves_per_round beside it",
        ),
        ('scenarios = "small.toml"\nseeds = 1_000_000\n[grid]\nsizes=[1,2]', "grid", "at most"),
        ('scenarios = "small.toml"\nseeds = 0', "seeds", "an integer from 1 to 1000000"),
        ('scenarios = "small.toml"\nseeds = [3, -1]', "seeds[1]", "an integer from 0 to"),
        ('scenarios = "small.toml"\ngrid = 3', "grid", "a table with the keys policies, "),
        (
            'scenarios = "small.toml"\ngrid.lags = 1',
            "grid.lags",
            f"there are policies, assignors, sizes, {', '.join((*OPTION_AXES, *GROUP_AXES))}",
        ),
        ('scenarios = "small.toml"\n[grid]\nsizes = [5_000]', "grid.sizes", "at most"),
    ],
)
def test_file_when_wrong_is_refused_by_file_and_key_path(
    folder: Path, text: str, place: str, expected: str
) -> None:
    file = str(folder / "bad.toml")
    with pytest.raises(ConfigurationError) as refused:
        parse_sweep(text, file=file)
    assert str(refused.value).startswith(f"{file}: {place}: got ")
    assert expected in str(refused.value)
    assert "\n" not in str(refused.value)


def test_text_that_is_no_toml_is_refused_with_its_line() -> None:
    with pytest.raises(ConfigurationError, match=r"sweep file: got 's.toml', .*TOML .*line 2, "):
        parse_sweep("seeds = 1\nseeds = 2\n", file="s.toml")


def test_scenario_when_wrong_is_refused_by_its_own_file(folder: Path) -> None:
    (folder / "small.toml").write_text("duration_ms = 0")
    with pytest.raises(ConfigurationError, match=r"small\.toml: "):
        parse_sweep('scenarios = "small.toml"', file=str(folder / "s.toml"))


def test_file_when_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"sweep file: .*a file to read"):
        read_sweep(tmp_path / "gone.toml")


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
def test_sweeps_of_the_repository_can_be_read(path: Path) -> None:
    sweep = read_sweep(path)
    assert sweep.description
    assert len(cells_of(sweep)) > len(sweep.seeds)
