"""The best possible quotas for groups with different subscriptions.

Best means: the smallest sum of squares of the counts, then the fewest moves, then the fewest
resources on a member in an unsuited rack. Pouring pool by pool (module `quotas`) comes close. It
misses chains, where a member above its share gives to a second member, which gives something else
to a third.

Theory of operation: quotas are a flow from pools to members. A flow is cheapest when no cycle of
shifts reduces its cost. Shifting a unit out of a member's quota costs a move if the member owns the
unit; shifting one in saves a move if the member owns more than its quota. A move costs more than
all unsuited racks together. Raising a member's count from n to n + 1 costs 2n + 1 times more than
all moves together. Bellman-Ford, in arrays, relaxes the distances from all nodes together. A cycle
among the predecessors has negative cost and is cancelled. Each cancelled cycle reduces the cost, so
the search ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from attrs import define, field

if TYPE_CHECKING:
    from coopgroup.core.model.resource_set import BoolArray, Int64Array

ARCS_MAX: Final = 20_000
"""Up to this many pairs of a pool and a subscriber, the quotas are optimal."""

_CYCLES_MAX: Final = 2_000
_CHECK_EVERY: Final = 4


@define(kw_only=True, eq=False)
class QuotaFlow:
    """Quotas of all E pairs of a pool and one of its subscribers.

    Attributes:
        pools: int64 (E,): number of each pair's pool, ascending.
        members: int64 (E,): number of each pair's member.
        owned: int64 (E,): how many resources of the pool the member owns.
        quota: int64 (E,): how many it should own; changed by `settle`.
        loads: int64 (M,): sum of each member's quotas; changed by `settle`.
        unsuited: int64 (E,): 1 if the pool does not suit the member's rack, else 0.
    """

    pools: Int64Array
    members: Int64Array
    owned: Int64Array
    quota: Int64Array
    loads: Int64Array
    unsuited: Int64Array
    _by_member: Int64Array = field(init=False)
    _pool_starts: Int64Array = field(init=False)
    _member_starts: Int64Array = field(init=False)
    _pool_sizes: Int64Array = field(init=False)
    _member_sizes: Int64Array = field(init=False)
    _seated: Int64Array = field(init=False)
    _move: int = field(init=False)
    _weight: int = field(init=False)

    def settle(self) -> None:
        """Cancel cycles until no cycle improves the quotas."""
        self._by_member = np.argsort(self.members, kind="stable")
        self._pool_starts = np.flatnonzero(np.diff(self.pools, prepend=-1))
        ordered = self.members[self._by_member]
        self._member_starts = np.flatnonzero(np.diff(ordered, prepend=-1))
        self._pool_sizes, self._member_sizes = (
            np.diff(starts, append=self.pools.size)
            for starts in (self._pool_starts, self._member_starts)
        )
        self._seated = ordered[self._member_starts]  # members with at least one pool
        pairs = 2 * self.pools.size + 1  # longer than any cycle
        self._move, self._weight = pairs, pairs**2
        for _ in range(_CYCLES_MAX):
            cycle = self._cycle()
            if not cycle:
                return
            self._cancel(cycle)

    def _cycle(self) -> list[int]:
        """Find a cycle of negative cost: its nodes, each before the node to which it shifts.

        Nodes are the pools, then the members, then the sum of squares, which gives and takes
        counts.
        """
        pool_count = int(self.pools[-1]) + 1
        size = pool_count + self.loads.size + 1
        distance = np.zeros(size, dtype=np.int64)
        before = np.full(size, -1, dtype=np.int64)
        for turn in range(1, 2 * size + 1):
            if not self._relax(distance, before, pool_count):
                return []
            if turn % _CHECK_EVERY == 0 or turn == 2 * size:
                found = _cycle_among(before)
                if found:
                    return found
        return []

    def _relax(self, distance: Int64Array, before: Int64Array, pool_count: int) -> bool:
        """Shorten distances along all shifts once; return whether any became shorter."""
        to_pool, to_member, sums = (
            distance[:pool_count],
            distance[pool_count:-1],
            distance.size - 1,
        )
        out = np.where(self.quota <= self.owned, self._move, 0) - self.unsuited
        out += to_member[self.members]
        out[self.quota == 0] = np.iinfo(np.int64).max
        best, pair = _least(out, self._pool_starts, self._pool_sizes)
        positions = self.pools[self._pool_starts]
        shorter = _shorten(to_pool, positions, best)
        before[positions[shorter]] = pool_count + self.members[pair[shorter]]
        changed = bool(shorter.any())

        into = np.where(self.quota < self.owned, -self._move, 0) + self.unsuited
        into += to_pool[self.pools]
        best, order = _least(into[self._by_member], self._member_starts, self._member_sizes)
        shorter = _shorten(to_member, self._seated, best)
        pair = self._by_member[order]
        before[pool_count + self._seated[shorter]] = self.pools[pair[shorter]]
        changed |= bool(shorter.any())

        loads = self.loads[self._seated]
        less = np.where(loads > 0, distance[sums] - self._weight * (2 * loads - 1), 0)
        less[loads == 0] = np.iinfo(np.int64).max
        shorter = _shorten(to_member, self._seated, less)
        before[pool_count + self._seated[shorter]] = sums
        changed |= bool(shorter.any())

        more = to_member[self._seated] + self._weight * (2 * loads + 1)
        lightest = int(np.argmin(more))
        if more[lightest] < distance[sums]:
            distance[sums] = more[lightest]
            before[sums] = pool_count + self._seated[lightest]
            changed = True
        return changed

    def _cancel(self, cycle: list[int]) -> None:
        pool_count = int(self.pools[-1]) + 1
        sums = pool_count + self.loads.size
        for source, target in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
            if source == sums:
                self.loads[target - pool_count] -= 1
            elif target == sums:
                self.loads[source - pool_count] += 1
            elif target < pool_count:
                self.quota[self._pair(target, source - pool_count)] -= 1
            else:
                self.quota[self._pair(source, target - pool_count)] += 1

    def _pair(self, pool: int, member: int) -> int:
        low = int(np.searchsorted(self.pools, pool))
        high = int(np.searchsorted(self.pools, pool, side="right"))
        return low + int(np.searchsorted(self.members[low:high], member))


def _least(
    costs: Int64Array, starts: Int64Array, sizes: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """Return the least cost of each segment and its first position."""
    least = np.minimum.reduceat(costs, starts)
    positions = (costs == least.repeat(sizes)).nonzero()[0]
    return least, positions[positions.searchsorted(starts)]


def _shorten(distance: Int64Array, nodes: Int64Array, costs: Int64Array) -> BoolArray:
    shorter: BoolArray = costs < distance[nodes]
    distance[nodes[shorter]] = costs[shorter]
    return shorter


def _cycle_among(before: Int64Array) -> list[int]:
    """Return a cycle of predecessors in the order of shifts, empty without a cycle."""
    nowhere = before.size
    step = np.append(np.where(before < 0, nowhere, before), nowhere)
    for _ in range(before.size.bit_length()):
        step = step[step]
    on_cycles = step[step != nowhere]
    if not on_cycles.size:
        return []
    first = int(on_cycles[0])
    cycle = [first]
    node = int(before[first])
    while node != first:
        cycle.append(node)
        node = int(before[node])
    return cycle[::-1]
