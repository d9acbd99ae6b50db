"""Send a failed record to a topic for failed records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

from attrs import define, field
from confluent_kafka import KafkaError, KafkaException

from coopgroup.processing.failures import DeadLetter, Failure

Headers: TypeAlias = "Sequence[tuple[str, bytes | str | None]] | Mapping[str, bytes | str | None]"

_TIMESTAMP_NOT_AVAILABLE = 0


@define(eq=False)
class Delivery:
    """A record on its way to the topic for failed records.

    Attributes:
        is_done: the broker has answered.
        error: the broker's refusal.
    """

    produce: Callable[..., object]
    is_done: bool = field(default=False, init=False)
    error: KafkaError | None = field(default=None, init=False)
    _is_queued: bool = field(default=False, init=False)

    def begin(self) -> None:
        """Put the record into the producer's queue, unless it is full or has the record already.

        Raises:
            KafkaException: the producer refuses the record.
        """
        if not self._is_queued:
            with suppress(BufferError):
                self.produce(on_delivery=self)
                self._is_queued = True

    def __call__(self, error: KafkaError | None, _: object) -> None:
        """Note the broker's answer; librdkafka calls this in `producer.poll`."""
        self.error = error
        self.is_done = True

    def check(self, topic: str) -> None:
        """Raise the broker's refusal, or that no answer came.

        Raises:
            KafkaException: the record is not in the topic, or this is not known.
        """
        if not self.is_done:
            text = f"no answer for a dead letter to {topic!r}"
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, text))
        if self.error is not None:
            raise KafkaException(self.error)


def send(letter: DeadLetter, failure: Failure, group_id: str) -> Delivery:
    """Begin to send a failed record.

    Call `letter.producer.poll` and then `begin` until the delivery is done. At first the queue of
    the producer may be full.

    Raises:
        KafkaException: the producer refuses the record.
    """
    message = failure.message
    arguments: dict[str, Any] = {
        "key": message.key(),
        "value": message.value(),
        "headers": _headers(failure, group_id),
    }
    kind, timestamp_ms = message.timestamp()
    if kind != _TIMESTAMP_NOT_AVAILABLE:
        arguments["timestamp"] = timestamp_ms
    delivery = Delivery(partial(letter.producer.produce, letter.topic, **arguments))
    delivery.begin()
    return delivery


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
