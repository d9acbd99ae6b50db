"""Quotas: how many resources of each pool each of its subscribers should own.

Pools first add their free resources, then take turns at levelling. In its turn a pool pours all its
resources over its subscribers, like water over uneven ground: the ground is what they own from
other pools. Each turn lowers the sum of squares of the counts or, at the same sum, raises how many
resources stay. So the turns end. A pool skips its turn if the loads of its members have not changed
since its last one. Chains over several pools (module `quota_flow`) find what single pools miss,
unless the group has very many pairs of pool and subscriber.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from attrs import define

from coopgroup.core.assignors.pools import owner_columns
from coopgroup.core.assignors.quota_flow import ARCS_MAX, QuotaFlow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coopgroup.core.assignors.pools import Pool
    from coopgroup.core.model.group import GroupSnapshot
    from coopgroup.core.model.resource_set import BoolArray, Int32Array, Int64Array

_SWEEPS_MAX: Final = 1_000


@define(kw_only=True, eq=False)
class Share:
    """One pool with S subscribers and P resources, and its quotas so far.

    Attributes:
        pool: the pool.
        owner: int32 (P,): column (0 to S - 1) of each resource's owner, `NOBODY` without a
            subscribing owner.
        owned: int64 (S,): how many resources each subscriber owns.
        quota: int64 (S,): how many each subscriber should own; the sum is P after filling.
        levelled_at: turn that last left the pool level; -1 before the first.
    """

    pool: Pool
    owner: Int32Array
    owned: Int64Array
    quota: Int64Array
    levelled_at: int = -1


def share_of(group: GroupSnapshot, pool: Pool) -> Share:
    """Count what a pool's subscribers own; quotas start as these counts."""
    owner = owner_columns(group, pool)
    owned = np.bincount(owner + 1, minlength=pool.subscribers.size + 1)[1:]
    return Share(pool=pool, owner=owner, owned=owned, quota=owned.copy())


def settle_quotas(shares: Sequence[Share], member_count: int) -> None:
    """Add free resources, then level until no pool gains from a change."""
    loads = np.zeros(member_count, dtype=np.int64)
    for share in shares:
        loads[share.pool.subscribers] += share.quota
    for share in shares:
        members = share.pool.subscribers
        free = share.pool.resources.size - int(share.quota.sum())
        nothing = np.zeros_like(share.quota)
        added = _poured(loads[members], free, (nothing, nothing))
        share.quota += added
        loads[members] += added
    _sweep(shares, loads)
    of_how_many = sum(np.bincount(one.pool.subscribers, minlength=member_count) for one in shares)
    if np.max(of_how_many, initial=0) > 1:
        perfect_quotas(shares, loads, [np.zeros_like(share.quota) for share in shares])


def _sweep(shares: Sequence[Share], loads: Int64Array) -> None:
    """Let pools take turns until no pool gains from another turn."""
    moved_at = np.zeros(loads.size, dtype=np.int64)
    turn = 0
    for _ in range(_SWEEPS_MAX):
        before = turn
        for share in shares:
            members = share.pool.subscribers
            if moved_at[members].max() > share.levelled_at:
                turn += 1
                moved_at[members[_level(share, loads)]] = turn
                share.levelled_at = turn
        if turn == before:
            return


def perfect_quotas(
    shares: Sequence[Share], loads: Int64Array, unsuited: Sequence[Int64Array]
) -> bool:
    """Find the best possible quotas, unless there are too many pairs; return whether any changed.

    Args:
        shares: pools with good quotas.
        loads: int64 (M,): sum of each member's quotas; updated.
        unsuited: for each share int64 (S,), 1 if it does not suit the subscriber's rack, else 0.
    """
    sizes = [share.pool.subscribers.size for share in shares]
    if sum(sizes) > ARCS_MAX:
        return False
    quota = np.concatenate([share.quota for share in shares])
    flow = QuotaFlow(
        pools=np.repeat(np.arange(len(shares)), sizes),
        members=np.concatenate([share.pool.subscribers for share in shares]).astype(np.int64),
        owned=np.concatenate([share.owned for share in shares]),
        quota=quota.copy(),
        loads=loads,
        unsuited=np.concatenate(unsuited),
    )
    flow.settle()
    for share, settled in zip(shares, np.split(flow.quota, np.cumsum(sizes)[:-1]), strict=True):
        share.quota = settled
    return not np.array_equal(flow.quota, quota)


def _level(share: Share, loads: Int64Array) -> BoolArray:
    """Let one pool pour all its resources again.

    Returns:
        bool (S,): subscribers whose quota changed.
    """
    members = share.pool.subscribers
    ground = loads[members] - share.quota
    quota = _poured(ground, share.pool.resources.size, (share.owned, share.quota))
    changed: BoolArray = quota != share.quota
    share.quota = quota
    loads[members] = ground + quota
    return changed


def _poured(
    ground: Int64Array, amount: int, preferences: tuple[Int64Array, Int64Array]
) -> Int64Array:
    """Pour units over uneven ground; the lowest of S columns rise first.

    If the last units do not fill a whole level, columns go first where the first of `preferences`
    exceeds what they got, then by the second, then by number.
    """
    ascending = np.sort(ground)
    filled = np.cumsum(ascending)
    # units that raise the first k columns to the k-th
    cost = ascending * np.arange(1, ground.size + 1) - filled
    wet = int(np.searchsorted(cost, amount, side="right"))
    level, rest = divmod(amount + int(filled[wet - 1]), wet)
    quota = np.maximum(level - ground, 0)
    first, second = (more <= quota for more in preferences)
    candidates = np.flatnonzero(ground <= level)
    order = np.lexsort((candidates, second[candidates], first[candidates]))
    quota[candidates[order[:rest]]] += 1
    return quota
