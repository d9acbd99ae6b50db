"""Deal partitions by lag to members that already carry a load.

Partitions are dealt in order of decreasing lag; equal lags in order of their positions.
`deal_by_count` gives each partition to the member with the most room, then with the least lag.
`deal_by_lag` gives it to the member with the least lag whose count allows it.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
from attrs import frozen

if TYPE_CHECKING:
    from coopgroup.core.model.resource_set import Int64Array


@frozen(kw_only=True)
class Window:
    """Bounds of the counts.

    Attributes:
        low: smallest count that a member may end with.
        high: largest count that a member may always have.
        skew: how far counts may differ.
    """

    low: int
    high: int
    skew: int


def deal_by_count(lags: Int64Array, room: Int64Array, loads: Int64Array) -> Int64Array:
    """Deal n partitions to S members, to the member with the most room first.

    Args:
        lags: int64 (n,).
        room: int64 (S,): how many more partitions each member may take; at least n in total.
        loads: int64 (S,): present lag of each member.

    Returns:
        int64 (n,): column of the member that takes each partition.
    """
    order = np.argsort(-lags, kind="stable")
    columns = np.empty_like(lags)
    room, loads = room.copy(), loads.copy()
    position = 0
    while position < lags.size:
        widest = int(room.max())
        takers = np.flatnonzero(room == widest)
        left = lags.size - position
        if takers.size == 1:  # the only taker until its room equals that of the next member
            next_widest = int(room[room < widest].max(initial=0))
            taken = min(widest - next_widest, left)
        else:
            takers = takers[np.argsort(loads[takers], kind="stable")][:left]
            taken = takers.size
        some = order[position : position + taken]
        columns[some] = takers
        np.add.at(loads, columns[some], lags[some])
        room[takers] -= taken // takers.size
        position += taken
    return columns


def deal_by_lag(
    lags: Int64Array, counts: Int64Array, loads: Int64Array, window: Window
) -> Int64Array:
    """Deal n partitions to S members, to the member with the least lag whose count allows it.

    A partition without lag does not change the balance of lags. These partitions are dealt last, by
    count.

    Args:
        lags: int64 (n,), at least 0.
        counts: int64 (S,): present count of each member, above `window.high` at most by what the
            skew allows.
        loads: int64 (S,): present lag of each member.
        window: bounds of the counts; n suffices for its lower bound.

    Returns:
        int64 (n,): column of the member that takes each partition.
    """
    order = np.argsort(-lags, kind="stable")
    dealer = _Dealer(counts.tolist(), loads.tolist(), window)
    columns = np.empty_like(lags)
    position = 0
    for lag in lags[order].tolist():
        if lag == 0 or lags.size - position <= dealer.wanting:
            break
        columns[order[position]] = dealer.take(lag)
        position += 1
    rest = order[position:]
    now = np.array(dealer.counts, dtype=np.int64)
    carried = np.array(dealer.loads, dtype=np.int64)
    top = max(int(now.max(initial=0)), window.low) + rest.size
    columns[rest] = deal_by_count(lags[rest], top - now, carried)
    return columns


class _Dealer:
    """Members that may take another partition, in order of (lag, count, number)."""

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
        """Return the member that takes a partition of this lag."""
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
