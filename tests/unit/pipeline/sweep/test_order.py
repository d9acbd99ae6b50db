"""Order of the cells, and the grouping of cells into tasks."""

import pytest

from coopgroup.pipeline.sweep.grid import Cell, Sweep, SweptScenario, cells_of
from coopgroup.pipeline.sweep.order import Backlog, Kind, Tasks, dealt, kind_of
from coopgroup.simulator.scenario import Choice
from coopgroup.simulator.scenario.file import parse_scenario
from tests.support.small_scenario import SMALL

CORES = 2
SCENARIOS = {"small": parse_scenario(SMALL, file="small.toml")}


def cells(*, sizes: tuple[int, ...] = (1, 10), seeds: int = 100) -> tuple[Cell, ...]:
    sweep = Sweep(
        name="s",
        scenarios=(SweptScenario(scenario=SCENARIOS["small"], digest="d"),),
        policies=(Choice(name="simple"), Choice(name="deferred")),
        sizes=sizes,
        seeds=tuple(range(seeds)),
    )
    return cells_of(sweep)


def backlog(given: tuple[Cell, ...], spent: dict[Kind, tuple[int, float]] | None = None) -> Backlog:
    made = Backlog.of(given, SCENARIOS, CORES)
    made.learn(spent or {})
    return made


def kind(size: int, policy: str) -> Kind:
    return "small", size, policy, "sticky"


def kinds(tasks: Tasks) -> list[Kind]:
    return [kind_of(cell) for task in tasks for cell in task]


def test_every_cell_goes_out_once_whatever_they_take() -> None:
    given = cells()
    made = backlog(given)
    found: list[Cell] = []
    for seconds in (0.0, 0.01, 3.0, 0.2, 0.0001, 0.5, 1.0, 1.0, 1.0):
        found += [cell for task in made.take() for cell in task]
        made.learn({kind(10, "simple"): (4, 4 * seconds)} if seconds else {})
    while not made.is_empty:
        found += [cell for task in made.take() for cell in task]
    assert len(found) == len(given)
    assert set(found) == set(given)


def test_first_cells_are_few_and_of_different_kinds() -> None:
    tasks = backlog(cells(sizes=(1, 3, 10))).take()
    assert [len(task) for task in tasks] == [1] * 2 * CORES
    assert [one[1] for one in kinds(tasks)] == [10, 10, 3, 3]
    assert len(set(kinds(tasks))) == 4


def test_longest_cells_go_out_first() -> None:
    told = {kind(1, "deferred"): (2, 4.0), kind(1, "simple"): (2, 0.02)}
    made = backlog(cells(seeds=6), told)
    found: list[Kind] = []
    while not made.is_empty:
        found += sorted(set(kinds(made.take())))
    order = list(dict.fromkeys(found))
    # Ten times the size takes ten times the known mean, so about ten seconds.
    assert order[-1] == kind(1, "simple")
    assert {one[1] for one in order[:2]} == {10}


def test_tasks_are_of_some_seconds_and_end_together() -> None:
    made = backlog(cells(sizes=(1,), seeds=500), {kind(1, "simple"): (10, 2.5)})
    tasks = made.take()
    counts = [len(task) for task in tasks]
    assert len(tasks) == 8
    assert sum(counts) == 80  # 0.25 s each
    assert max(counts) - min(counts) <= 1


def test_tasks_are_shorter_in_the_end() -> None:
    made = backlog(cells(sizes=(1,), seeds=20), {kind(1, "simple"): (10, 2.5)})
    tasks = made.take()  # 40 cells of 0.25 s
    assert made.is_empty
    assert [len(task) for task in tasks] == [3] * 8 + [2] * 8


@pytest.mark.parametrize("count", [1, 3, 50])
def test_cells_are_dealt_evenly_the_longest_first(count: int) -> None:
    given = [(1.0 + number % 7, cell) for number, cell in enumerate(cells(sizes=(1,), seeds=10))]
    seconds = {cell: cost for cost, cell in given}
    tasks = dealt(given, count)
    sums = [sum(seconds[cell] for cell in task) for task in tasks]
    assert sorted(sums, reverse=True) == sums
    assert len(tasks) == min(count, len(given))
    assert max(sums) - min(sums) <= 7
    for task in tasks:
        costs = [seconds[cell] for cell in task]
        assert sorted(costs, reverse=True) == costs
    assert {cell for task in tasks for cell in task} == set(seconds)
