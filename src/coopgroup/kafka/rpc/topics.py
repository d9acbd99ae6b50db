"""Requests about the topics of a group's own records: rings of its bell, and its telemetry.

Each record has the group as its key. It is on the partition that Kafka's own producers choose for
that key: murmur2 of the key, modulo the number of partitions. So all records of a group are on one
partition. The value of a ring is empty.

Each request builds its message and reads its response itself. Only members with such a topic import
this file, because kafka-python's modules for records cost time at the start of a process.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any, ClassVar, Final, TypeAlias

from attrs import frozen
from kafka.partitioner.default import murmur2
from kafka.protocol.consumer.fetch import FetchRequest
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.producer.produce import ProduceRequest
from kafka.record.memory_records import MemoryRecords, MemoryRecordsBuilder

from coopgroup.core.model.group_api import Coordinator

TOPIC_REFUSALS: Final[Mapping[int, str]] = types.MappingProxyType(
    {
        3: "UNKNOWN_TOPIC_OR_PARTITION",
        17: "INVALID_TOPIC_EXCEPTION",
        29: "TOPIC_AUTHORIZATION_FAILED",
        31: "CLUSTER_AUTHORIZATION_FAILED",
    }
)
"""Error codes that stay until somebody creates the topic, or grants the right."""
RECORD_REFUSALS: Final[Mapping[int, str]] = types.MappingProxyType(
    {
        10: "MESSAGE_TOO_LARGE",
        18: "RECORD_LIST_TOO_LARGE",
        32: "INVALID_TIMESTAMP",
        87: "INVALID_RECORD",
    }
)
"""Error codes of a batch that a broker will never take."""
# Later versions name topics by id only.
_FETCH_VERSION_MAX: Final = 12
_PRODUCE_VERSION_MAX: Final = 12
# Earlier versions of Metadata create a missing topic.
_METADATA_VERSION_MIN: Final = 4
# Small, because a flood of other groups' rings must not keep the member busy. The broker returns
# the first batch completely, even if it is larger.
_FETCH_BYTES: Final = 4_096
_MAGIC: Final = 2
# Of a record beside its key and its value, at most.
_RECORD_BYTES: Final = 64
_HEADER_BYTES: Final = 128
_PLAIN, _GZIP = 0, 1
# Smaller batches do not become smaller. kafka-python's checksum of a large batch is slow, so
# compression also saves time.
_COMPRESSED_BYTES_MIN: Final = 512
# kafka-python's messages have no static types.
_Message: TypeAlias = Any


def partition_of(group_id: str, partitions: int) -> int:
    """Return the partition of a group's records, as Kafka's producers choose it."""
    hashed: int = murmur2(group_id.encode())
    return (hashed & 0x7FFFFFFF) % partitions


@frozen(kw_only=True)
class FoundPartition:
    """The partition of a group's records.

    Attributes:
        error_code: of the topic or the partition.
        leader: its leader, None at an error or without a leader.
    """

    error_code: int
    partition: int = -1
    leader: Coordinator | None = None


@frozen(kw_only=True)
class FindPartition:
    """Ask any broker for the partition of a group's records, and its leader."""

    topic: str
    group_id: str

    asks_any_broker: ClassVar[bool] = True

    def message(self) -> _Message:
        """Return kafka-python's message."""
        topic = MetadataRequest.MetadataRequestTopic(name=self.topic)
        return MetadataRequest(
            topics=[topic], allow_auto_topic_creation=False, min_version=_METADATA_VERSION_MIN
        )

    def read(self, response: _Message) -> FoundPartition:
        """Return the answer."""
        (topic,) = response.topics
        if topic.error_code or not topic.partitions:
            return FoundPartition(error_code=topic.error_code)
        index = partition_of(self.group_id, len(topic.partitions))
        found = next(one for one in topic.partitions if one.partition_index == index)
        leaders = (one for one in response.brokers if one.node_id == found.leader_id)
        leader = next(leaders, None)
        if leader is None:
            return FoundPartition(error_code=found.error_code, partition=index)
        node = Coordinator(node_id=leader.node_id, host=leader.host, port=leader.port)
        return FoundPartition(error_code=0, partition=index, leader=node)


@frozen(kw_only=True)
class RingsAnswer:
    """Rings of any groups.

    Attributes:
        keys: the groups that rang; None for other records.
        next_offset: where the next request begins.
        end_offset: offset after the last ring of the partition, -1 at an error.
    """

    error_code: int
    keys: tuple[bytes | None, ...] = ()
    next_offset: int
    end_offset: int = -1


@frozen(kw_only=True)
class ListenForRings:
    """Ask the leader of a partition for rings; it waits for one up to `wait_ms`."""

    topic: str
    partition: int
    offset: int
    wait_ms: int

    asks_any_broker: ClassVar[bool] = False

    def message(self) -> _Message:
        """Return kafka-python's message."""
        topic = FetchRequest.FetchTopic
        one = topic.FetchPartition(
            partition=self.partition,
            current_leader_epoch=-1,
            fetch_offset=self.offset,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=_FETCH_BYTES,
        )
        return FetchRequest(
            replica_id=-1,
            max_wait_ms=self.wait_ms,
            min_bytes=1,
            max_bytes=_FETCH_BYTES,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=[topic(topic=self.topic, partitions=[one])],
            forgotten_topics_data=[],
            rack_id="",
            max_version=_FETCH_VERSION_MAX,
        )

    def read(self, response: _Message) -> RingsAnswer:
        """Return the answer; batches that cannot be read count as one record without a key."""
        if response.error_code or not response.responses:
            return RingsAnswer(error_code=response.error_code, next_offset=self.offset)
        one = response.responses[0].partitions[0]
        if one.error_code:
            return RingsAnswer(error_code=one.error_code, next_offset=self.offset)
        keys: list[bytes | None] = []
        next_offset = self.offset
        records: Any = MemoryRecords(one.records or b"")
        for batch in records:
            # Rings are never compressed, and a small batch may become large.
            keys += [None] if batch.compression_type else [record.key for record in batch]
            next_offset = max(next_offset, batch.next_offset)
        return RingsAnswer(
            error_code=0,
            keys=tuple(keys),
            next_offset=next_offset,
            end_offset=one.high_watermark,
        )


@frozen(kw_only=True)
class ProduceAnswer:
    """The outcome of adding records."""

    error_code: int


@frozen(kw_only=True)
class Produce:
    """Add records of a group to its partition, as one batch.

    Attributes:
        records: the time of each record, in ms since 1970, and its value.
        timeout_ms: how long the broker may take.
        acks: 1 if the leader's log is enough, -1 for all in-sync replicas.
    """

    topic: str
    partition: int
    group_id: str
    records: tuple[tuple[int, bytes], ...]
    timeout_ms: int
    acks: int

    asks_any_broker: ClassVar[bool] = False

    def message(self) -> _Message:
        """Return kafka-python's message."""
        key = self.group_id.encode()
        size = sum(_RECORD_BYTES + len(key) + len(value) for _, value in self.records)
        batch: Any = MemoryRecordsBuilder(
            magic=_MAGIC,
            compression_type=_GZIP if size >= _COMPRESSED_BYTES_MIN else _PLAIN,
            batch_size=_HEADER_BYTES + size,
        )
        for at_ms, value in self.records:
            batch.append(timestamp=at_ms, key=key, value=value)
        batch.close()
        topic = ProduceRequest.TopicProduceData
        one = topic.PartitionProduceData(index=self.partition, records=bytes(batch.buffer()))
        return ProduceRequest(
            transactional_id=None,
            acks=self.acks,
            timeout_ms=self.timeout_ms,
            topic_data=[topic(name=self.topic, partition_data=[one])],
            max_version=_PRODUCE_VERSION_MAX,
        )

    def read(self, response: _Message) -> ProduceAnswer:
        """Return the answer."""
        one = response.responses[0].partition_responses[0]
        return ProduceAnswer(error_code=one.error_code)
