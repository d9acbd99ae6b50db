"""`StickyAssignor`: balance first, fewest moves second.

With uniform subscriptions (one pool) both goals are met exactly: counts differ by at most one, and
of all such targets this is one with the fewest moves: member i keeps min(owned, quota), and the
larger quotas go to members that own more than the smaller quota. With mixed subscriptions no
member can hand a resource to a subscriber that has two fewer, and moves are few.

Theory of operation, in two steps that know nothing of each other:

1. How many. Every pool has a quota for each of its subscribers (module `quotas`).
2. Which. A member above its quota gives up resources spread evenly over what it owns; free ones
   are dealt in order, members taking turns in proportion to what they lack. So the partitions of
   one topic spread over the members (uneven topics: librdkafka#4044).

Nothing changes when nothing has to: a balanced group keeps everything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
from attrs import frozen

from coopgroup.assignors.pools import subscriber_pools
from coopgroup.assignors.quotas import Share, settle_quotas, share_of
from coopgroup.model import NOBODY

if TYPE_CHECKING:
    from coopgroup.model.group import GroupSnapshot
    from coopgroup.model.resource_set import BoolArray, Int32Array, Int64Array

__all__ = ["CooperativeStickyAssignor", "StickyAssignor"]

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
    shares = [share_of(group, pool) for pool in subscriber_pools(group)]
    settle_quotas(shares, len(group.members))
    for share in shares:
        target[share.pool.resources] = share.pool.subscribers[_dealt(share)]
    return target


def _dealt(share: Share) -> Int32Array:
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


def _given_up(owner: Int32Array, share: Share) -> BoolArray:
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
