"""A client of librdkafka that has lost all brokers is replaced, and no record is lost by it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Message, TopicPartition

from coopgroup.core.model import ResourceSet
from coopgroup.kafka.records.fetching import Fetching
from tests.unit.kafka.fakes import FakeCoordinator, FakeLibrdkafka, record, starts


class Stage:
    """A consumer with a clock of its own, whose clients the test makes silent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *begin: TopicPartition) -> None:
        self.now_s = 100.0
        monkeypatch.setattr("coopgroup.kafka.records.fetching.now_s", lambda: self.now_s)
        self.clients = [FakeLibrdkafka()]
        self.brokers_are_gone = False
        self.refusal: Exception | None = None
        self.warnings: list[str] = []
        self.questions: list[float] = []
        self.coordinator = FakeCoordinator(logs={("t", 1): (3, 9), ("t", 2): (0, 50)})
        offsets = starts(self.coordinator)
        offsets.warn = lambda event, **_: self.warnings.append(event)
        self.fetching = Fetching(self.clients[0], offsets, renew=self._renew)
        self.fetching.begin(begin or [TopicPartition("t", 0, 7)])
        ask = FakeLibrdkafka.list_topics

        def asked(client: FakeLibrdkafka, topic: str, *, timeout: float) -> None:
            self.questions.append(self.now_s)
            ask(client, topic, timeout=timeout)

        monkeypatch.setattr(FakeLibrdkafka, "list_topics", asked)

    @contextmanager
    def _renew(self) -> Iterator[FakeLibrdkafka]:
        if self.refusal is not None:
            raise self.refusal
        self.clients.append(FakeLibrdkafka(without_broker=self.brokers_are_gone))
        yield self.clients[-1]

    def get(self, *messages: Message) -> None:
        """Let the current client return records, and hand them out."""
        self.clients[-1].feed(messages)
        self.fetching.fetch(len(messages), 0)
        self.fetching.record_buffer.take(len(messages))

    def play(self, seconds: int) -> None:
        for _ in range(10 * seconds):
            self.now_s += 0.1
            self.fetching.fetch(1, 0)

    def lose_brokers(self) -> None:
        self.clients[-1].without_broker = True


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(monkeypatch)


def positions(fetching: Fetching, count: int) -> list[int]:
    return [
        one.offset for one in fetching.positions([TopicPartition("t", n) for n in range(count)])
    ]


def test_a_silent_client_without_brokers_is_replaced_within_16_seconds(stage: Stage) -> None:
    stage.get(record(0, 7), record(0, 8))
    stage.lose_brokers()
    stage.play(16)
    assert [client.calls for client in stage.clients[1:]] == [[("assign", [(0, 9)])]]
    assert stage.warnings == ["consumer_replaced"]
    assert positions(stage.fetching, 1) == [9]
    stage.get(record(0, 9))
    assert positions(stage.fetching, 1) == [10]


def test_a_silent_client_with_brokers_stays_and_is_asked_every_ten_seconds(stage: Stage) -> None:
    stage.play(125)
    assert len(stage.clients) == 1
    assert len(stage.questions) == 12


@pytest.mark.parametrize("wanted", [1, 2])
def test_a_client_that_returns_records_is_never_asked(stage: Stage, wanted: int) -> None:
    for offset in range(7, 40):
        stage.now_s += 5
        stage.clients[0].feed([record(0, offset)])
        stage.fetching.fetch(wanted, 0)
    assert stage.questions == []


def test_each_partition_goes_on_at_its_next_record(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = [
        TopicPartition("t", 0, 7),
        TopicPartition("t", 1, OFFSET_BEGINNING),
        TopicPartition("t", 2, OFFSET_END),
        TopicPartition("t", 4, 0),
    ]
    stage = Stage(monkeypatch, *begin)
    stage.get(record(0, 7))
    stage.clients[0].feed([record(0, 8)])
    stage.fetching.fetch(1, 0)  # this record waits in the hand-out
    stage.coordinator.logs["t", 2] = (0, 60)  # records that came meanwhile are not left out
    stage.fetching.seek(TopicPartition("t", 4, 30))
    stage.fetching.pause([TopicPartition("t", 4)], stage.fetching.fetched, "application")
    stage.lose_brokers()
    stage.play(16)
    assert stage.clients[1].calls == [
        ("assign", [(0, 9), (1, 3), (2, 50), (4, 30)]),
        ("pause", [(4, 30)]),
    ]
    assert positions(stage.fetching, 1) == [8]


@pytest.mark.parametrize("is_async", [False, True])
def test_new_client_is_paused_as_the_old_one(
    monkeypatch: pytest.MonkeyPatch, *, is_async: bool
) -> None:
    """With asyncio a short pause of the application does not reach librdkafka, nor does its end."""
    stage = Stage(monkeypatch, *(TopicPartition("t", number, 7) for number in range(3)))
    if is_async:
        stage.fetching.paused_there = {("t", 1)}
    stage.fetching.record_buffer.pause([("t", 0), ("t", 1)])
    stage.lose_brokers()
    stage.play(20)
    assert len(stage.clients) == 2
    [paused] = [places for name, places in stage.clients[1].calls if name == "pause"]
    assert [number for number, _ in paused] == ([1] if is_async else [0, 1])


@pytest.mark.parametrize("change", ["seek", "end", "begin"])
def test_a_client_is_not_replaced_while_a_signal_handler_changes_the_partitions(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    calls: dict[str, Callable[[], None]] = {
        "seek": lambda: stage.fetching.seek(TopicPartition("t", 0, 30)),
        "end": lambda: stage.fetching.end(ResourceSet({"t": [0]})),
        "begin": lambda: stage.fetching.begin([TopicPartition("t", 1, 30)]),
    }
    assign = FakeLibrdkafka.incremental_assign

    def interrupted(client: FakeLibrdkafka, partitions: list[TopicPartition]) -> None:
        assign(client, partitions)
        if client is stage.clients[1]:
            calls[change]()

    stage.get(record(0, 7))
    stage.lose_brokers()
    stage.play(13)
    monkeypatch.setattr(FakeLibrdkafka, "incremental_assign", interrupted)
    stage.play(2)
    assert len(stage.clients) == 1 + 1
    assert stage.fetching.consumer is stage.clients[0]
    assert stage.warnings == []


def test_a_client_that_cannot_be_made_is_tried_again(stage: Stage) -> None:
    stage.refusal = RuntimeError("no token")
    stage.lose_brokers()
    stage.play(16)
    assert (len(stage.clients), stage.warnings) == (1, ["consumer_not_replaced"])
    stage.refusal = None
    stage.play(16)
    assert (len(stage.clients), stage.warnings[-1]) == (2, "consumer_replaced")
