"""`RangeAssignor`: each topic cut into ranges, one for each subscriber.

As Kafka's assignor of this name: each topic by itself, partitions in order of their numbers,
members in order (static ones by instance id before dynamic ones by member id); the first few have
one partition more where it does not come out even. Topics with the same partitions and the same
subscribers are cut alike, so partition n of all of them is on one member: they can be joined.

Where racks of members and replicas are known (KIP-881), partitions go to members in a rack of one
of their replicas first, as far as counts stay what they are; the rest is cut into ranges as
ever. Topics that are cut alike stay so: a partition number goes to a member whose rack has
replicas of that partition of every such topic, or waits for the ranges.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from attrs import frozen

from coopgroup.assignors.member_order import members_in_order, seats_of
from coopgroup.assignors.pools import subscriber_pools
from coopgroup.assignors.range_racks import RackMatcher
from coopgroup.model import NOBODY

if TYPE_CHECKING:
    from coopgroup.assignors.pools import Pool
    from coopgroup.model.group import GroupSnapshot
    from coopgroup.model.resource_set import Int32Array, Int64Array

__all__ = ["RangeAssignor"]


@frozen(kw_only=True)
class RangeAssignor:
    """Cuts each topic into ranges; who owns what now is not looked at."""

    name: ClassVar[str] = "range"
    needs_lags: ClassVar[bool] = False

    def assign(self, group: GroupSnapshot, lags: Int64Array) -> Int32Array:  # noqa: ARG002 - the Protocol's
        """Place every resource that is assignable and that somebody subscribes to.

        Args:
            group: the group with R resources.
            lags: not looked at.

        Returns:
            int32 (R,): number of the member that should hold each resource, or NOBODY.
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
    """Which places of a pool's resources are those of each topic."""
    names = group.resources.name_numbers[pool.resources]
    edges = np.flatnonzero(np.diff(names, prepend=NOBODY, append=NOBODY)).tolist()
    return tuple(slice(low, high) for low, high in itertools.pairwise(edges))


def _ranges(topics: tuple[slice, ...], member_count: int) -> Int64Array:
    """Cut all topics of a pool with P resources at once: int64 (P,), columns."""
    counts = np.array([topic.stop - topic.start for topic in topics], dtype=np.int64)
    quotas, extras = np.divmod(np.repeat(counts, counts), member_count)
    ranks = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    longer = extras * (quotas + 1)  # partitions of the ranges that are one longer
    columns: Int64Array = np.where(
        ranks < longer,
        ranks // (quotas + 1),
        extras + (ranks - longer) // np.maximum(quotas, 1),
    )
    return columns


def _filled(matched: Int64Array, member_count: int) -> Int64Array:
    """Cut into ranges what the racks left of one topic with P partitions.

    Args:
        matched: int64 (P,): column of who has each partition already, NOBODY for nobody.
        member_count: how many subscribe.

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
