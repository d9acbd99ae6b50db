"""Deal partitions by lag to members that already carry something.

Rules of this file: partitions go in order of decreasing lag, those of equal lag in order of their
places. Who takes one is decided by counts first: `deal_by_count` gives it to a member that has most
room left, among equals to the one with the least lag. `deal_by_lag` gives it to the member with the
least lag among those whose counts allow it.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
from attrs import frozen

if TYPE_CHECKING:
    from coopgroup.model.resource_set import Int64Array

__all__ = ["Window", "deal_by_count", "deal_by_lag"]


@frozen(kw_only=True)
class Window:
    """Bounds of counts.

    Attributes:
        low: every member has at least so many in the end.
        high: a member may have so many, however few others have.
        skew: by how many counts may differ.
    """

    low: int
    high: int
    skew: int


def deal_by_count(lags: Int64Array, room: Int64Array, loads: Int64Array) -> Int64Array:
    """Deal n partitions to S members, whoever has most room first.

    Args:
        lags: int64 (n,).
        room: int64 (S,): how many each may still take; n or more in all.
        loads: int64 (S,): lag that each carries already.

    Returns:
        int64 (n,): columns of the takers.
    """
    order = np.argsort(-lags, kind="stable")
    columns = np.empty_like(lags)
    room, loads = room.copy(), loads.copy()
    place = 0
    while place < lags.size:
        widest = int(room.max())
        takers = np.flatnonzero(room == widest)
        left = lags.size - place
        if takers.size == 1:  # alone until it has no more room than the next one
            next_widest = int(room[room < widest].max(initial=0))
            taken = min(widest - next_widest, left)
        else:
            takers = takers[np.argsort(loads[takers], kind="stable")][:left]
            taken = takers.size
        some = order[place : place + taken]
        columns[some] = takers
        np.add.at(loads, columns[some], lags[some])
        room[takers] -= taken // takers.size
        place += taken
    return columns


def deal_by_lag(
    lags: Int64Array, counts: Int64Array, loads: Int64Array, window: Window
) -> Int64Array:
    """Deal n partitions to S members, whoever carries least first, as far as counts allow.

    A partition without lag evens nothing out, so these go by counts, after all others.

    Args:
        lags: int64 (n,), none below 0.
        counts: int64 (S,): how many each has already, none above `window.high` by more than the
            skew allows.
        loads: int64 (S,): lag that each carries already.
        window: bounds of the counts; n suffices for its lower one.

    Returns:
        int64 (n,): columns of the takers.
    """
    order = np.argsort(-lags, kind="stable")
    dealer = _Dealer(counts.tolist(), loads.tolist(), window)
    columns = np.empty_like(lags)
    place = 0
    for lag in lags[order].tolist():
        if lag == 0 or lags.size - place <= dealer.wanting:
            break
        columns[order[place]] = dealer.take(lag)
        place += 1
    rest = order[place:]
    now = np.array(dealer.counts, dtype=np.int64)
    carried = np.array(dealer.loads, dtype=np.int64)
    top = max(int(now.max(initial=0)), window.low) + rest.size
    columns[rest] = deal_by_count(lags[rest], top - now, carried)
    return columns


class _Dealer:
    """Members that may take one more, in order of (lag, count, number)."""

    def __init__(self, counts: list[int], loads: list[int], window: Window) -> None:
        self.counts = counts
        self.loads = loads
        self.wanting = sum(max(window.low - count, 0) for count in counts)
        self._window = window
        self._having: dict[int, int] = defaultdict(int)
        for count in counts:
            self._having[count] += 1
        self._fewest = min(counts)
        self._parked: dict[int, list[int]] = defaultdict(list)
        self._line: list[tuple[int, int, int]] = []
        for member in range(len(counts)):
            self._queue(member)

    def take(self, lag: int) -> int:
        """Say who takes a partition of this lag."""
        _, count, member = heapq.heappop(self._line)
        self.wanting -= count < self._window.low
        self.counts[member] = count + 1
        self.loads[member] += lag
        self._having[count] -= 1
        self._having[count + 1] += 1
        bound = self._bound()
        while not self._having[self._fewest]:
            self._fewest += 1
        for freed in range(bound, self._bound()):
            for other in self._parked.pop(freed, ()):
                self._queue(other)
        self._queue(member)
        return member

    def _bound(self) -> int:
        return max(self._window.high, self._fewest + self._window.skew)

    def _queue(self, member: int) -> None:
        count = self.counts[member]
        if count < self._bound():
            heapq.heappush(self._line, (self.loads[member], count, member))
        else:
            self._parked[count].append(member)
