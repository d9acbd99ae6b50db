"""Requests about topics as kafka-python's messages: partition, records, and every answer."""

from types import SimpleNamespace
from typing import Any

import pytest
from kafka.errors import IncompatibleBrokerVersion
from kafka.protocol.broker_version_data import BrokerVersionData
from kafka.protocol.consumer.fetch import FetchRequest
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.protocol.producer.produce import ProduceRequest
from kafka.record.memory_records import MemoryRecords, MemoryRecordsBuilder

from coopgroup.core.model.group_api import Coordinator
from coopgroup.kafka.rpc.questions import FindLogOffsets, FindTopics, LogOffset, OtherRequest
from coopgroup.kafka.rpc.requests import build_message, read_answer
from coopgroup.kafka.rpc.topics import (
    FindPartition,
    FoundPartition,
    ListenForRings,
    Produce,
    ProduceAnswer,
    RingsAnswer,
    partition_of,
)

LISTEN = ListenForRings(topic="bell", partition=2, offset=7, wait_ms=30_000)
RING = Produce(
    topic="bell", partition=2, group_id="billing", records=((1_000, b""),), timeout_ms=500, acks=1
)


@pytest.mark.parametrize(
    ("key", "murmur2"), [("21", -973932308), ("foobar", -790332482), ("a-little-bit-longer", 0)]
)
def test_partition_is_that_of_kafkas_producers(key: str, murmur2: int) -> None:
    """The hashes are those of Kafka's own test (`UtilsTest.testMurmur2`)."""
    if murmur2:
        assert partition_of(key, 1_000) == (murmur2 & 0x7FFFFFFF) % 1_000
    assert 0 <= partition_of(key, 7) < 7


def metadata(*, code: int = 0, leaders: tuple[int, ...] = (1, 2)) -> Any:  # noqa: ANN401
    topic = MetadataResponse.MetadataResponseTopic
    partition = topic.MetadataResponsePartition
    broker = MetadataResponse.MetadataResponseBroker
    return MetadataResponse(
        brokers=[broker(node_id=one, host=f"host{one}", port=9092) for one in (1, 2)],
        topics=[
            topic(
                error_code=code,
                name="bell",
                partitions=[
                    partition(
                        error_code=0 if leader > 0 else 5, partition_index=i, leader_id=leader
                    )
                    for i, leader in reversed(list(enumerate(leaders)))
                ],
            )
        ],
    )


def test_leader_of_the_groups_partition_is_found() -> None:
    request = FindPartition(topic="bell", group_id="billing")
    index = partition_of("billing", 2)
    leader = Coordinator(node_id=index + 1, host=f"host{index + 1}", port=9092)
    expected = FoundPartition(error_code=0, partition=index, leader=leader)
    assert read_answer(request, metadata()) == expected
    without = request.read(metadata(leaders=(-1, -1)))
    assert (without.error_code, without.leader) == (5, None)
    assert request.read(metadata(code=3, leaders=())) == FoundPartition(error_code=3)


def test_look_up_never_creates_the_topic() -> None:
    """Brokers that speak only earlier versions of Metadata would create it."""
    message = build_message(FindPartition(topic="bell", group_id="billing"))
    assert message.allow_auto_topic_creation is False
    old = BrokerVersionData(api_versions={MetadataRequest.API_KEY: (0, 3)})
    with pytest.raises(IncompatibleBrokerVersion):
        old.api_version(message)


@pytest.mark.parametrize(
    ("request_", "api_key", "newest"),
    [(LISTEN, FetchRequest.API_KEY, 12), (RING, ProduceRequest.API_KEY, 12)],
)
def test_versions_that_name_topics_by_id_only_are_not_used(
    request_: OtherRequest,
    api_key: int,
    newest: int,
) -> None:
    broker = BrokerVersionData(api_versions={api_key: (3, 99)})
    assert broker.api_version(build_message(request_)) == newest


def test_end_of_a_partition_is_read() -> None:
    one = SimpleNamespace(error_code=0, offset=12, partition_index=2)
    response = SimpleNamespace(topics=[SimpleNamespace(name="bell", partitions=[one])])
    request = FindLogOffsets(timestamps={("bell", 2): -1})
    message = build_message(request)
    assert (message.topics[0].partitions[0].timestamp, message.isolation_level) == (-1, 0)
    assert read_answer(request, response) == {("bell", 2): LogOffset(0, 12)}


def test_ends_of_many_logs_are_asked_for_by_topic() -> None:
    request = FindLogOffsets(
        timestamps={("b", 1): -2, ("a", 0): -1, ("b", 0): -1}, reads_committed=True
    )
    message = build_message(request)
    assert message.isolation_level == 1
    assert [
        (topic.name, [(one.partition_index, one.timestamp) for one in topic.partitions])
        for topic in message.topics
    ] == [("a", [(0, -1)]), ("b", [(0, -1), (1, -2)])]


def test_topics_are_found_with_the_leaders_of_their_partitions() -> None:
    answer = read_answer(FindTopics(names=("bell",)), metadata(leaders=(2, -1, 1)))
    found = answer["bell"]
    assert (found.error_code, found.partition_count) == (0, 3)
    assert {index: one.host for index, one in found.leaders.items()} == {0: "host2", 2: "host1"}


def fetched(records: bytes, *, code: int = 0, end: int = 9) -> SimpleNamespace:
    one = SimpleNamespace(error_code=code, records=records, high_watermark=end)
    return SimpleNamespace(error_code=0, responses=[SimpleNamespace(partitions=[one])])


def batch(*keys: bytes | None, offset: int = 7, compression: int = 0) -> bytes:
    made: Any = MemoryRecordsBuilder(
        magic=2, compression_type=compression, batch_size=10_000, offset=offset
    )
    for key in keys:
        made.append(timestamp=1, key=key, value=b"")
    made.close()
    return bytes(made.buffer())


@pytest.mark.parametrize("size", [1, 100_000])
def test_records_of_any_size_are_one_batch_with_their_times_and_values(size: int) -> None:
    """Large batches are compressed."""
    records = tuple((1_000 + at, bytes([at]) * size) for at in range(3))
    produce = Produce(
        topic="t", partition=0, group_id="billing", records=records, timeout_ms=500, acks=-1
    )
    message = build_message(produce)
    sent = message.topic_data[0].partition_data[0].records
    batches: list[Any] = list(MemoryRecords(sent))
    assert len(batches) == 1
    assert tuple((one.timestamp, one.value) for one in batches[0]) == records
    assert message.acks == -1
    assert (len(sent) < 3 * size) is (size > 1)


WHOLE = batch(b"billing")


@pytest.mark.parametrize(
    ("records", "keys", "next_offset"),
    [
        (WHOLE + batch(b"orders", None, offset=8), (b"billing", b"orders", None), 10),
        (WHOLE + batch(b"orders", offset=8)[:-5], (b"billing",), 8),  # the rest comes later
        # A compressed batch is not opened: it may come from anybody, and become large.
        (batch(*[b"billing"] * 100, compression=1), (None,), 107),
        (b"", (), 7),
        (build_message(RING).topic_data[0].partition_data[0].records, (b"billing",), 7),
    ],
    ids=["several", "cut off", "compressed", "none", "own"],
)
def test_rings_are_keys(records: bytes, keys: tuple[bytes | None, ...], next_offset: int) -> None:
    answer = read_answer(LISTEN, fetched(records, end=12))
    assert answer == RingsAnswer(error_code=0, keys=keys, next_offset=next_offset, end_offset=12)


def test_refusals_are_told() -> None:
    assert LISTEN.read(fetched(b"", code=6)) == RingsAnswer(error_code=6, next_offset=7)
    refused = SimpleNamespace(error_code=29, responses=[])
    assert LISTEN.read(refused) == RingsAnswer(error_code=29, next_offset=7)
    one = SimpleNamespace(error_code=6)
    response = SimpleNamespace(responses=[SimpleNamespace(partition_responses=[one])])
    assert read_answer(RING, response) == ProduceAnswer(error_code=6)
