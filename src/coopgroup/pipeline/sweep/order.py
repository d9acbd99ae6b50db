"""Order of the cells, and their grouping into tasks: the longest cells first.

Rules of this file: no Spark, no clock; `learn` receives the measured times.

Theory of operation. Cells of a *kind* (scenario, size, policy, assignor) take about the same time.
The first cells of a kind give this time. For an unplayed kind the time is estimated from the amount
of simulation, on the scale of the played kinds. `Backlog.take` returns the longest cells, enough
for some seconds of work on all cores. `dealt` spreads them over tasks of about the same length,
each cell to the shortest task. So the last cells are short, and the last tasks are shorter, which
keeps all cores busy until the end.
"""

from __future__ import annotations

import heapq
import json
from collections import deque
from typing import TYPE_CHECKING, Final, TypeAlias

from attrs import define, field

from coopgroup.simulator.scenario import Scale

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from coopgroup.pipeline.sweep.grid import Cell
    from coopgroup.simulator.scenario import Scenario

__all__ = ["Backlog", "Kind", "Tasks", "dealt", "kind_of"]

Kind: TypeAlias = tuple[str, int, str, str]
"""Scenario, size, policy and assignor of a cell."""

Tasks: TypeAlias = "tuple[tuple[Cell, ...], ...]"
"""A batch of cells, by task."""

_BATCH_S: Final = 10.0
"""Seconds of work in a batch on all cores; at most this is lost when a sweep is killed."""

_BATCH_CELLS_MAX: Final = 5_000
_TASK_S: Final = 2.5
"""Seconds of work in a task: PySpark itself needs a few hundredths for each."""

_TASK_S_MIN: Final = 0.5
_TASKS_LEFT: Final = 8  # minimum number of remaining tasks per core, so that the cores end together
_FIRST: Final = 2  # cells per core before any time is known
_CELL_S_MIN: Final = 1e-4


def kind_of(cell: Cell) -> Kind:
    """Return the kind of a cell; cells of a kind take about the same time."""
    row = json.loads(cell.parameters)
    return row["scenario"], row["size"], row["policy"]["name"], row["assignor"]["name"]


@define(kw_only=True)
class Backlog:
    """Cells that have not gone out yet, by kind; the costliest kind first.

    Attributes:
        cores: number of tasks that run in parallel.
    """

    cores: int
    _weights: dict[Kind, float]
    _left: dict[Kind, deque[Cell]]
    _spent: dict[Kind, tuple[int, float]] = field(factory=dict)

    @classmethod
    def of(cls, cells: Iterable[Cell], scenarios: Mapping[str, Scenario], cores: int) -> Backlog:
        """Return a backlog without known times.

        Args:
            cells: cells to play.
            scenarios: scenarios by name, at their own size.
            cores: number of tasks that run in parallel.
        """
        left: dict[Kind, deque[Cell]] = {}
        for cell in cells:
            left.setdefault(kind_of(cell), deque()).append(cell)
        weights = {kind: _weight(scenarios[kind[0]]) * kind[1] for kind in left}
        return cls(cores=max(1, cores), weights=weights, left=left)

    @property
    def is_empty(self) -> bool:
        """Whether all cells have gone out."""
        return not any(self._left.values())

    def learn(self, spent: Mapping[Kind, tuple[int, float]]) -> None:
        """Set the measured times of cells.

        Args:
            spent: number of played cells and their CPU seconds so far, by kind.
        """
        self._spent = dict(spent)

    def take(self) -> Tasks:
        """Return the next cells, in tasks; only a few until times are known."""
        if not self._spent:
            return tuple((cell,) for cell in self._some(_FIRST * self.cores))
        costs = {kind: self._cost_s(kind) for kind, cells in self._left.items() if cells}
        left_s = sum(costs[kind] * len(self._left[kind]) for kind in costs)
        batch: list[tuple[float, Cell]] = []
        batch_s = 0.0
        for kind in sorted(costs, key=lambda one: costs[one], reverse=True):
            cells = self._left[kind]
            while cells and not self._is_enough(len(batch), batch_s):
                batch.append((costs[kind], cells.popleft()))
                batch_s += costs[kind]
        task_s = min(_TASK_S, max(_TASK_S_MIN, left_s / (self.cores * _TASKS_LEFT)))
        return dealt(batch, max(self.cores, round(batch_s / task_s)))

    def _is_enough(self, count: int, seconds: float) -> bool:
        if count >= _BATCH_CELLS_MAX:
            return True
        return count >= self.cores and seconds >= self.cores * _BATCH_S

    def _some(self, count: int) -> list[Cell]:
        """Return the first cells of as many kinds as possible, the longest simulations first."""
        heaviest = sorted(self._left, key=lambda kind: self._weights[kind], reverse=True)
        found: list[Cell] = []
        while len(found) < count and not self.is_empty:
            waiting = [self._left[kind] for kind in heaviest if self._left[kind]]
            found += [cells.popleft() for cells in waiting[: count - len(found)]]
        return found

    def _cost_s(self, kind: Kind) -> float:
        """Return the expected CPU seconds of a cell."""
        if kind in self._spent:
            count, seconds = self._spent[kind]
            return max(_CELL_S_MIN, seconds / count)
        seconds = sum(one for _, one in self._spent.values())
        weight = sum(count * self._weights[other] for other, (count, _) in self._spent.items())
        return max(_CELL_S_MIN, seconds * self._weights[kind] / weight)


def dealt(cells: Sequence[tuple[float, Cell]], count: int) -> Tasks:
    """Spread cells over tasks of about the same length.

    Args:
        cells: cells with their expected seconds.
        count: maximum number of tasks.

    Returns:
        The tasks without empty ones, the longest first.
    """
    tasks: list[tuple[float, int, list[Cell]]] = [(0.0, number, []) for number in range(count)]
    for cost, cell in sorted(cells, key=lambda one: one[0], reverse=True):
        seconds, number, mine = tasks[0]
        mine.append(cell)
        heapq.heapreplace(tasks, (seconds + cost, number, mine))
    longest_first = sorted(tasks, key=lambda one: (-one[0], one[1]))
    return tuple(tuple(mine) for _, _, mine in longest_first if mine)


def _weight(scenario: Scenario) -> float:
    """Return the relative amount of simulation of a scenario: members times duration."""
    started = sum(members.count or 1 for members in scenario.members)
    scaled = sum(event.to for event in scenario.events if isinstance(event, Scale))
    return float(max(1, started, scaled)) * max(1, scenario.end_ms)
