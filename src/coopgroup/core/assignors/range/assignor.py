"""`RangeAssignor`: cut each topic into ranges, one for each subscriber.

This is Kafka's range assignor. Each topic is cut by itself, partitions in order of their numbers,
members in order: static members by instance id, then dynamic members by member id. The first
members get one partition more if the division leaves a remainder. Topics with the same partitions
and subscribers are cut alike: partition n of all of them has one owner, so they can be joined.

If the racks of members and replicas are known (KIP-881), partitions first go to members in a rack
of one of their replicas, within the same counts. The rest is cut into ranges. Topics that are cut
alike stay alike: a partition number goes by rack only if the member's rack has replicas of that
partition of every such topic.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
from attrs import frozen

from coopgroup.core.assignors.member_order import members_in_order, seats_of
from coopgroup.core.assignors.ordering import ranks_within
from coopgroup.core.assignors.pools import subscriber_pools
from coopgroup.core.assignors.range.racks import RackMatcher
from coopgroup.core.model import NOBODY

if TYPE_CHECKING:
    from coopgroup.core.assignors.pools import Pool
    from coopgroup.core.model.group import GroupSnapshot
    from coopgroup.core.model.resource_set import Int32Array, Int64Array

__all__ = ["RangeAssignor"]


@frozen(kw_only=True)
class RangeAssignor:
    """Cuts each topic into ranges; ignores the present owners."""

    name = "range"
    needs_lags = False

    def assign(self, group: GroupSnapshot, lags: Int64Array) -> Int32Array:  # noqa: ARG002 - the Protocol's
        """Place every assignable resource that has a subscriber.

        Args:
            group: the group with R resources.
            lags: ignored.

        Returns:
            int32 (R,): number of the member that should own each resource, or `NOBODY`.
        """
        target = np.full(len(group.resources), NOBODY, dtype=np.int32)
        pools = subscriber_pools(group)
        order = members_in_order(group)
        matcher = RackMatcher.of(group, pools)
        for pool in pools:
            members = order[seats_of(pool, order)]
            topics = _topics(group, pool)
            columns = _ranges(topics, members.size)
            if matcher is not None:
                for topic, matched in matcher.matches(pool.resources, members, topics):
                    columns[topic] = _filled(matched, members.size)
            target[pool.resources] = members[columns]
        return target


def _topics(group: GroupSnapshot, pool: Pool) -> tuple[slice, ...]:
    """Return the slice of a pool's resources that belongs to each topic."""
    names = group.resources.name_numbers[pool.resources]
    edges = np.flatnonzero(np.diff(names, prepend=NOBODY, append=NOBODY)).tolist()
    return tuple(slice(low, high) for low, high in itertools.pairwise(edges))


def _ranges(topics: tuple[slice, ...], member_count: int) -> Int64Array:
    """Cut all topics of a pool with P resources: int64 (P,), columns."""
    counts = np.array([topic.stop - topic.start for topic in topics], dtype=np.int64)
    quotas, extras = np.divmod(np.repeat(counts, counts), member_count)
    ranks = ranks_within(counts)
    longer = extras * (quotas + 1)  # partitions of the longer ranges
    columns: Int64Array = np.where(
        ranks < longer,
        ranks // (quotas + 1),
        extras + (ranks - longer) // np.maximum(quotas, 1),
    )
    return columns


def _filled(matched: Int64Array, member_count: int) -> Int64Array:
    """Cut into ranges the partitions of one topic that racks have not matched.

    Args:
        matched: int64 (P,): column of each matched partition's owner, else `NOBODY`.
        member_count: number of subscribers.

    Returns:
        int64 (P,): columns.
    """
    quota, extras = divmod(matched.size, member_count)
    held = np.bincount(matched + 1, minlength=member_count + 1)[1:]
    longer = held > quota
    candidates = np.flatnonzero(~longer)
    longer[candidates[: extras - int(np.count_nonzero(longer))]] = True
    columns = matched.copy()
    columns[matched == NOBODY] = np.repeat(np.arange(member_count), quota + longer - held)
    return columns
