"""Lag-aware placement of a group whose members subscribe to different topics.

Module `quotas` first settles the counts for all pools together. They do not change afterwards.
Inside each pool, free partitions are dealt by lag to members below their quota, and partitions are
exchanged one for one. The lag of a member is its lag from all pools.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs
import numpy as np

from coopgroup.assignors.lag_dealing import deal_by_count
from coopgroup.assignors.lag_exchange import Exchange
from coopgroup.assignors.lag_steps import Loads, loads_of
from coopgroup.assignors.lag_sticky import given_up
from coopgroup.assignors.quotas import Share, settle_quotas, share_of
from coopgroup.model import NOBODY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coopgroup.assignors.pools import Pool
    from coopgroup.assignors.thrift import Thrift
    from coopgroup.model.group import GroupSnapshot
    from coopgroup.model.resource_set import Int32Array, Int64Array

__all__ = ["place_pools"]

_SWEEPS_MAX: Final = 20


def place_pools(
    group: GroupSnapshot, pools: Sequence[Pool], lags: Int64Array, thrift: Thrift | None
) -> Int32Array:
    """Place all pools of a group with R resources.

    Args:
        group: the group.
        pools: all pools, sorted by number of subscribers, fewest first.
        lags: int64 (R,), at least 0, with a sum that does not overflow.
        thrift: what moves must gain; its budget is reduced. None ignores the present owners.

    Returns:
        int32 (R,): number of the member that should own each resource, or `NOBODY`.
    """
    nobody = np.full_like(group.owner, NOBODY)
    fresh = _placed_by_quota(attrs.evolve(group, owner=nobody), pools, lags)
    if thrift is None:
        return fresh
    target = _placed_by_quota(group, pools, lags)
    goal = loads_of(lags, fresh, len(group.members))
    for _ in range(_SWEEPS_MAX):
        loads = loads_of(lags, target, len(group.members))
        changes = [_evened_out(group, pool, target, loads, goal, lags, thrift) for pool in pools]
        if not any(changes):
            break
    return target


def _placed_by_quota(group: GroupSnapshot, pools: Sequence[Pool], lags: Int64Array) -> Int32Array:
    shares = [share_of(group, pool) for pool in pools]
    settle_quotas(shares, len(group.members))
    target = np.full(len(group.resources), NOBODY, dtype=np.int32)
    for share in shares:
        kept = given_up(lags[share.pool.resources], share.owner, share.quota)
        target[share.pool.resources] = _members(share, kept)
    loads = loads_of(lags, target, len(group.members))
    for share in shares:
        pool = share.pool
        free = pool.resources[target[pool.resources] == NOBODY]
        if free.size:
            room = share.quota - np.minimum(share.owned, share.quota)
            taken = deal_by_count(lags[free], room, loads[pool.subscribers])
            target[free] = pool.subscribers[taken]
            np.add.at(loads, target[free], lags[free])
    return target


def _members(share: Share, columns: Int64Array) -> Int32Array:
    # the last entry is `NOBODY`
    return np.append(share.pool.subscribers, np.int32(NOBODY))[columns]


def _evened_out(
    group: GroupSnapshot,
    pool: Pool,
    target: Int32Array,
    loads: Int64Array,
    goal: Int64Array,
    lags: Int64Array,
    thrift: Thrift,
) -> bool:
    """Exchange partitions of one pool; changes `target` and `loads`."""
    if pool.subscribers.size == 1:
        return False
    share = share_of(group, pool)
    column_of = np.zeros(len(group.members), dtype=np.int64)
    column_of[pool.subscribers] = np.arange(pool.subscribers.size)
    now = Loads(
        weights=lags[pool.resources],
        owner=share.owner,
        holder=column_of[target[pool.resources]],
        loads=loads[pool.subscribers],
        speeds=np.ones(pool.subscribers.size),
        skew=0,
        least=np.zeros(pool.subscribers.size, dtype=np.int64),
        gain_min=thrift.gain_min,
    )
    goals = np.sort(goal[pool.subscribers])[::-1].astype(np.float64)
    changed = Exchange(now=now, goal=goals, thrift=thrift).run()
    target[pool.resources] = pool.subscribers[now.holder]
    loads[pool.subscribers] = now.loads
    return changed
