"""Sweeps: files with their error messages, and cells with their names and scenarios."""

import json
from pathlib import Path
from typing import Any

import pytest

from coopgroup.errors import ConfigurationError
from coopgroup.pipeline.sweep.grid import (
    GROUP_AXES,
    OPTION_AXES,
    Grid,
    Sweep,
    SweptScenario,
    cells_of,
    parse_sweep,
    read_sweep,
    resized,
)
from coopgroup.simulator.scenario import Choice, RollingRestart, Scale, Scenario
from coopgroup.simulator.scenario.file import parse_scenario
from tests.support.small_scenario import SMALL

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

SCENARIO = """\
duration_ms = 60000

[group]
policy = "simple"

[policies.deferred]
scheduled_rebalance_timeout_ms = 7000

[topics.orders]
partitions = 2
rate_per_s = [1, 2]

[[members]]
name = "worker"
count = 3
start_every_ms = 900

[[members]]
name = "solo"

[[events]]
at_ms = 20000
kind = "scale"
members = "worker"
to = 5
every_ms = 600

[[events]]
at_ms = 30000
kind = "rolling_restart"
members = "worker"
down_ms = 100
every_ms = 1000
"""


def base() -> Scenario:
    """Return a scenario that has every part that a size changes."""
    return parse_scenario(SCENARIO, file="small.toml")


def sweep(seeds: tuple[int, ...] = (1, 2), digest: str = "d", **grid: Any) -> Sweep:  # noqa: ANN401
    scenario = SweptScenario(scenario=base(), digest=digest)
    return Sweep(name="s", scenarios=(scenario,), seeds=seeds, grid=Grid(**grid))


def rows(made: Sweep) -> list[dict[str, Any]]:
    return [json.loads(cell.parameters) for cell in cells_of(made)]


def test_cells_of_a_policy_without_the_option_are_made_once() -> None:
    made = sweep(
        policies=(Choice(name="simple"), Choice(name="deferred")),
        scheduled_rebalance_timeout_ms=(0, 5),
        max_moves_per_round=(1, 2, 3),
        seeds=(1,),
    )
    assert [row["policy"] for row in rows(made)] == [
        {"name": "simple", "options": {}},
        {"name": "deferred", "options": {"scheduled_rebalance_timeout_ms": 0}},
        {"name": "deferred", "options": {"scheduled_rebalance_timeout_ms": 5}},
    ]


def test_resized_scenario_has_more_of_everything_in_the_same_time() -> None:
    larger = resized(base(), 3)
    assert larger.topics[0].rate_per_s == (1.0, 2.0) * 3
    assert [(one.count, one.start_every_ms) for one in larger.members] == [(9, 300), (None, 0)]
    assert next(one for one in larger.events if isinstance(one, Scale)).to == 15
    assert next(one for one in larger.events if isinstance(one, RollingRestart)).batch == 3
    assert larger.duration_ms == base().duration_ms
    assert resized(base(), 1) == base()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "small.toml").write_text(SMALL, "utf-8-sig")  # as editors of Windows do
    return tmp_path


def test_file_is_read_whole(folder: Path) -> None:
    path = folder / "full.toml"
    path.write_text(FULL, "utf-8-sig")
    made = read_sweep(path)
    assert (made.name, made.description, made.seeds) == ("full", "Everything at once.", (3, 5))
    assert [one.scenario.name for one in made.scenarios] == ["small"]
    rationed = Choice(name="incremental", options={"max_moves_per_round": 2})
    assert made.grid == Grid(
        policies=(Choice(name="simple"), rationed),
        assignors=(Choice(name="range"),),
        sizes=(1, 4),
        scheduled_rebalance_timeout_ms=(0, 5_000),
        session_timeout_ms=(20_000,),
    )
    assert len(made.grid.varied) == 5


SMALL_ONE = 'scenarios = "small.toml"\n'
STRICT = "less than session_timeout_ms (2000)"


def test_file_when_wrong_is_refused_by_file_and_key_path(
    folder: Path, subtests: pytest.Subtests
) -> None:
    for text, place, expected in [
        ("seeds = 1", "scenarios", "required"),
        ('scenarios = "gone.toml"', "scenarios", "the path of a scenario file"),
        ('scenarios = ["small.toml", "./small.toml"]', "scenarios[1]", "different names"),
        (f"{SMALL_ONE}seed = 3", "seed", "did you mean seeds?"),
        (f"{SMALL_ONE}seeds = 0", "seeds", "an integer from 1 to 1000000"),
        (f"{SMALL_ONE}seeds = [1, 1]", "seeds[1]", "each value once"),
        (f"{SMALL_ONE}seeds = []", "seeds", "at least one value"),
        (f"{SMALL_ONE}seeds = 1_000_000\ngrid.sizes = [1, 2]", "grid", "at most"),
        (f"{SMALL_ONE}grid.policies = 'lazy'", "grid.policies", "one of"),
        (
            f"{SMALL_ONE}grid.policies = [{{ name = 'eager', options = {{ a = 3 }} }}]",
            "grid.policies: option of policy eager",
            "no options at all",
        ),
        (f"{SMALL_ONE}grid.policies = [{{ options = {{}} }}]", "grid.policies[0].name", "required"),
        (f"{SMALL_ONE}grid.max_moves_per_round = [0]", "grid.max_moves_per_round[0]", "from 1"),
        (f"{SMALL_ONE}grid.session_timeout_ms = [9_000, 2_000]", "grid.session_timeout_ms", STRICT),
        (
            f"{SMALL_ONE}grid.move_interval_ms = 0\ngrid.session_timeout_ms = 2_000",
            "grid.session_timeout_ms",
            STRICT,
        ),
        (
            f"{SMALL_ONE}grid.policies = ['incremental']\ngrid.move_interval_ms = [5]",
            "grid.move_interval_ms",
            "max_moves_per_round beside it",
        ),
        (
            f"{SMALL_ONE}grid.lags = 1",
            "grid.lags",
            f"there are policies, assignors, sizes, {', '.join((*OPTION_AXES, *GROUP_AXES))}",
        ),
    ]:
        with subtests.test(text=text, place=place):
            file = str(folder / "bad.toml")
            with pytest.raises(ConfigurationError) as refused:
                parse_sweep(text, file=file)
            said = str(refused.value)
            assert said.startswith(f"{file}: {place}: got ")
            assert (expected in said, "\n" in said) == (True, False)
