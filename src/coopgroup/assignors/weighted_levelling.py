"""Level weights: the heaviest member moves a resource to the lightest one, or they swap.

The step that brings the two closest is taken. A move goes before a swap that is no better, then the
first place wins. Levelling ends when all members are within the slack of the lightest one, or when
no step between the two makes the heavier one lighter.

Theory of operation: each member's weights are sorted, so the best single move is next to half of
the difference. Two heaps give the heaviest and the lightest member. A swap needs a search for each
weight of the heavier member. No swap beats a move while all its weights are below half of the
difference, which holds until the group is nearly level.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right, insort
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from coopgroup.model.resource_set import Int32Array, Int64Array

__all__ = ["level"]


def level(weights: Int64Array, held: Int32Array, loads: Int64Array, slack: int) -> bool:
    """Move and swap until no member can give the lightest one anything.

    Args:
        weights: int64 (P,), above 0.
        held: int32 (P,): column (0 to S - 1) of each place's holder; changed.
        loads: int64 (S,): load of each column, including other pools; changed.
        slack: how much heavier than the lightest column a column may stay.

    Returns:
        Whether anything moved.
    """
    if int(loads.max()) - int(loads.min()) <= max(1, slack):
        return False
    levelling = _Levelling(weights, held, loads, slack)
    moved = False
    while levelling.step():
        moved = True
    held[:], loads[:] = levelling.held, levelling.loads
    return moved


class _Step(NamedTuple):
    """The place that one column gives, and the place that it gets back, if any."""

    given: int
    taken: int | None


class _Things:
    """The places of one column: its distinct weights in order, and a heap of places for each."""

    def __init__(self, weights: Int64Array, places: Int64Array) -> None:
        """Take weights in order, and their places."""
        starts = np.flatnonzero(np.diff(weights, prepend=0))
        self.weights: list[int] = weights[starts].tolist()
        each = np.split(places, starts[1:])
        self.places: dict[int, list[int]] = {
            weight: some.tolist() for weight, some in zip(self.weights, each, strict=False)
        }

    def first(self, at: int) -> int:
        """Return the first place with a weight."""
        return self.places[self.weights[at]][0]

    def last(self, at: int) -> int:
        """Return the last place with a weight."""
        return max(self.places[self.weights[at]])

    def add(self, weight: int, place: int) -> None:
        some = self.places.setdefault(weight, [])
        if not some:
            insort(self.weights, weight)
        heapq.heappush(some, place)

    def remove(self, weight: int, place: int) -> None:
        some = self.places[weight]
        if place == some[0]:
            heapq.heappop(some)
        else:
            some.remove(place)
            heapq.heapify(some)
        if not some:
            del self.places[weight], self.weights[bisect_left(self.weights, weight)]


class _Levelling:
    """Columns by load, lazily: an entry of a heap is valid while its load is the column's load."""

    def __init__(
        self, weights: Int64Array, held: Int32Array, loads: Int64Array, slack: int
    ) -> None:
        self.held: list[int] = held.tolist()
        self.loads: list[int] = loads.tolist()
        self._weights = weights
        self._slack = max(1, slack)
        self._order = np.lexsort((weights, held))
        self._bounds = np.searchsorted(held[self._order], np.arange(loads.size + 1)).tolist()
        self._things: dict[int, _Things] = {}
        self._lightest = [(load, column) for column, load in enumerate(self.loads)]
        self._heaviest = [(-load, column) for column, load in enumerate(self.loads)]
        heapq.heapify(self._lightest)
        heapq.heapify(self._heaviest)

    def step(self) -> bool:
        """Take the best step of the heaviest column; return whether a step was found."""
        while self._lightest[0][0] != self.loads[self._lightest[0][1]]:
            heapq.heappop(self._lightest)
        least, light = self._lightest[0]
        passed: list[tuple[int, int]] = []
        giver, step = light, None
        while self._heaviest and step is None:
            entry = heapq.heappop(self._heaviest)
            load, giver = -entry[0], entry[1]
            if load != self.loads[giver]:
                continue
            passed.append(entry)
            if load - least <= self._slack:
                break
            step = _best_step(self._of(giver), self._of(light), load - least)
        for entry in passed:
            heapq.heappush(self._heaviest, entry)
        if step is None:
            return False
        self._hand_over(step.given, light)
        if step.taken is not None:
            self._hand_over(step.taken, giver)
        for changed in (light, giver):
            heapq.heappush(self._lightest, (self.loads[changed], changed))
            heapq.heappush(self._heaviest, (-self.loads[changed], changed))
        return True

    def _hand_over(self, place: int, taker: int) -> None:
        weight, giver = int(self._weights[place]), self.held[place]
        self._of(giver).remove(weight, place)
        self._of(taker).add(weight, place)
        self.held[place] = taker
        self.loads[giver] -= weight
        self.loads[taker] += weight

    def _of(self, column: int) -> _Things:
        if column not in self._things:
            places = self._order[self._bounds[column] : self._bounds[column + 1]]
            self._things[column] = _Things(self._weights[places], places)
        return self._things[column]


def _best_step(mine: _Things, theirs: _Things, ahead: int) -> _Step | None:
    """Return the step that brings two members closest, a move before an equal swap.

    Args:
        mine: places of the heavier member.
        theirs: places of the lighter member.
        ahead: how much heavier it is.
    """
    if not mine.weights:
        return None
    # A weight w makes the difference |ahead - 2w|; only w < ahead makes the heavier one lighter.
    above = bisect_right(mine.weights, ahead // 2)
    near = range(max(above - 1, 0), min(above + 1, len(mine.weights)))
    rest, place = min((abs(ahead - 2 * mine.weights[at]), mine.first(at)) for at in near)
    gift = _Step(place, None) if rest < ahead else None
    if above == len(mine.weights) or rest <= ahead % 2 or not theirs.weights:
        return gift  # a swap cannot be better: it shifts less, or the move is already the best
    return _best_swap(mine, theirs, ahead, min(rest, ahead)) or gift


def _best_swap(mine: _Things, theirs: _Things, ahead: int, below: int) -> _Step | None:
    """Return the swap that brings two members closest, if the difference is then below a bound."""
    own, others = np.array(mine.weights), np.array(theirs.weights)
    # For each of the heavier member's weights, the lighter member's weights next to the ideal swap.
    near = np.searchsorted(others, own - (ahead + 1) // 2)
    step = None
    for shift in (-1, 0):
        nearest = np.clip(near + shift, 0, others.size - 1)
        rest = np.abs(ahead - 2 * (own - others[nearest]))
        if int(rest.min()) < below:
            below = int(rest.min())
            place, at = min((mine.first(at), at) for at in np.flatnonzero(rest == below).tolist())
            other = int(nearest[at])
            lower = other < int(near[at])
            step = _Step(place, theirs.last(other) if lower else theirs.first(other))
    return step
