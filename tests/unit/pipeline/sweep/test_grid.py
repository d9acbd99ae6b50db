"""Cells of a sweep: combinations, names and scenarios."""

import json
from typing import Any

import pytest
from attrs import evolve

from coopgroup.errors import ConfigurationError
from coopgroup.pipeline.sweep.grid import (
    Sweep,
    SweptScenario,
    cells_of,
    check_cells,
    resized,
    scenario_of,
)
from coopgroup.simulator.scenario import Choice, RollingRestart, Scale, Scenario
from coopgroup.simulator.scenario.file import parse_scenario

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


def sweep(**changed: Any) -> Sweep:  # noqa: ANN401 - any part
    plain = Sweep(name="s", scenarios=(SweptScenario(scenario=base(), digest="d"),), seeds=(1, 2))
    return evolve(plain, **changed)


def rows(made: Sweep) -> list[dict[str, Any]]:
    return [json.loads(cell.parameters) for cell in cells_of(made)]


def test_cells_are_every_combination_and_seeds_vary_fastest() -> None:
    made = sweep(
        policies=(Choice(name="simple"), Choice(name="eager")),
        settings={"session_timeout_ms": (10_000, 20_000)},
    )
    assert [(row["policy"], row["group"], row["seed"]) for row in rows(made)] == [
        (
            {"name": policy, "options": {}},
            {
                "session_timeout_ms": session,
                "rebalance_timeout_ms": 300_000,
                "heartbeat_interval_ms": 3_000,
                "window_heartbeat_interval_ms": 250,
                "commit_interval_ms": 5_000,
            },
            seed,
        )
        for policy in ("simple", "eager")
        for session in (10_000, 20_000)
        for seed in (1, 2)
    ]


def test_cells_of_a_policy_without_the_option_are_made_once() -> None:
    made = sweep(
        policies=(Choice(name="simple"), Choice(name="deferred")),
        options={"scheduled_rebalance_timeout_ms": (0, 5), "max_moves_per_round": (1, 2, 3)},
        seeds=(1,),
    )
    assert [row["policy"] for row in rows(made)] == [
        {"name": "simple", "options": {}},
        {"name": "deferred", "options": {"scheduled_rebalance_timeout_ms": 0}},
        {"name": "deferred", "options": {"scheduled_rebalance_timeout_ms": 5}},
    ]


def test_policy_by_name_has_the_options_of_the_scenario() -> None:
    (row,) = rows(sweep(policies=(Choice(name="deferred"),), seeds=(1,)))
    assert row["policy"] == {
        "name": "deferred",
        "options": {"scheduled_rebalance_timeout_ms": 7_000},
    }


def test_keys_when_anything_changes_differ() -> None:
    sweeps = [
        sweep(),
        sweep(seeds=(3, 4)),
        sweep(sizes=(2,)),
        sweep(scenarios=(SweptScenario(scenario=base(), digest="e"),)),
        sweep(assignors=(Choice(name="range"),)),
    ]
    keys = [cell.key for made in sweeps for cell in cells_of(made)]
    assert len(set(keys)) == len(keys)
    assert cells_of(sweep()) == cells_of(sweep())


def test_scenario_of_cell_has_its_parameters() -> None:
    (row,) = rows(
        sweep(
            policies=(Choice(name="deferred"),),
            options={"scheduled_rebalance_timeout_ms": (9,)},
            assignors=(Choice(name="range"),),
            settings={"commit_interval_ms": (1_234,)},
            sizes=(2,),
            seeds=(1,),
        )
    )
    made = scenario_of(row, base())
    assert str(made.group.policy) == "deferred:scheduled_rebalance_timeout_ms=9"
    assert made.group.assignor == Choice(name="range")
    assert made.group.commit_interval_ms == 1_234
    assert made.topics[0].partitions == 4


def test_resized_scenario_has_more_of_everything_in_the_same_time() -> None:
    larger = resized(base(), 3)
    assert larger.topics[0].rate_per_s == (1.0, 2.0) * 3
    assert [(one.count, one.start_every_ms) for one in larger.members] == [(9, 300), (None, 0)]
    assert next(one for one in larger.events if isinstance(one, Scale)).to == 15
    assert next(one for one in larger.events if isinstance(one, RollingRestart)).batch == 3
    assert larger.duration_ms == base().duration_ms
    assert resized(base(), 1) == base()


def test_check_when_a_cell_cannot_be_played_refuses_all() -> None:
    with pytest.raises(ConfigurationError, match="heartbeat_interval_ms"):
        check_cells(sweep(settings={"session_timeout_ms": (10_000, 2_000)}))
