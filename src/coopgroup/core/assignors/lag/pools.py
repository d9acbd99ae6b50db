"""Lag-aware placement of a group whose members subscribe to different topics.

Module `quotas` first settles the counts for all pools together. They do not change afterwards.
Inside each pool, free partitions are dealt by lag to members below their quota, and partitions are
exchanged one for one. The lag of a member is its lag from all pools.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import numpy as np

from coopgroup.core.assignors.lag.dealing import deal_by_count
from coopgroup.core.assignors.lag.sticky import given_up
from coopgroup.core.assignors.levelling.pools import Levelling
from coopgroup.core.assignors.levelling.steps import loads_of
from coopgroup.core.assignors.quotas import Share, settle_quotas, share_of
from coopgroup.core.model import NOBODY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coopgroup.core.assignors.move_budget import MoveBudget
    from coopgroup.core.assignors.pools import Pool
    from coopgroup.core.model.group import GroupSnapshot
    from coopgroup.core.model.resource_set import Int32Array, Int64Array

__all__ = ["place_pools"]


def place_pools(
    group: GroupSnapshot, pools: Sequence[Pool], lags: Int64Array, budget: MoveBudget | None
) -> Int32Array:
    """Place all pools of a group with R resources.

    Args:
        group: the group.
        pools: all pools, sorted by number of subscribers, fewest first.
        lags: int64 (R,), at least 0, with a sum that does not overflow.
        budget: what moves must gain; its budget is reduced. None ignores the present owners.

    Returns:
        int32 (R,): number of the member that should own each resource, or `NOBODY`.
    """
    nobody = np.full_like(group.owner, NOBODY)
    fresh = _placed_by_quota(attrs.evolve(group, owner=nobody), pools, lags)
    if budget is None:
        return fresh
    target = _placed_by_quota(group, pools, lags)
    member_count = len(group.members)
    levelling = Levelling(
        pools=pools,
        weights=lags,
        speeds=np.ones(member_count),
        owner=group.owner,
        goal=loads_of(lags, fresh, member_count).astype(np.float64),
        entitled=None,
    )
    levelling.run(target, budget)
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
