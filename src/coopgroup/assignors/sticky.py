"""`StickyAssignor`: balance first, fewest moves second.

With uniform subscriptions (one pool) both goals are met exactly: counts differ by at most one, and
of all such targets this is one with the fewest moves: member i keeps min(owned, quota), and the
larger quotas go to members that own more than the smaller quota. With mixed subscriptions no
member can hand a resource to a subscriber that has two fewer, and moves are few.

Theory of operation, in two steps that know nothing of each other:

1. How many. Every pool has a quota for each of its subscribers. Pools fill their free resources
   in, then take turns at levelling: a pool pours all that it has over its subscribers, like water
   over an uneven ground made of what they hold from other pools. Each turn that changes anything
   lowers the sum of squares of the counts or, at the same sum, raises how many resources stay, so
   the turns end. A pool whose members' loads have not moved since its last turn skips this one.
2. Which. A member above its quota gives up resources spread evenly over what it owns; free ones
   are dealt in order, members taking turns in proportion to what they lack. So the partitions of
   one topic spread over the members (uneven topics: librdkafka#4044).

Nothing changes when nothing has to: a balanced group keeps everything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
from attrs import define, frozen

from coopgroup.assignors.pools import Pool, subscriber_pools
from coopgroup.model import NOBODY

if TYPE_CHECKING:
    from coopgroup.model.group import GroupSnapshot
    from coopgroup.model.resource_set import BoolArray, Int32Array, Int64Array

__all__ = ["CooperativeStickyAssignor", "StickyAssignor"]

_SWEEPS_MAX: Final = 1_000
_FRACTION_BITS_MAX: Final = 62


@frozen(kw_only=True)
class StickyAssignor:
    """Counts as even as possible, then as few moves as possible."""

    name: ClassVar[str] = "sticky"
    needs_lags: ClassVar[bool] = False

    def assign(self, group: GroupSnapshot, lags: Int64Array) -> Int32Array:  # noqa: ARG002 - the Protocol's
        """Place every resource that is assignable and that somebody subscribes to.

        Args:
            group: the group with R resources; `group.owner` is what stays where it can.
            lags: not looked at.

        Returns:
            int32 (R,): number of the member that should hold each resource, or NOBODY.
        """
        return _sticky_target(group)


@frozen(kw_only=True)
class CooperativeStickyAssignor:
    """`StickyAssignor` under the name by which Kafka's clients know its cooperative use."""

    name: ClassVar[str] = "cooperative-sticky"
    needs_lags: ClassVar[bool] = False

    def assign(self, group: GroupSnapshot, lags: Int64Array) -> Int32Array:  # noqa: ARG002 - the Protocol's
        """Place resources as `StickyAssignor.assign` does."""
        return _sticky_target(group)


def _sticky_target(group: GroupSnapshot) -> Int32Array:
    target = np.full(len(group.resources), NOBODY, dtype=np.int32)
    shares = [_share(group, pool) for pool in subscriber_pools(group)]
    _settle_quotas(shares, len(group.members))
    for share in shares:
        target[share.pool.resources] = share.pool.subscribers[_dealt(share)]
    return target


@define(kw_only=True, eq=False)
class _Share:
    """One pool with S subscribers and P resources, on its way to quotas.

    Attributes:
        pool: who and what.
        owner: int32 (P,): column (0 to S - 1) of each resource's owner, NOBODY where there is
            none that subscribes.
        owned: int64 (S,): how many each subscriber owns.
        quota: int64 (S,): how many each subscriber shall hold; sums up to P once filled.
        levelled_at: turn in which the pool was last level; -1 for never.
    """

    pool: Pool
    owner: Int32Array
    owned: Int64Array
    quota: Int64Array
    levelled_at: int = -1


def _share(group: GroupSnapshot, pool: Pool) -> _Share:
    column_of = np.full(len(group.members) + 1, NOBODY, dtype=np.int32)  # the last one: NOBODY's
    column_of[pool.subscribers] = np.arange(pool.subscribers.size, dtype=np.int32)
    owner = column_of[group.owner[pool.resources]]
    owned = np.bincount(owner + 1, minlength=pool.subscribers.size + 1)[1:]
    return _Share(pool=pool, owner=owner, owned=owned, quota=owned.copy())


def _settle_quotas(shares: list[_Share], member_count: int) -> None:
    """Fill what is free, then level until no pool gains from a change."""
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
    moved_at = np.zeros(member_count, dtype=np.int64)
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


def _level(share: _Share, loads: Int64Array) -> BoolArray:
    """Let one pool pour all that it has anew.

    Returns:
        bool (S,): whose quota changed.
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
    """Pour an amount over an uneven ground, so that the lowest rise first.

    Args:
        ground: int64 (S,): what each already has.
        amount: how many units to pour.
        preferences: two int64 (S,): the units that do not suffice for a whole level go to those
            that have more in the first of these than they got; then by the second; then by number.

    Returns:
        int64 (S,): how many units each gets.
    """
    ascending = np.sort(ground)
    filled = np.cumsum(ascending)
    cost = ascending * np.arange(1, ground.size + 1) - filled  # of raising the first k to the k-th
    wet = int(np.searchsorted(cost, amount, side="right"))
    level, rest = divmod(amount + int(filled[wet - 1]), wet)
    quota = np.maximum(level - ground, 0)
    first, second = (more <= quota for more in preferences)
    candidates = np.flatnonzero(ground <= level)
    order = np.lexsort((candidates, second[candidates], first[candidates]))
    quota[candidates[order[:rest]]] += 1
    return quota


def _dealt(share: _Share) -> Int32Array:
    """Say who gets which resource: int32 (P,), columns."""
    columns = share.owner.copy()
    surplus = share.owned > share.quota
    if surplus.any():
        giving = np.flatnonzero(surplus[columns] & (columns != NOBODY))
        columns[giving[_given_up(columns[giving], share)]] = NOBODY
    free = np.flatnonzero(columns == NOBODY)
    if free.size:
        columns[free] = _turns(share.quota - np.minimum(share.owned, share.quota))
    return columns


def _given_up(owner: Int32Array, share: _Share) -> BoolArray:
    """Which resources of members above their quota go: spread evenly, the first one stays.

    Args:
        owner: int32 (G,): column of each resource's owner, resources ascending.
        share: quotas and counts of the owners.

    Returns:
        bool (G,).
    """
    order = np.argsort(owner, kind="stable")
    columns = owner[order]
    quota, owned = share.quota[columns], share.owned[columns]
    edges = np.flatnonzero(np.diff(columns, prepend=NOBODY))
    ranks = np.arange(columns.size) - np.repeat(edges, np.diff(edges, append=columns.size))
    gone = np.empty(columns.size, dtype=np.bool_)
    gone[order] = (-ranks * quota) % owned >= quota
    return gone


def _turns(missing: Int64Array) -> Int64Array:
    """Seat members in the order in which they take what is free.

    Args:
        missing: int64 (S,): how many each takes.

    Returns:
        int64 (sum of `missing`,): columns; the k-th seat of a member that takes n stands
        (2k + 1) / 2n along the way, so that members take turns in proportion.
    """
    columns = np.repeat(np.arange(missing.size), missing)
    seats = np.arange(columns.size) - np.repeat(np.cumsum(missing) - missing, missing)
    column_bits = (missing.size - 1).bit_length()
    width = 2 * int(missing.max())
    scale = _FRACTION_BITS_MAX - max(column_bits, width.bit_length())
    along = ((2 * seats + 1) << scale) // np.repeat(2 * missing, missing)
    keys = (along << column_bits) + columns
    keys.sort()
    turns: Int64Array = keys & ((1 << column_bits) - 1)
    return turns
