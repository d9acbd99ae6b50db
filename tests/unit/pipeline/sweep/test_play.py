"""Playing a cell: the simulator's figures, or the reason why they are missing."""

import json

import pyarrow as pa
import pytest

from coopgroup.pipeline.sweep.grid import Cell, Sweep, SweptScenario, cells_of
from coopgroup.pipeline.sweep.order import Kind, kind_of
from coopgroup.pipeline.sweep.play import play_cell, play_tasks
from coopgroup.pipeline.sweep.schema import COLUMNS
from coopgroup.simulator.comparison import MEASURES
from coopgroup.simulator.run import simulate
from coopgroup.simulator.scenario import Choice
from coopgroup.simulator.scenario.file import parse_scenario

SCENARIO = parse_scenario(
    """\
duration_ms = 20000
settle_ms = 20000

[group]
session_timeout_ms = 6000
heartbeat_interval_ms = 1000

[topics.t]
partitions = 4
rate_per_s = 5

[[members]]
name = "m"
count = 2

[[events]]
at_ms = 5000
kind = "crash"
member = "m-1"
back_after_ms = 10000
""",
    file="small.toml",
)
SCENARIOS = {"small": SCENARIO}


@pytest.fixture
def cells() -> tuple[Cell, ...]:
    sweep = Sweep(
        name="s",
        scenarios=(SweptScenario(scenario=SCENARIO, digest="d"),),
        policies=(Choice(name="deferred"),),
        options={"scheduled_rebalance_timeout_ms": (9_000,)},
        seeds=(1, 2),
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


def test_tasks_have_a_row_for_each_of_their_cells(cells: tuple[Cell, ...]) -> None:
    told: list[tuple[Kind, float]] = []
    batches = play_tasks(
        iter([pa.RecordBatch.from_pydict({"id": [1, 0]})]),
        sweep="s",
        tasks=((cells[0],), (cells[1], cells[0])),
        scenarios=SCENARIOS,
        on_cell=lambda *one: told.append(one),
    )
    (batch,) = batches
    assert tuple(batch.schema.names) == COLUMNS
    assert batch.column("seed").to_pylist() == [2, 1, 1]
    assert set(batch.column("sweep").to_pylist()) == {"s"}
    kind = kind_of(cells[0])
    assert kind == ("small", 1, "deferred", "sticky")
    assert told == [(kind, seconds) for seconds in batch.column("cpu_s").to_pylist()]
