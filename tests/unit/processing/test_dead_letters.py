"""Records that go to a topic for failed records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from attrs import define, field
from confluent_kafka import KafkaError, KafkaException

from coopgroup.errors import ConfigurationError
from coopgroup.processing import DeadLetter, Failure
from coopgroup.processing.dead_letters import send
from tests.support.fake_records import FakeRecord


@define(eq=False)
class FakeProducer:
    """Answers each record at the next `poll`."""

    error: KafkaError | None = None
    sent: list[dict[str, Any]] = field(factory=list)
    waiting: list[Callable[..., None]] = field(factory=list)

    is_full: bool = False

    def produce(self, topic: str, **arguments: Any) -> None:  # noqa: ANN401
        if self.is_full:
            raise BufferError("Local: Queue full")
        self.waiting.append(arguments.pop("on_delivery"))
        self.sent.append({"topic": topic, **arguments})

    def poll(self, _: float) -> None:
        self.is_full = False
        for on_delivery in self.waiting:
            on_delivery(self.error, None)
        self.waiting.clear()


def failure() -> Failure:
    message: Any = FakeRecord(number=3, at=9)
    return Failure(message=message, error=ValueError("bad"), attempt=2)


def test_dead_letter_waits_for_room_in_the_queue_of_the_producer() -> None:
    producer = FakeProducer(is_full=True)
    delivery = send(DeadLetter(producer, "failed"), failure(), "billing")
    with pytest.raises(KafkaException, match="no answer for a dead letter to 'failed'"):
        delivery.check("failed")
    for _ in range(3):
        producer.poll(0)
        delivery.begin()
    delivery.check("failed")
    assert len(producer.sent) == 1


def test_refused_dead_letter_is_an_error() -> None:
    producer = FakeProducer(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
    delivery = send(DeadLetter(producer, "failed"), failure(), "billing")
    producer.poll(0)
    with pytest.raises(KafkaException, match="MSG_SIZE_TOO_LARGE"):
        delivery.check("failed")


def test_dead_letter_is_the_record_with_its_place_and_the_error() -> None:
    producer = FakeProducer()
    delivery = send(DeadLetter(producer, "failed"), failure(), "billing")
    assert not delivery.is_done
    producer.poll(0)
    delivery.check("failed")

    (sent,) = producer.sent
    assert (sent["topic"], sent["key"], sent["value"]) == ("failed", b"k", b"12345")
    assert sent["timestamp"] == 1_000
    assert sent["headers"] == [
        ("h", b"1"),
        ("coopgroup.topic", "t"),
        ("coopgroup.partition", "3"),
        ("coopgroup.offset", "9"),
        ("coopgroup.group", "billing"),
        ("coopgroup.error", "ValueError: bad"),
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((None, "failed"), "producer: got None, expected a confluent_kafka.Producer"),
        ((FakeProducer(), ""), "topic: got '', expected the name of a topic"),
    ],
)
def test_wrong_dead_letter_is_refused(arguments: tuple[Any, Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        DeadLetter(*arguments)
    assert str(caught.value) == message
