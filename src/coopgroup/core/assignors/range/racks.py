"""Match the partitions of a range assignment with members in their racks (KIP-881).

Matches follow the order and the counts of Kafka's range assignor 4.x. Unmatched partitions stay
free. A member without a rack suits every partition. A topic needs racks if its subscribers have
some of the racks of its replicas, and if some partition lacks replicas in one of these racks.

Theory of operation: each rack has a queue of partitions or of members. A queue never revisits an
entry that it has passed, so the cost grows with the replicas and not with members times partitions.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
from attrs import frozen

from coopgroup.core.model import NOBODY

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from coopgroup.core.assignors.pools import Pool
    from coopgroup.core.model.group import GroupSnapshot
    from coopgroup.core.model.resource_set import Int32Array, Int64Array

__all__ = ["RackMatcher"]

_ANYWHERE = -1
_ELSEWHERE = -2


@frozen(kw_only=True, eq=False)
class RackMatcher:
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
    def of(cls, group: GroupSnapshot, pools: Sequence[Pool]) -> RackMatcher | None:
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
