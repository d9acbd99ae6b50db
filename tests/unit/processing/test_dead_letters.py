"""Records that go to a topic for failed records."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from coopgroup.errors import ConfigurationError
from coopgroup.processing import DeadLetter, Failure
from coopgroup.processing.dead_letters import Way, deliver
from tests.support.fake_records import FakeProducer, FakeRecord

PLACE = [
    ("coopgroup.topic", b"t"),
    ("coopgroup.partition", b"3"),
    ("coopgroup.offset", b"9"),
    ("coopgroup.group", b"billing"),
]


def delivery(
    producer: FakeProducer,
    error: Exception | None = None,
    way: Way | None = None,
    **fields: Any,  # noqa: ANN401
) -> Iterator[FakeProducer]:
    """Begin a delivery that has 30 looks at the clock."""
    seconds = count()
    letter = DeadLetter(producer, "failed")
    message: Any = FakeRecord(number=3, at=9, **fields)
    failure = Failure(message=message, error=error or ValueError("bad"), attempt=2)
    return deliver(letter, failure, "billing", lambda: float(next(seconds)), way or Way())


def sent(producer: FakeProducer, *arguments: Any, **fields: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return the last record that was sent."""
    for one in delivery(producer, *arguments, **fields):
        one.poll(0)
    return producer.sent[-1]


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
    producer = FakeProducer(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        sent(producer)
    assert len(producer.sent) == 1


def test_dead_letter_is_the_record_with_its_place_and_the_error() -> None:
    letter = sent(FakeProducer())
    assert (letter["topic"], letter["key"], letter["value"]) == ("failed", b"k", b"12345")
    assert letter["timestamp"] == 1_000
    assert letter["headers"] == [("h", b"1"), *PLACE, ("coopgroup.error", b"ValueError: bad")]


class Unspeakable(Exception):  # noqa: N818
    def __str__(self) -> str:
        raise OSError("no text")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("file \udcff"), "ValueError: file \\udcff"),
        (ValueError("a\0b"), "ValueError: a\0b"),
        (ValueError("ü" * 300_000), "ValueError: " + "ü" * 1_992 + "…"),
        (ValueError("\udcff" * 300_000), "ValueError: " + "\\udcff" * 664 + "\\…"),
        (LookupError(), "LookupError"),
        (Unspeakable(), "Unspeakable, whose text raises OSError"),
    ],
)
def test_dead_letter_has_a_short_text_that_any_reader_can_decode(
    error: Exception, text: str
) -> None:
    found = dict(sent(FakeProducer(), error)["headers"])["coopgroup.error"]
    assert found.decode() == text
    assert len(found) <= 4_000


@pytest.mark.parametrize(
    "given",
    [
        None,
        [],
        {"coopgroup.topic": b"before"},
        [("coopgroup.topic", b"before"), ("coopgroup.error", None)],
    ],
)
def test_dead_letter_of_a_dead_letter_has_only_its_own_place(given: object) -> None:
    letter = sent(FakeProducer(), its_headers=given)
    assert letter["headers"] == [*PLACE, ("coopgroup.error", b"ValueError: bad")]


@pytest.mark.parametrize("is_local", [True, False])
@pytest.mark.parametrize("code", [KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE])
@pytest.mark.parametrize(
    ("size", "left_out"), [(10, None), (800, "error"), (2_000, "key, value, headers")]
)
def test_dead_letter_that_is_too_large_leaves_something_out(
    size: int, left_out: str | None, code: int, *, is_local: bool
) -> None:
    producer = FakeProducer(KafkaError(code), bytes_max=1_000, is_local=is_local)
    letter = sent(producer, ValueError("x" * 500), its_value=bytes(size))
    headers = dict(letter["headers"])
    assert headers.items() >= dict(PLACE).items()
    assert headers.get("coopgroup.left_out") == (left_out and left_out.encode())
    is_whole = size < 1_000
    assert (letter["key"], letter["value"]) == ((b"k", bytes(size)) if is_whole else (None, None))
    assert ("h" in headers) is is_whole
    assert ("coopgroup.error" in headers) is (left_out != "error")


def test_dead_letter_that_is_too_large_without_the_record_is_an_error() -> None:
    with pytest.raises(KafkaException, match="MSG_SIZE_TOO_LARGE"):
        sent(FakeProducer(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)))


def test_dead_letters_of_a_batch_that_is_too_large_are_sent_one_at_a_time() -> None:
    producer = FakeProducer(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), bytes_max=1_000)
    way = Way()
    letters = [delivery(producer, way=way, its_value=bytes(600)) for _ in range(3)]
    for _ in range(10):
        letters = [one for one in letters if next(one, None) is not None]
        producer.poll(0)
    assert letters == []
    assert [len(one["value"]) for one in producer.sent] == 6 * [600]


def test_dead_letter_that_nobody_waits_for_gives_way() -> None:
    """A task was cancelled."""
    producer = FakeProducer(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), bytes_max=1_000)
    way = Way()
    alone = delivery(producer, way=way, its_value=bytes(2_000))
    for _ in range(2):
        next(alone).poll(0)
    assert next(alone) is producer
    del alone
    assert sent(producer, way=way)["value"] == b"12345"


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
