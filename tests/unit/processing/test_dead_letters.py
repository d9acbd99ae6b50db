"""Records that go to a topic for failed records."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from coopgroup.errors import ConfigurationError
from coopgroup.processing import DeadLetter, Failure
from coopgroup.processing.dead_letters import deliver
from tests.support.fake_records import FakeProducer, FakeRecord


def failure() -> Failure:
    message: Any = FakeRecord(number=3, at=9)
    return Failure(message=message, error=ValueError("bad"), attempt=2)


def delivery(producer: FakeProducer) -> Iterator[FakeProducer]:
    """Begin a delivery that has 30 looks at the clock."""
    seconds = count()
    letter = DeadLetter(producer, "failed")
    return deliver(letter, failure(), "billing", lambda: float(next(seconds)))


def test_dead_letter_waits_for_room_in_the_queue_of_the_producer() -> None:
    producer = FakeProducer(is_full=True)
    for one in delivery(producer):
        one.poll(0)
    assert len(producer.sent) == 1


def test_dead_letter_without_an_answer_is_an_error() -> None:
    producer = FakeProducer()
    with pytest.raises(KafkaException, match="no answer for a dead letter to 'failed'"):
        list(delivery(producer))
    assert len(producer.sent) == 1


def test_refused_dead_letter_is_an_error() -> None:
    steps = delivery(FakeProducer(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)))
    next(steps).poll(0)
    with pytest.raises(KafkaException, match="MSG_SIZE_TOO_LARGE"):
        next(steps)


def test_dead_letter_is_the_record_with_its_place_and_the_error() -> None:
    producer = FakeProducer()
    for one in delivery(producer):
        one.poll(0)

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
