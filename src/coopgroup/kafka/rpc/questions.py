"""Requests that any client may send to the brokers, and their answers, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any, ClassVar, Final, NamedTuple, Protocol, TypeAlias
from uuid import UUID

from attrs import field, frozen

from coopgroup.core.model.group_api import Coordinator

# kafka-python's messages have no static types.
WireMessage: TypeAlias = Any
# Earlier versions of Metadata create a missing topic.
_METADATA_VERSION_MIN: Final = 4
# An earlier version of ListOffsets answers with a list of offsets.
_LIST_OFFSETS_VERSION_MIN: Final = 1
_GROUP_RESOURCE: Final = 32
_SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
ASSIGNMENT_INTERVAL: Final = "consumer.assignment.interval.ms"
"""A setting of consumer groups."""


@frozen(kw_only=True)
class DescribeGroupRequest:
    """Ask the coordinator to describe a group (DescribeGroups); members never send this."""

    group_id: str


@frozen(kw_only=True)
class DescribedMember:
    """A member as the coordinator knows it.

    Attributes:
        group_instance_id: static id, "" for a dynamic member.
        metadata: its subscription in the group's protocol; empty during a round.
        assignment: as the leader encoded it; empty during a round.
    """

    member_id: str
    client_id: str
    client_host: str
    metadata: bytes
    group_instance_id: str = ""
    assignment: bytes = b""


@frozen(kw_only=True)
class DescribedGroup:
    """A group as the coordinator knows it.

    Attributes:
        state: "Stable", "Empty", "Dead" for a missing group, or the name of a rebalance phase.
        protocol_type: "consumer" for groups that share partitions, "" without one.
    """

    error_code: int
    state: str
    protocol_type: str
    protocol_name: str
    members: tuple[DescribedMember, ...]


@frozen(kw_only=True)
class FetchOffsetsRequest:
    """Ask the coordinator for a group's committed offsets (OffsetFetch); any client may.

    Attributes:
        require_stable: whether a partition in an open transaction is answered with
            UNSTABLE_OFFSET_COMMIT (KIP-447). Brokers before 2.5 (v7) ignore this and answer with
            the last commit, as they answer librdkafka.
    """

    group_id: str
    partitions: tuple[tuple[str, int], ...]
    require_stable: bool


class CommittedOffset(NamedTuple):
    """The answer for one partition; a tuple, because an answer has thousands of partitions.

    Attributes:
        offset: offset of the next record to read; negative if the group has committed none.
        leader_epoch: leader epoch of the record before it, -1 if unknown (KIP-320).
    """

    offset: int
    leader_epoch: int = -1
    metadata: str | None = None
    error_code: int = 0


@frozen(kw_only=True)
class FetchOffsetsAnswer:
    """Committed offsets by partition, or the reason why they are missing."""

    error_code: int
    offsets: Mapping[tuple[str, int], CommittedOffset]


class OtherRequest(Protocol):
    """A request that is not about a group, and builds its message itself.

    Attributes:
        asks_any_broker: whether any broker can answer it, so that it needs no node.
    """

    @property
    def asks_any_broker(self) -> bool:
        """Return whether any broker can answer."""
        ...

    def message(self) -> WireMessage:
        """Return kafka-python's message, without a version."""
        ...

    def read(self, response: WireMessage) -> Any:  # noqa: ANN401  (its own answer)
        """Return the answer from kafka-python's response."""
        ...


@frozen
class FoundTopic:
    """The answer for one topic.

    Attributes:
        topic_id: its id, another one if the topic is made again; None before Kafka 2.8 (KIP-516).
        leaders: the leader of each partition that has one.
    """

    error_code: int
    partition_count: int
    topic_id: UUID | None = None
    leaders: Mapping[int, Coordinator] = field(factory=dict)


@frozen(kw_only=True)
class FindTopics:
    """Ask any broker which topics exist, their ids, their partitions, and who leads these."""

    names: tuple[str, ...]

    asks_any_broker: ClassVar[bool] = True

    def message(self) -> WireMessage:
        """Return kafka-python's message."""
        from kafka.protocol.metadata import MetadataRequest  # noqa: PLC0415 - 20 ms of CPU time

        topics = [MetadataRequest.MetadataRequestTopic(name=one) for one in self.names]
        return MetadataRequest(
            topics=topics, allow_auto_topic_creation=False, min_version=_METADATA_VERSION_MIN
        )

    def read(self, response: WireMessage) -> dict[str, FoundTopic]:
        """Return the answer by name."""
        nodes = {
            one.node_id: Coordinator(node_id=one.node_id, host=one.host, port=one.port)
            for one in response.brokers
        }
        return {
            topic.name: FoundTopic(
                topic.error_code,
                len(topic.partitions),
                _id_of(topic),
                {
                    one.partition_index: nodes[one.leader_id]
                    for one in topic.partitions
                    if one.leader_id in nodes
                },
            )
            for topic in response.topics
        }


class LogOffset(NamedTuple):
    """The answer for one partition."""

    error_code: int
    offset: int


@frozen(kw_only=True)
class FindLogOffsets:
    """Ask the leader of some partitions for the offset at a time (ListOffsets).

    Attributes:
        timestamps: time by partition, in ms since 1970. -1 is the log end offset, and -2 is the
            offset of the first record.
        reads_committed: whether the log ends before the first open transaction.
    """

    timestamps: Mapping[tuple[str, int], int]
    reads_committed: bool = False

    asks_any_broker: ClassVar[bool] = False

    def message(self) -> WireMessage:
        """Return kafka-python's message."""
        from kafka.protocol.consumer.offsets import ListOffsetsRequest  # noqa: PLC0415 - CPU time

        topic = ListOffsetsRequest.ListOffsetsTopic
        return ListOffsetsRequest(
            replica_id=-1,
            isolation_level=int(self.reads_committed),
            topics=[
                topic(
                    name=name,
                    partitions=[
                        topic.ListOffsetsPartition(
                            partition_index=index, current_leader_epoch=-1, timestamp=timestamp
                        )
                        for (_, index), timestamp in partitions
                    ],
                )
                for name, partitions in groupby(
                    sorted(self.timestamps.items()), key=lambda one: one[0][0]
                )
            ],
            min_version=_LIST_OFFSETS_VERSION_MIN,
        )

    def read(self, response: WireMessage) -> dict[tuple[str, int], LogOffset]:
        """Return the answer by partition."""
        return {
            (topic.name, one.partition_index): LogOffset(one.error_code, one.offset)
            for topic in response.topics
            for one in topic.partitions
        }


@frozen(kw_only=True)
class GroupTimeouts:
    """The answer: the settings of a consumer group, or the reason why they are missing.

    Attributes:
        session_ms: time without a heartbeat after which the coordinator removes a member of
            KIP-848, in ms; None if unknown.
        assignment_interval_ms: minimum time between two target assignments (KIP-1263), in ms; None
            before Kafka 4.3, which added the setting.
    """

    error_code: int
    session_ms: int | None = None
    assignment_interval_ms: int | None = None


@frozen(kw_only=True)
class FindGroupTimeouts:
    """Ask any broker for settings of a consumer group that KIP-848's answers do not tell.

    The answer has the broker's default for a setting that the group does not have. Needs the right
    DescribeConfigs on the group.
    """

    group_id: str

    asks_any_broker: ClassVar[bool] = True

    def message(self) -> WireMessage:
        """Return kafka-python's message."""
        from kafka.protocol.admin.configs import DescribeConfigsRequest  # noqa: PLC0415 - CPU time

        group = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=_GROUP_RESOURCE,
            resource_name=self.group_id,
            configuration_keys=[_SESSION_TIMEOUT, ASSIGNMENT_INTERVAL],
        )
        return DescribeConfigsRequest(resources=[group])

    def read(self, response: WireMessage) -> GroupTimeouts:
        """Return the answer."""
        (group,) = response.results
        values = {one.name: int(one.value) for one in group.configs if one.value is not None}
        return GroupTimeouts(
            error_code=group.error_code,
            session_ms=values.get(_SESSION_TIMEOUT),
            assignment_interval_ms=values.get(ASSIGNMENT_INTERVAL),
        )


def _id_of(topic: WireMessage) -> UUID | None:
    found: UUID | None = topic.topic_id
    return None if found is None or not found.int else found


Question: TypeAlias = DescribeGroupRequest | FetchOffsetsRequest | OtherRequest
"""Requests that any client may send, also without being a member."""
