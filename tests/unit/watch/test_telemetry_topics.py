"""Reading telemetry from a topic, beside a consumer that a test fills."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from attrs import define, field
from confluent_kafka import KafkaError, TopicPartition

from coopgroup.errors import ConfigurationError, CoopgroupError
from coopgroup.kafka.rpc.outcomes import FailureKind, TransportFailure
from coopgroup.kafka.rpc.questions import FindTopics, FoundTopic
from coopgroup.kafka.rpc.transport import GroupTransport
from coopgroup.watch import telemetry_topics
from coopgroup.watch.telemetry_topics import TelemetryReader
from tests.support.by_hand import Hand, by_hand
from tests.unit.kafka.fakes import HandTransport

WAIT_S = 60
OLD, NEW = UUID(int=1), UUID(int=2)
GONE = TransportFailure(kind=FailureKind.DISCONNECTED, message="gone")


@define
class Record:
    at: int
    key_: bytes | None
    value_: bytes | None
    code: int | None = None

    def error(self) -> KafkaError | None:
        return None if self.code is None else KafkaError(self.code)

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes | None:
        return self.key_

    def value(self) -> bytes | None:
        return self.value_


@define(eq=False)
class FakeConsumer:
    """One partition; `gaps` are offsets without a record, such as marks of transactions."""

    records: list[Record] = field(factory=list)
    error: KafkaError | None = None
    begin: int = 0
    gaps: int = 0
    at: int = 0
    is_closed: bool = False
    closes: int = 0
    on_consume: Callable[[], object] = lambda: None
    count: int = 1
    assigned: dict[int, int] = field(factory=dict)

    def list_topics(self, topic: str, timeout: float) -> Any:  # noqa: ANN401
        assert timeout >= 0
        found = SimpleNamespace(error=self.error, partitions=dict.fromkeys(range(self.count)))
        return SimpleNamespace(topics={topic: found})

    def get_watermark_offsets(self, _: TopicPartition, timeout: float) -> tuple[int, int]:
        assert timeout >= 0
        last = self.records[-1].at + 1 if self.records else self.begin
        return self.begin, last + self.gaps

    def assign(self, places: list[TopicPartition]) -> None:
        self.assigned = {place.partition: place.offset for place in places}
        self.at = self.assigned[0]

    def consume(self, count: int, _: float) -> list[Record]:
        assert not self.is_closed
        self.on_consume()
        assert not self.is_closed
        found = [one for one in self.records if one.at >= self.at][:count]
        self.at = found[-1].at + 1 if found else self.at
        if not found and self.gaps:
            return [Record(self.at + self.gaps, None, None, KafkaError._PARTITION_EOF)]
        return found

    def close(self) -> None:
        self.is_closed = True
        self.closes += 1


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> FakeConsumer:
    fake = FakeConsumer()
    monkeypatch.setattr(telemetry_topics, "Consumer", lambda _: fake)
    return fake


def test_each_record_of_the_group_comes_once_and_tombstones_not_at_all(
    consumer: FakeConsumer,
) -> None:
    """The key is the group."""
    values = (b"1", b"2", b"1", None, b"3")
    consumer.records = [Record(at, b"g", value) for at, value in enumerate(values)]
    consumer.records += [Record(5 + at, key, b"x") for at, key in enumerate((b"h", None, b"gg"))]
    with TelemetryReader({}, "telemetry", "g") as reader:
        assert list(reader.read_to_end()) == [b"1", b"2", b"3"]
        consumer.records += [Record(8, b"g", b"3"), Record(9, b"g", b"4")]
        assert list(reader.read_now()) == [b"4"]
    assert consumer.is_closed


def test_offsets_without_records_do_not_hold_it_up(consumer: FakeConsumer) -> None:
    consumer.records = [Record(0, b"g", b"1")]
    consumer.gaps = 2
    with TelemetryReader({}, "telemetry", timeout_s=0.0) as reader:
        assert list(reader.read_to_end()) == [b"1"]


def test_records_that_do_not_come_are_an_error(consumer: FakeConsumer) -> None:
    consumer.records = [Record(0, b"g", b"1")]
    with TelemetryReader({}, "telemetry", timeout_s=0.0) as reader:
        consumer.at = 1  # the broker sends nothing
        with pytest.raises(ConfigurationError, match="brokers that send its records"):
            list(reader.read_to_end())


@pytest.mark.parametrize("way", ["read_to_end", "read_now"])
def test_refusal_of_one_partition_costs_no_record_of_the_others(
    consumer: FakeConsumer, way: str
) -> None:
    refusal = Record(0, None, None, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    consumer.records = [refusal, Record(1, b"g", b"1")]
    found: list[bytes] = []
    with TelemetryReader({}, "telemetry") as reader:
        with pytest.raises(ConfigurationError, match="Topic authorization failed"):
            found.extend(getattr(reader, way)())
        assert found == [b"1"]


def test_consumer_is_closed_by_the_thread_that_uses_it(consumer: FakeConsumer) -> None:
    """A client must not be closed during a call, and the display must not wait for the call."""
    is_in_call, may_return = Event(), Event()

    def wait() -> None:
        is_in_call.set()
        assert may_return.wait(WAIT_S)

    consumer.on_consume = wait
    with ThreadPoolExecutor(1) as pool:
        with TelemetryReader({}, "telemetry") as reader:
            reading = pool.submit(lambda: list(reader.read_now()))
            assert is_in_call.wait(WAIT_S)
        assert not consumer.is_closed
        may_return.set()
        assert reading.result() == []
    assert consumer.closes == 1
    with pytest.raises(CoopgroupError, match="is closed"):
        list(reader.read_now())
    assert consumer.closes == 1


def test_missing_topic_is_an_error_and_the_consumer_is_closed(consumer: FakeConsumer) -> None:
    consumer.error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
    with (
        pytest.raises(ConfigurationError, match="topic: got 'telemetry', expected a topic that"),
        TelemetryReader({}, "telemetry"),
    ):
        pass
    assert consumer.is_closed


def test_memory_of_repeated_records_is_bounded(
    consumer: FakeConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telemetry_topics, "_SEEN_MAX", 3)
    values = (b"1", b"2", b"1", b"3", b"4", b"2", b"1")
    consumer.records = [Record(at, b"g", value) for at, value in enumerate(values)]
    with TelemetryReader({}, "telemetry") as reader:
        assert list(reader.read_to_end()) == [b"1", b"2", b"3", b"4", b"1"]
        assert len(reader._seen) == 3  # noqa: SLF001 - its memory


@pytest.fixture
def transport() -> HandTransport:
    return HandTransport()


@pytest.fixture
def hand() -> Iterator[Hand]:
    with by_hand() as hand:
        yield hand


def reading(transport: HandTransport) -> TelemetryReader:
    return TelemetryReader({}, "telemetry", transport=cast("GroupTransport", transport))


def look(
    reader: TelemetryReader,
    transport: HandTransport,
    hand: Hand,
    found: FoundTopic | TransportFailure,
) -> list[bytes]:
    """Let a question be due and get an answer; return the records of the look after it."""
    hand.now_s += 60.0
    before = list(reader.read_now())
    answer = found if isinstance(found, TransportFailure) else {"telemetry": found}
    request, _ = transport.answer(FindTopics, answer)
    assert request.names == ("telemetry",)
    return before + list(reader.read_now())


def test_topic_that_was_made_again_is_read_from_its_beginning(
    consumer: FakeConsumer, transport: HandTransport, hand: Hand
) -> None:
    """It has more records than were read of the old one, so no offset tells the difference."""
    consumer.records = [Record(at, b"g", b"old %d" % at) for at in range(2)]
    with reading(transport) as reader:
        assert list(reader.read_now()) == [b"old 0", b"old 1"]
        transport.answer(FindTopics, {"telemetry": FoundTopic(0, 1, OLD)})
        consumer.records = [Record(at, b"g", b"new %d" % at) for at in range(4)]
        found = look(reader, transport, hand, FoundTopic(0, 1, NEW))
        assert sorted(found) == [b"new 0", b"new 1", b"new 2", b"new 3"]
        assert reader.times_made_again == 1
        assert look(reader, transport, hand, FoundTopic(0, 1, NEW)) == []
        assert reader.times_made_again == 1


@pytest.mark.parametrize("found", [FoundTopic(3, 0, None), FoundTopic(0, 1, None), GONE])
def test_topic_of_which_nothing_is_known_is_read_on(
    consumer: FakeConsumer,
    transport: HandTransport,
    hand: Hand,
    found: FoundTopic | TransportFailure,
) -> None:
    consumer.records = [Record(0, b"g", b"1")]
    with reading(transport) as reader:
        assert list(reader.read_now()) == [b"1"]
        transport.answer(FindTopics, GONE)
        consumer.records.append(Record(1, b"g", b"2"))
        assert look(reader, transport, hand, found) == [b"2"]
        assert reader.times_made_again == 0


def test_topic_whose_id_was_not_told_at_first_was_not_made_again(
    consumer: FakeConsumer, transport: HandTransport, hand: Hand
) -> None:
    with reading(transport) as reader:
        transport.answer(FindTopics, GONE)
        assert look(reader, transport, hand, FoundTopic(0, 1, OLD)) == []
        assert reader.times_made_again == 0
        look(reader, transport, hand, FoundTopic(0, 1, NEW))
        assert reader.times_made_again == 1


def test_another_try_follows_if_the_new_topic_cannot_be_read_yet(
    consumer: FakeConsumer, transport: HandTransport, hand: Hand
) -> None:
    with reading(transport) as reader:
        transport.answer(FindTopics, {"telemetry": FoundTopic(0, 1, OLD)})
        hand.now_s += 60.0
        list(reader.read_now())
        transport.answer(FindTopics, {"telemetry": FoundTopic(0, 1, NEW)})
        consumer.error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        with pytest.raises(ConfigurationError, match="a topic that can be read"):
            list(reader.read_now())
        consumer.error = None
        consumer.records = [Record(0, b"g", b"new")]
        assert look(reader, transport, hand, FoundTopic(0, 1, NEW)) == [b"new"]
        assert reader.times_made_again == 1


def test_new_partitions_of_a_topic_are_read(
    consumer: FakeConsumer, transport: HandTransport, hand: Hand
) -> None:
    """The records of a group move to another partition when the topic grows."""
    consumer.records = [Record(0, b"g", b"1")]
    with reading(transport) as reader:
        list(reader.read_now())
        transport.answer(FindTopics, {"telemetry": FoundTopic(0, 1, OLD)})
        consumer.count = 2
        look(reader, transport, hand, FoundTopic(0, 2, OLD))
        assert consumer.assigned == {0: 1, 1: 0}
        assert reader.times_made_again == 0


def test_one_question_is_under_way_and_the_next_comes_seconds_later(
    consumer: FakeConsumer, transport: HandTransport, hand: Hand
) -> None:
    with reading(transport) as reader:
        for _ in range(3):
            list(reader.read_now())
            hand.now_s += 60.0
        assert len(transport.requests) == 1
        transport.answer(FindTopics, GONE)
        list(reader.read_now())
        transport.answer(FindTopics, GONE)
        hand.now_s += 4.0
        list(reader.read_now())
        assert transport.requests == []
