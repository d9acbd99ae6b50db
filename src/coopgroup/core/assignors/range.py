"""`RangeAssignor`: cut each topic into ranges, one for each subscriber.

This is Kafka's range assignor. Each topic is cut by itself, partitions in order of their numbers,
members in order: static members by instance id, then dynamic members by member id. The first
members get one partition more if the division leaves a remainder. Topics with the same partitions
and subscribers are cut alike: partition n of all of them has one owner, so they can be joined.

If the racks of members and replicas are known (KIP-881), partitions first go to members in a rack
of one of their replicas, within the same counts. The rest is cut into ranges. Topics that are cut
alike stay alike: a partition number goes by rack only if the member's rack has replicas of that
partition of every such topic.

Matches with racks follow the order and the counts of Kafka's range assignor 4.x. Unmatched
partitions stay free. A member without a rack suits every partition. A topic needs racks if its
subscribers have some of the racks of its replicas, and if some partition lacks replicas in one of
these racks.

Theory of operation: each rack has a queue of partitions or of members. A queue never revisits an
entry that it has passed, so the cost grows with the replicas and not with members times partitions.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
from attrs import frozen

from coopgroup.core.assignors.ordering import members_in_order, ranks_within, seats_of
from coopgroup.core.assignors.pools import subscriber_pools
from coopgroup.core.model import NOBODY

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from coopgroup.core.assignors.pools import Pool
    from coopgroup.core.model.group import GroupSnapshot
    from coopgroup.core.model.resource_set import Int32Array, Int64Array


@frozen(kw_only=True)
class RangeAssignor:
    """Cuts each topic into ranges; ignores the present owners."""

    name = "range"
    needs_lags = False

    def assign(self, group: GroupSnapshot, lags: Int64Array) -> Int32Array:  # noqa: ARG002 - the Protocol's
        """Place every assignable resource; lags are ignored."""
        target = np.full(len(group.resources), NOBODY, dtype=np.int32)
        pools = subscriber_pools(group)
        order = members_in_order(group)
        matcher = _RackMatcher.of(group, pools)
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
    """Return int64 (P,): owners' columns of a topic whose rest is cut into ranges.

    `matched` has the columns that racks matched, else `NOBODY`.
    """
    quota, extras = divmod(matched.size, member_count)
    held = np.bincount(matched + 1, minlength=member_count + 1)[1:]
    longer = held > quota
    candidates = np.flatnonzero(~longer)
    longer[candidates[: extras - int(np.count_nonzero(longer))]] = True
    columns = matched.copy()
    columns[matched == NOBODY] = np.repeat(np.arange(member_count), quota + longer - held)
    return columns


# --- racks (KIP-881) ------------------------------------------------------------------------------


_ANYWHERE = -1
_ELSEWHERE = -2


@frozen(kw_only=True, eq=False)
class _RackMatcher:
    """Racks of members and partitions, as far as a range assignment needs them.

    Attributes:
        indices: int32 (R,): index of each resource.
        rack_of: rack number of each member; `_ANYWHERE` without a rack, `_ELSEWHERE` in a rack
            without replicas.
        replica_racks: ascending rack numbers of each resource's replicas.
    """

    indices: Int32Array
    rack_of: tuple[int, ...]
    replica_racks: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, group: GroupSnapshot, pools: Sequence[Pool]) -> _RackMatcher | None:
        """Read a group's racks; return None if no topic needs them."""
        table = group.replica_racks
        if table is None or not any(member.rack for member in group.members):
            return None
        number_of = {rack: number for number, rack in enumerate(table.racks)}
        bounds, numbers = table.starts.tolist(), table.numbers.tolist()
        made = cls(
            indices=group.resources.flat_indices,
            rack_of=tuple(
                number_of.get(member.rack, _ELSEWHERE) if member.rack else _ANYWHERE
                for member in group.members
            ),
            replica_racks=tuple(
                tuple(numbers[low:high]) for low, high in itertools.pairwise(bounds)
            ),
        )
        names = group.resources.name_numbers
        for pool in pools:
            edges = np.flatnonzero(np.diff(names[pool.resources])) + 1
            racks = made._racks_of(pool.subscribers)
            if any(made._needs_racks(one, racks) for one in np.split(pool.resources, edges)):
                return made
        return None

    def matches(
        self, resources: Int64Array, members: Int32Array, topics: Sequence[slice]
    ) -> Iterator[tuple[slice, Int64Array]]:
        """Match the topics of one pool.

        Args:
            resources: int64 (P,): the pool's resources.
            members: int32 (S,): its subscribers, in the order of the assignor.
            topics: slice of the pool's positions of each topic.

        Yields:
            The slice of each topic with possible matches, and int64 (its partitions,): the owner's
            position in `members`, or `NOBODY` if the partition is to be cut into ranges.
        """
        racks = self._racks_of(members)
        alike: dict[bytes, list[slice]] = {}
        for topic in topics:
            alike.setdefault(self.indices[resources[topic]].tobytes(), []).append(topic)
        for together in alike.values():
            replicas = [self._replicas(resources[topic]) for topic in together]
            if len(together) > 1:
                common = [
                    set(first).intersection(*rest) for first, *rest in zip(*replicas, strict=True)
                ]
                matched = _matched_by_partition(common, racks)
            elif self._needs_racks(resources[together[0]], racks):
                matched = _matched_by_member(replicas[0], racks)
            else:
                continue
            for topic in together:
                yield topic, matched

    def _racks_of(self, members: Int32Array) -> list[int]:
        return [self.rack_of[member] for member in members.tolist()]

    def _replicas(self, resources: Int64Array) -> list[tuple[int, ...]]:
        return [self.replica_racks[resource] for resource in resources.tolist()]

    def _needs_racks(self, resources: Int64Array, racks: Sequence[int]) -> bool:
        each = set(self._replicas(resources))
        everywhere = {rack for replicas in each for rack in replicas}
        return len(each) > 1 and not everywhere.isdisjoint(racks)


def _matched_by_member(replicas: Sequence[tuple[int, ...]], racks: Sequence[int]) -> Int64Array:
    """Let each member in order take partitions of one topic in its rack, within its count."""
    matched = np.full(len(replicas), NOBODY, dtype=np.int64)
    lines: dict[int, list[int]] = {_ANYWHERE: list(range(len(replicas)))}
    for partition, numbers in enumerate(replicas):
        for number in numbers:
            lines.setdefault(number, []).append(partition)
    waiting = {rack: iter(line) for rack, line in lines.items()}
    free = [True] * len(replicas)
    quota, extras = divmod(len(replicas), len(racks))
    for column, rack in enumerate(racks):
        room = quota + (extras > 0)
        if not room:
            break
        if rack not in waiting:
            continue
        taken = []
        for partition in waiting[rack]:
            if free[partition]:
                free[partition] = False
                taken.append(partition)
                if len(taken) == room:
                    break
        matched[taken] = column
        extras -= len(taken) > quota
    return matched


def _matched_by_partition(replicas: Sequence[set[int]], racks: Sequence[int]) -> Int64Array:
    """Give each partition in order to the first member of its racks that may take one more."""
    matched = np.full(len(replicas), NOBODY, dtype=np.int64)
    lines: dict[int, list[int]] = {}
    for column in reversed(range(len(racks))):
        lines.setdefault(racks[column], []).append(column)
    held = [0] * len(racks)
    quota, extras = divmod(len(replicas), len(racks))
    for partition, numbers in enumerate(replicas):
        suitable = []
        for rack in (_ANYWHERE, *sorted(numbers)):
            line = lines.get(rack, [])
            while line and held[line[-1]] >= quota + (extras > 0):
                line.pop()
            suitable += line[-1:]
        if suitable:
            column = min(suitable)
            matched[partition] = column
            held[column] += 1
            extras -= held[column] > quota
    return matched
