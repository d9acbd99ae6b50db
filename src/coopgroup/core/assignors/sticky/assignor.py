"""`StickyAssignor`: balance first, fewest moves second, racks third.

With equal subscriptions (one pool) counts differ by at most one, and no such target needs fewer
moves: member i keeps min(owned, quota), and the larger quotas go to members that own more than the
smaller quota. With different subscriptions the sum of squares of the counts is minimal: a member
cannot shed to a smaller subscriber, not even through a chain of other members. No such target needs
fewer moves. (With more than `quota_flow.ARCS_MAX` pairs of pool and subscriber the guarantee is
weaker: a member cannot shed to a subscriber that has two fewer, and moves are few.)

Theory of operation, in two independent steps:

1. How many: every pool has a quota for each of its subscribers (module `quotas`).
2. Which ones: a member above its quota gives up resources spread evenly over what it owns. Free
   resources are dealt in order; members take turns in proportion to their missing resources. So the
   partitions of one topic spread over the members (uneven topics: librdkafka#4044). If racks are
   known, resources outside their owner's rack are given up first, and free resources go to suitable
   racks (module `racks`).

A balanced group keeps everything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from attrs import frozen

from coopgroup.core.assignors.ordering import ranks_in_runs, spread_over_runs
from coopgroup.core.assignors.pools import subscriber_pools
from coopgroup.core.assignors.quotas import Share, perfect_quotas, settle_quotas, share_of
from coopgroup.core.assignors.sticky.racks import GroupRacks
from coopgroup.core.model import NOBODY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coopgroup.core.assignors.sticky.racks import PoolRacks
    from coopgroup.core.model.group import GroupSnapshot
    from coopgroup.core.model.resource_set import BoolArray, Int32Array, Int64Array

_FRACTION_BITS_MAX: Final = 62


@frozen(kw_only=True)
class StickyAssignor:
    """Counts as even as possible, then as few moves as possible."""

    name = "sticky"
    needs_lags = False

    def assign(self, group: GroupSnapshot, lags: Int64Array) -> Int32Array:  # noqa: ARG002 - the Protocol's
        """Place every assignable resource; resources stay with `group.owner` where possible."""
        return _sticky_target(group)


@frozen(kw_only=True)
class CooperativeStickyAssignor:
    """`StickyAssignor` under the name that Kafka's clients use for its cooperative variant."""

    name = "cooperative-sticky"
    needs_lags = False

    def assign(self, group: GroupSnapshot, lags: Int64Array) -> Int32Array:  # noqa: ARG002 - the Protocol's
        """Place resources as `StickyAssignor.assign` does."""
        return _sticky_target(group)


def _sticky_target(group: GroupSnapshot) -> Int32Array:
    target = np.full(len(group.resources), NOBODY, dtype=np.int32)
    shares = [share_of(group, pool) for pool in subscriber_pools(group)]
    settle_quotas(shares, len(group.members))
    group_racks = GroupRacks.of(group)
    racks = [None if group_racks is None else group_racks.of_pool(one.pool) for one in shares]
    for share, some in zip(shares, racks, strict=True):
        target[share.pool.resources] = share.pool.subscribers[_dealt(share, some)]
    if any(some is not None for some in racks):
        _better_suited(group, shares, racks, target)
    return target


def _better_suited(
    group: GroupSnapshot,
    shares: Sequence[Share],
    racks: Sequence[PoolRacks | None],
    target: Int32Array,
) -> None:
    """Improve racks as far as balance and few moves allow; changes `target`."""
    sorts: list[Share] = []
    unsuited: list[Int64Array] = []
    for share, some in zip(shares, racks, strict=True):
        whole = (share.pool, np.zeros_like(share.quota))
        for pool, unfit in (whole,) if some is None else some.sorts(share.pool):
            sort = share_of(group, pool)
            held = target[pool.resources]
            sort.quota = np.bincount(held, minlength=len(group.members))[pool.subscribers]
            sorts.append(sort)
            unsuited.append(unfit)
    loads = np.bincount(target[target != NOBODY], minlength=len(group.members))
    if perfect_quotas(sorts, loads, unsuited):
        for sort in sorts:
            target[sort.pool.resources] = sort.pool.subscribers[_dealt(sort, None)]


def _dealt(share: Share, racks: PoolRacks | None) -> Int32Array:
    """Decide which member gets each resource: int32 (P,), columns."""
    columns = share.owner.copy()
    room = share.quota - np.minimum(share.owned, share.quota)
    surplus = share.owned > share.quota
    if surplus.any():
        giving = np.flatnonzero(surplus[columns] & (columns != NOBODY))
        owners = columns[giving]
        if racks is None:
            gone = _given_up(owners, share)
        else:
            gladly = racks.giving_order(giving, owners.astype(np.int64), room)
            gone = _given_up_gladly(owners, gladly, share)
        columns[giving[gone]] = NOBODY
    is_free = columns == NOBODY
    if racks is None and room.any():
        columns[is_free] = _turns(room)
    elif racks is not None and is_free.any():
        free = np.flatnonzero(is_free)
        sides = racks.sides_taking(free, room)
        for side in np.unique(sides):
            columns[free[sides == side]] = _turns(np.where(racks.side_of == side, room, 0))
    return columns


def _given_up_gladly(owner: Int32Array, gladly: Int64Array, share: Share) -> BoolArray:
    """Choose the resources that members above their quota give up: bool (G,).

    The resource with the least `gladly` goes first.
    """
    order = np.lexsort((gladly, owner))
    columns = owner[order]
    gone = np.empty(columns.size, dtype=np.bool_)
    gone[order] = ranks_in_runs(columns) < (share.owned - share.quota)[columns]
    return gone


def _given_up(owner: Int32Array, share: Share) -> BoolArray:
    """Choose the resources that members above their quota give up: bool (G,).

    They are spread evenly, and never the first.
    """
    order = np.argsort(owner, kind="stable")
    gone = np.empty(order.size, dtype=np.bool_)
    gone[order] = spread_over_runs(owner[order], share.quota, share.owned)
    return gone


def _turns(missing: Int64Array) -> Int64Array:
    """Return the order of the members that take the free resources, as columns.

    `missing` is how many resources each of S members takes. The k-th seat of a member that takes n
    is at (2k + 1) / 2n of the sequence, so members take turns in proportion.
    """
    # In place: a million free resources are eight megabytes per array.
    columns = np.arange(missing.size, dtype=np.int32).repeat(missing)
    column_bits = (missing.size - 1).bit_length()
    width = 2 * int(missing.max())
    scale = _FRACTION_BITS_MAX - max(column_bits, width.bit_length())
    keys = np.arange(columns.size)
    keys -= (np.cumsum(missing) - missing).repeat(missing)
    keys *= 2
    keys += 1
    keys <<= scale
    keys //= (2 * missing).repeat(missing)
    keys <<= column_bits
    keys += columns
    keys.sort()
    keys &= (1 << column_bits) - 1
    return keys
