"""The contestant kafka-python.

Its sticky assignor computes the whole target, like the other contestants. So the partitions that
its cooperative assignor would withhold in the first round are included.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from attrs import frozen
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

from coopgroup.model import NOBODY
from tests.benchmarks.assigning.groups import GENERATION, Group, Int32Array, claims_of
from tests.benchmarks.assigning.work import Prepared, serve

__all__ = ["prepare"]


class _Sticky(StickyPartitionAssignor):
    """Read owned partitions from the fields of cooperative members; withhold no partition."""

    @classmethod
    def parse_member_metadata(cls, metadata: Any) -> Any:  # noqa: ANN401 - kafka-python is untyped
        return CooperativeStickyAssignor.parse_member_metadata(metadata)


ASSIGNORS: Final[dict[str, Any]] = {
    "range": RangePartitionAssignor,
    "round-robin": RoundRobinPartitionAssignor,
    "sticky": _Sticky,
}


@frozen
class _Member:
    """A member as JoinGroup answers it, its metadata decoded."""

    member_id: str
    metadata: Any
    group_instance_id: None = None


@frozen
class _Cluster:
    """The part of kafka-python's cluster metadata that its assignors read."""

    counts: dict[str, int]

    def topics(self) -> set[str]:
        return set(self.counts)

    def partitions_for_topic(self, topic: str) -> set[int]:
        return set(range(self.counts[topic]))


def prepare(group: Group, name: str) -> Prepared | None:
    """Return the call that is timed; None for an assignor that kafka-python does not have."""
    if name not in ASSIGNORS or group.replica_racks.size:
        return None
    cluster = _Cluster(dict(group.topics))
    members = _members(group)
    return lambda: ASSIGNORS[name]().assign(cluster, members), lambda result: _answer(group, result)


def _members(group: Group) -> list[_Member]:
    partition = ConsumerProtocolSubscription.TopicPartition
    claims, _ = claims_of(group)
    return [
        _Member(
            claim.member_id,
            ConsumerProtocolSubscription(
                topics=list(claim.topics),
                user_data=b"",
                owned_partitions=[
                    partition(topic=topic, partitions=indices.tolist())
                    for topic, indices in claim.owned.items()
                ],
                generation_id=GENERATION,
            ),
        )
        for claim in claims
    ]


def _answer(group: Group, result: Any) -> Int32Array:  # noqa: ANN401 - kafka-python is untyped
    counts = [count for _, count in group.topics]
    starts = np.cumsum(counts) - counts
    first = {name: start for (name, _), start in zip(group.topics, starts.tolist(), strict=True)}
    holder = np.full(group.owner.size, NOBODY, dtype=np.int32)
    for number, member in enumerate(group.members):
        for part in result[member].assigned_partitions:
            topic, partitions = part if isinstance(part, tuple) else (part.topic, part.partitions)
            holder[first[topic] + np.array(partitions, dtype=np.int64)] = number
    return holder


if __name__ == "__main__":
    serve(prepare)
