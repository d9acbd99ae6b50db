"""Choose the resources that members give up and take, so that racks match replicas (KIP-881).

Balance and few moves come first, so the number of resources that each member gives up and takes is
fixed here. A member without a rack suits every partition. A partition with unknown racks suits
every member.

Theory of operation: members in one rack form a side, partitions with replicas in the same racks
form a sort. A flow in the table of sorts and sides says how many resources of each sort go to each
side. The largest flow has the fewest mismatches. Inside a side members take turns. A member's
choice decides what other members can take, so the result is only nearly optimal. Module
`quota_flow` then makes the quotas of every sort optimal, unless there are very many.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

import numpy as np
from attrs import frozen

from coopgroup.core.assignors.pools import Pool

if TYPE_CHECKING:
    from coopgroup.core.model.group import GroupSnapshot
    from coopgroup.core.model.resource_set import BoolArray, Int64Array

_WORD_BITS: Final = 62
_TABLE_MAX: Final = 2**16


@frozen(kw_only=True, eq=False)
class GroupRacks:
    """Racks of a group with M members and R resources.

    Attributes:
        racks: names, ascending.
        rack_of: rack of each member, "" without one.
        masks: int64 (R, words): bit n of word w is set for rack 62 w + n.
    """

    racks: tuple[str, ...]
    rack_of: tuple[str, ...]
    masks: Int64Array

    @classmethod
    def of(cls, group: GroupSnapshot) -> GroupRacks | None:
        """Read a group's racks; return None if the racks of members or replicas are unknown."""
        table = group.replica_racks
        rack_of = tuple(member.rack or "" for member in group.members)
        if table is None or not any(rack_of) or not table.racks:
            return None
        words, bits = np.divmod(np.arange(len(table.racks)), _WORD_BITS)
        masks = np.empty((len(group.resources), int(words[-1]) + 1), dtype=np.int64)
        summed = np.zeros(table.numbers.size + 1, dtype=np.int64)
        for word in range(masks.shape[1]):
            # The difference of the sums before and after a resource is exact, even if the sums
            # exceed 64 bits.
            np.where(words == word, 1 << bits, 0)[table.numbers].cumsum(out=summed[1:])
            np.subtract(summed[table.starts[1:]], summed[table.starts[:-1]], out=masks[:, word])
        return cls(racks=table.racks, rack_of=rack_of, masks=masks)

    def of_pool(self, pool: Pool) -> PoolRacks | None:
        """Return the racks of one pool, or None if every resource suits every member."""
        sides, side_of = np.unique(
            [self.rack_of[member] for member in pool.subscribers.tolist()], return_inverse=True
        )
        masks, sort_of = _numbered(self.masks[pool.resources])
        suits = np.array(
            [[self._suits(mask, side) for side in sides.tolist()] for mask in masks.tolist()]
        )
        if suits.all():
            return None
        return PoolRacks(side_of=side_of, sort_of=sort_of, suits=suits)

    def _suits(self, mask: list[int], side: str) -> bool:
        if not side or not any(mask):
            return True
        if side not in self.racks:
            return False
        word, bit = divmod(self.racks.index(side), _WORD_BITS)
        return bool(mask[word] >> bit & 1)


def _numbered(masks: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return the distinct rows of P masks, and the row number of each mask: int64 (P,)."""
    if masks.shape[1] > 1 or int(masks.max()) >= _TABLE_MAX:
        rows, numbers = np.unique(masks, axis=0, return_inverse=True)
        return rows, numbers.reshape(-1)
    is_there = np.zeros(_TABLE_MAX, dtype=np.bool_)  # a table is much faster than a sort
    is_there[masks[:, 0]] = True
    return np.flatnonzero(is_there)[:, None], (np.cumsum(is_there) - 1)[masks[:, 0]]


@frozen(kw_only=True, eq=False)
class PoolRacks:
    """Racks of a pool with S subscribers and P resources.

    Attributes:
        side_of: int64 (S,): side of each subscriber.
        sort_of: int64 (P,): sort of each resource.
        suits: bool (sorts, sides).
    """

    side_of: Int64Array
    sort_of: Int64Array
    suits: BoolArray

    def sorts(self, pool: Pool) -> tuple[tuple[Pool, Int64Array], ...]:
        """Cut the pool by sorts, each with int64 (S,): 1 if it does not suit the subscriber."""
        return tuple(
            (
                Pool(subscribers=pool.subscribers, resources=pool.resources[self.sort_of == sort]),
                (~suits[self.side_of]).astype(np.int64),
            )
            for sort, suits in enumerate(self.suits)
        )

    def giving_order(
        self, resources: Int64Array, columns: Int64Array, room: Int64Array
    ) -> Int64Array:
        """Return the order in which owners give up resources: int64, least first.

        Resources in an unsuited rack go first, then resources that suit most of the takers.

        Args:
            resources: int64 (G,): positions in the pool.
            columns: int64 (G,): owner of each resource.
            room: int64 (S,): how many resources each subscriber takes.
        """
        sorts, sides = self.sort_of[resources], self.side_of[columns]
        wanted = np.bincount(self.side_of, weights=room, minlength=self.suits.shape[1])
        welcome = (self.suits @ wanted).astype(np.int64)
        kept = self.suits[sorts, sides] * (int(room.sum()) + 1)
        order: Int64Array = kept - welcome[sorts]
        return order

    def sides_taking(self, resources: Int64Array, room: Int64Array) -> Int64Array:
        """Return the side that takes each free resource, with the most matches: int64 (F,).

        Args:
            resources: int64 (F,): positions in the pool.
            room: int64 (S,): how many resources each subscriber takes; F in total.
        """
        sort_count, side_count = self.suits.shape
        sorts = self.sort_of[resources]
        supply = np.bincount(sorts, minlength=sort_count)
        capacity = np.zeros(side_count, dtype=np.int64)
        np.add.at(capacity, self.side_of, room)
        flow = _largest_flow(self.suits, supply, capacity)
        _fill(flow, supply, capacity)
        taking = np.empty(resources.size, dtype=np.int64)
        for sort in np.flatnonzero(supply).tolist():
            shares = flow[sort]
            along = np.concatenate([(2 * np.arange(n) + 1) / (2 * max(n, 1)) for n in shares])
            sides = np.repeat(np.arange(side_count), shares)
            taking[sorts == sort] = sides[np.lexsort((sides, along))]
        return taking


def _largest_flow(suits: BoolArray, supply: Int64Array, capacity: Int64Array) -> Int64Array:
    """Return how many resources of each sort go to each suitable side: int64 (sorts, sides)."""
    flow = np.zeros(suits.shape, dtype=np.int64)
    while True:
        path = _path(suits, flow, supply, capacity)
        if not path:
            return flow
        amount = min(
            int(supply[path[0]] - flow[path[0]].sum()),
            int(capacity[path[-1]] - flow[:, path[-1]].sum()),
            *(int(flow[sort, side]) for side, sort in zip(path[1::2], path[2::2], strict=False)),
        )
        for sort, side in zip(path[::2], path[1::2], strict=True):
            flow[sort, side] += amount
        for side, sort in zip(path[1::2], path[2::2], strict=False):
            flow[sort, side] -= amount


def _path(
    suits: BoolArray, flow: Int64Array, supply: Int64Array, capacity: Int64Array
) -> list[int]:
    """Return a shortest path from a remaining sort to a side with room.

    Sorts and sides alternate: sort, side, sort, …, side.
    """
    left = np.flatnonzero(supply > flow.sum(axis=1)).tolist()
    open_side = capacity > flow.sum(axis=0)
    came_from: dict[int, int] = {}  # side: the sort from which it was reached
    giver: dict[int, int] = dict.fromkeys(left, -1)  # sort: the side that would give it back
    queue = deque(left)
    while queue:
        sort = queue.popleft()
        for side in np.flatnonzero(suits[sort]).tolist():
            if side in came_from:
                continue
            came_from[side] = sort
            if open_side[side]:
                return _traced(side, came_from, giver)
            for other in np.flatnonzero(flow[:, side]).tolist():
                if other not in giver:
                    giver[other] = side
                    queue.append(other)
    return []


def _traced(side: int, came_from: dict[int, int], giver: dict[int, int]) -> list[int]:
    path = [side]
    while True:
        sort = came_from[path[-1]]
        path.append(sort)
        if giver[sort] == -1:
            return path[::-1]
        path.append(giver[sort])


def _fill(flow: Int64Array, supply: Int64Array, capacity: Int64Array) -> None:
    """Send the remaining resources to any side with room."""
    for sort in np.flatnonzero(supply > flow.sum(axis=1)).tolist():
        left = int(supply[sort] - flow[sort].sum())
        for side in np.flatnonzero(capacity > flow.sum(axis=0)).tolist():
            amount = min(left, int(capacity[side] - flow[:, side].sum()))
            flow[sort, side] += amount
            left -= amount
