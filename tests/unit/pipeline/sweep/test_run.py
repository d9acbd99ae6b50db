"""Playing cells: the simulator's figures, and tasks that end together."""

import json

import pytest

from coopgroup.pipeline.sweep.grid import Cell, Grid, Sweep, SweptScenario, cells_of
from coopgroup.pipeline.sweep.run import first_of_each_kind, kind_of, play_cell, tasks_of
from coopgroup.simulator.comparison import MEASURES
from coopgroup.simulator.run import simulate
from coopgroup.simulator.scenario import Choice
from coopgroup.simulator.scenario.file import parse_scenario
from tests.support.small_scenario import CRASH

SCENARIO = parse_scenario(CRASH, file="small.toml")
SCENARIOS = {"small": SCENARIO}


@pytest.fixture
def cells() -> tuple[Cell, ...]:
    sweep = Sweep(
        name="s",
        scenarios=(SweptScenario(scenario=SCENARIO, digest="d"),),
        seeds=tuple(range(1, 101)),
        grid=Grid(policies=(Choice(name="deferred"),), scheduled_rebalance_timeout_ms=(9_000,)),
    )
    return cells_of(sweep)


def test_cell_costs_what_the_simulator_says(cells: tuple[Cell, ...]) -> None:
    row = play_cell(cells[1], SCENARIOS)
    policy = Choice(name="deferred", options={"scheduled_rebalance_timeout_ms": 9_000})
    measures = simulate(SCENARIO, policy=policy, seed=2).measures
    assert {name: row[name] for name in MEASURES} == {
        name: getattr(measures, name) for name in MEASURES
    }
    assert (row["policy"], row["scheduled_rebalance_timeout_ms"], row["seed"]) == (
        "deferred",
        9_000,
        2,
    )
    assert row["max_moves_per_round"] is None
    assert row["violations"] == 0
    assert "error" not in row


def test_cell_when_it_cannot_be_played_says_why(cells: tuple[Cell, ...]) -> None:
    parameters = json.loads(cells[0].parameters)
    broken = Cell.of(parameters | {"assignor": {"name": "gone", "options": {}}})
    row = play_cell(broken, SCENARIOS)
    assert row["error"].startswith("ConfigurationError: assignor: got 'gone'")
    assert (row["key"], row["seed"]) == (broken.key, 1)
    assert not set(row) & set(MEASURES)


def test_one_cell_of_each_new_kind_is_played_first_the_largest_before() -> None:
    """A kind that the table knows needs none."""
    policies = (Choice(name="simple"), Choice(name="deferred"))
    sweep = Sweep(
        name="s",
        scenarios=(SweptScenario(scenario=SCENARIO, digest="d"),),
        seeds=(1, 2),
        grid=Grid(policies=policies, sizes=(1, 9)),
    )
    given = cells_of(sweep)
    known = {("small", 9, "deferred", "sticky")}
    first, others = first_of_each_kind(given, known)
    assert [kind_of(cell)[1:3] for cell in first] == [(9, "simple"), (1, "simple"), (1, "deferred")]
    assert len(others) == 5
    assert {*first, *others} == set(given)


def test_tasks_are_of_some_seconds_and_shorter_in_the_end(cells: tuple[Cell, ...]) -> None:
    """Each core has eight more tasks of that length, until a task has half a second."""
    counts = [len(task) for task in tasks_of([(0.25, cell) for cell in cells], 1)]
    assert sum(counts) == 100
    assert counts[:4] == [10, 10, 10, 9]  # 2.5 s at most
    assert counts == sorted(counts, reverse=True)
    assert counts[-3:] == [2, 2, 2]
