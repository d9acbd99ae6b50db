"""Reading telemetry from a topic, beside a consumer that a test fills."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from attrs import define, field
from confluent_kafka import KafkaError, TopicPartition

from coopgroup.errors import ConfigurationError, CoopgroupError
from coopgroup.watch import telemetry_topics
from coopgroup.watch.telemetry_topics import TelemetryReader

WAIT_S = 60


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

    def list_topics(self, topic: str, timeout: float) -> Any:  # noqa: ANN401
        assert timeout >= 0
        found = SimpleNamespace(error=self.error, partitions={0: None})
        return SimpleNamespace(topics={topic: found})

    def get_watermark_offsets(self, _: TopicPartition, timeout: float) -> tuple[int, int]:
        assert timeout >= 0
        last = self.records[-1].at + 1 if self.records else self.begin
        return self.begin, last + self.gaps

    def assign(self, places: list[TopicPartition]) -> None:
        (place,) = places
        self.at = place.offset

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
