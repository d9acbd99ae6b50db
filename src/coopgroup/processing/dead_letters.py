"""Send a failed record to a topic for failed records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from coopgroup.processing.failures import DeadLetter, Failure

_TIMESTAMP_NOT_AVAILABLE = 0


def deliver(
    letter: DeadLetter, failure: Failure, group_id: str, now_s: Callable[[], float]
) -> Iterator[Any]:
    """Send a failed record; yield the producer each time the caller must call its `poll`.

    The iterator ends when the broker has the record.

    Raises:
        KafkaException: the producer or the broker refuses the record, or no answer came in time.
    """
    until_s = now_s() + letter.timeout_ms / 1000
    arguments = _arguments(failure, group_id)
    answers: list[KafkaError | None] = []
    is_queued = False
    while not answers and now_s() < until_s:
        if not is_queued:
            with suppress(BufferError):  # the queue of the producer is full
                letter.producer.produce(
                    letter.topic, **arguments, on_delivery=lambda error, _: answers.append(error)
                )
                is_queued = True
        yield letter.producer
    if not answers:
        text = f"no answer for a dead letter to {letter.topic!r}"
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, text))
    if answers[0] is not None:
        raise KafkaException(answers[0])


def _arguments(failure: Failure, group_id: str) -> dict[str, Any]:
    message = failure.message
    kind, timestamp_ms = message.timestamp()
    return {
        "key": message.key(),
        "value": message.value(),
        "headers": _headers(failure, group_id),
        **({} if kind == _TIMESTAMP_NOT_AVAILABLE else {"timestamp": timestamp_ms}),
    }


def _headers(failure: Failure, group_id: str) -> list[tuple[str, bytes | str | None]]:
    message, given = failure.message, failure.message.headers() or []
    headers = list(given.items()) if isinstance(given, Mapping) else list(given)
    error = f"{type(failure.error).__name__}: {failure.error}"
    return [
        *headers,
        ("coopgroup.topic", str(message.topic())),
        ("coopgroup.partition", str(message.partition())),
        ("coopgroup.offset", str(message.offset())),
        ("coopgroup.group", group_id),
        ("coopgroup.error", error),
    ]
