"""Even out the drain times, or the lags, of members by a few moves.

Every member has a load and a speed; its time is load / speed. With equal speeds the time is the
load. The slowest member gives a partition to one of the fastest members or exchanges one with it.
It chooses the step that shortens the slower member's time most per move. A member that no step
helps is skipped. The exchange ends when the times are as even as the goal, when no step gains
enough, or when the budget of moves is used up.

In large groups each of the slowest members takes a step with a different partner, before any of
them is looked at again.

Moves are counted against the present owners. A partition without an owner moves freely, and a
partition that returns to its owner gives a move back. Every move must gain more than a fixed
amount, so a balanced group stays as it is: a step that was refused once is refused again after the
planned holders have become the owners.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from attrs import define, field, frozen

from coopgroup.core.assignors.levelling.steps import NOTHING, Loads
from coopgroup.core.assignors.ordering import by_column, by_falling_lag

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coopgroup.core.assignors.levelling.steps import Steps
    from coopgroup.core.assignors.move_budget import MoveBudget
    from coopgroup.core.model.group import Float64Array
    from coopgroup.core.model.resource_set import BoolArray, Int64Array

_PARTNERS_MAX: Final = 8
_CANDIDATES_MAX: Final = 64  # partitions of a member that are considered, spread over their weights
_CANDIDATES_TOGETHER_MAX: Final = 32
_CELLS_MAX: Final = 2**18


@frozen(kw_only=True)
class _Step:
    """One step: the position that the heavy member gives and the position that it takes."""

    partner: int
    given: int
    taken: int
    moves: int


@define(kw_only=True, eq=False)
class Exchange:
    """The exchange between the S subscribers of one pool.

    Attributes:
        now: planned holders; `run` changes them.
        goal: float64 (S,): times that are even enough, descending.
        budget: what moves must gain; its budget is reduced.
    """

    now: Loads
    goal: Float64Array
    budget: MoveBudget
    _held: dict[int, Int64Array] = field(init=False, factory=dict)
    _order: Int64Array = field(init=False)
    _starts: Int64Array = field(init=False)
    _steps: int = field(init=False, default=0)

    def run(self) -> bool:
        """Exchange until times are even or no step helps; return whether anything changed."""
        if self._even_enough():
            return False
        weights = self.now.weights
        rising = by_falling_lag(np.array([weights.size]), -weights)
        self._order = by_column(self.now.holder, rising)
        self._starts = np.append(0, np.cumsum(self.now.counts))
        while self._sweep():
            pass
        return self._steps > 0

    def _sweep(self) -> bool:
        """Visit the members, slowest first; return whether another sweep can help."""
        before = self._steps
        passed_over = np.zeros(self.now.loads.size, dtype=np.bool_)
        count = 1  # most members are skipped, so after a skipped one several are looked at together
        while self.budget.looks_left > 0 and not self._even_enough():
            latest = self._latest(passed_over, max(count, _PARTNERS_MAX * self.now.together))
            if not latest.size:
                return self._steps > before
            passed, steps = self._look(latest)
            passed_over[passed] = True
            count = passed.size + 1 if steps else min(2 * count, self.now.loads.size)
            for step in steps:
                self._take(step)
        return False

    def _even_enough(self) -> bool:
        above = np.sort(self.now.times)[::-1] - self.goal
        return float(above.max()) <= self.now.gain

    def _latest(self, passed_over: BoolArray, count: int) -> Int64Array:
        """Return the columns with the longest times for which some member is fast enough."""
        times = self.now.times
        needed = self.now.gain * (1 + float(self.now.speeds.min() / self.now.speeds.max()))
        late = ~passed_over & (times - times.min() > max(needed, self.now.slack))
        columns = np.flatnonzero(late)
        if count == 1 and columns.size:
            return columns[[np.argmax(times[columns])]]
        return columns[np.argsort(-times[columns], kind="stable")[:count]]

    def _look(self, heavy: Int64Array) -> tuple[Int64Array, list[_Step]]:
        """Look at some slow columns (`heavy`, slowest first), as many as fit into memory.

        Returns:
            The columns without a useful step, and the best steps of the others: only the first
            step, unless steps are taken together.
        """
        if not self._alike:
            heavy = heavy[: max(1, _CELLS_MAX // self.now.loads.size)]
        self.budget.looks_left -= 1 if self._alike else heavy.size
        rows, light = self._pairs(heavy)
        cut = self._cut(rows)
        seen = int(rows[cut]) if cut < rows.size else heavy.size
        rows, light = rows[:cut], light[:cut]
        if not cut:
            return heavy[:seen], []
        own, row_of = np.unique(rows, return_inverse=True)
        partners, partner_of = np.unique(light, return_inverse=True)
        gives, takes = self._candidates(heavy[own])[row_of], self._candidates(partners)[partner_of]
        found = self.now.best_steps(heavy[rows], light, gives, takes, self.budget)
        order = np.lexsort((found.rank, -found.worth, rows))
        order = order[found.worth[order] > 0]
        can = rows[order]
        if not self.now.together:
            order, seen = order[:1], int(can.min(initial=seen))
        passed = np.ones(seen, dtype=np.bool_)
        passed[can[can < seen]] = False
        return heavy[:seen][passed], list(self._apart(order, heavy[rows], light, found))

    def _apart(
        self, order: Int64Array, heavy: Int64Array, light: Int64Array, found: Steps
    ) -> Iterator[_Step]:
        """Yield steps in this order within the budget; each column is in one step at most."""
        busy: set[int] = set()
        spent = 0
        for pair in order.tolist():
            both = {int(heavy[pair]), int(light[pair])}
            moves = spent + max(int(found.moves[pair]), 0)
            if both & busy or not self.budget.affords(np.array(moves)):
                continue
            busy |= both
            spent = moves
            yield _Step(
                partner=int(light[pair]),
                given=int(found.given[pair]),
                taken=int(found.taken[pair]),
                moves=int(found.moves[pair]),
            )

    def _pairs(self, heavy: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return pairs of a slow column and a fast one, or one with much spare speed.

        Returns:
            Place in `heavy`, ascending, and column of the partner, of each pair.
        """
        times = self.now.times
        if self._alike:
            each = [_highest(-times)] * heavy.size
        else:
            early = times[heavy][:, None] - times
            each = [_distinct(_highest(one), _highest(one * self.now.speeds)) for one in early]
        rows = np.repeat(np.arange(heavy.size), [some.size for some in each])
        light = np.concatenate(each)
        kept = self.now.may_help(heavy[rows], light)
        return rows[kept], light[kept]

    @property
    def _alike(self) -> bool:
        """Return whether all speeds are equal, so that all members have the same best partners."""
        return bool((self.now.speeds == self.now.speeds[0]).all())

    @property
    def _candidates_max(self) -> int:
        return _CANDIDATES_TOGETHER_MAX if self.now.together else _CANDIDATES_MAX

    def _cut(self, rows: Int64Array) -> int:
        """Return how many pairs to look at together: whole rows, within the memory bound."""
        widest = min(self._candidates_max, int(self.now.counts.max()))
        most = max(1, _CELLS_MAX // (widest * (widest + 1)))
        if rows.size <= most:
            return rows.size
        first_row = int(np.searchsorted(rows, rows[0], side="right"))
        return max(first_row, int(np.searchsorted(rows, rows[most])))

    def _take(self, step: _Step) -> None:
        heavy = int(self.now.holder[step.given])
        self._hand_over(step.given, heavy, step.partner)
        if step.taken != NOTHING:
            self._hand_over(step.taken, step.partner, heavy)
        self.budget.spend(step.moves)
        self._steps += 1

    def _hand_over(self, position: int, giver: int, taker: int) -> None:
        self._held[giver] = self._places(giver)[self._places(giver) != position]
        grown = np.append(self._places(taker), position)
        self._held[taker] = grown[np.lexsort((grown, self.now.weights[grown]))]
        self.now.hand_over(position, taker)

    def _candidates(self, columns: Int64Array) -> Int64Array:
        """Return the partitions of each column to consider: (columns, n), padded with `NOTHING`."""
        each = []
        count = self._candidates_max
        for column in columns.tolist():
            positions = self._places(column)
            if positions.size > count:
                positions = positions[np.arange(count) * (positions.size - 1) // (count - 1)]
            each.append(positions)
        sizes = np.array([some.size for some in each])
        table = np.full((columns.size, max(1, int(sizes.max()))), NOTHING)
        table[np.arange(table.shape[1]) < sizes[:, None]] = np.concatenate(each)
        return table

    def _places(self, column: int) -> Int64Array:
        """Return the positions that a member holds, by weight, then by position."""
        if column not in self._held:
            low, high = self._starts[column : column + 2]
            self._held[column] = self._order[low:high]
        return self._held[column]


def _highest(values: Float64Array) -> Int64Array:
    """Return the columns of the few highest values, highest first; equal values by number."""
    count = min(_PARTNERS_MAX, values.size)
    least = np.partition(values, values.size - count)[values.size - count]
    columns = np.flatnonzero(values >= least)
    return columns[np.argsort(-values[columns], kind="stable")][:count]


def _distinct(first: Int64Array, second: Int64Array) -> Int64Array:
    """Return the first array, followed by the new values of the second."""
    return np.append(first, second[~np.isin(second, first)])
