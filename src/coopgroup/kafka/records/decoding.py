"""Deserializers: `key.deserializer` and `value.deserializer`, as in DeserializingConsumer.

Records wait as bytes, and are decoded when they leave. A record that cannot be decoded leaves in
the exception and counts as handed out, as in DeserializingConsumer. So the next call continues
after it, and the records beside it stay in the buffer.

Without deserializers nothing here runs. With them, `poll` has no hot path (`ConsumerParts.ready`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from attrs import define, field, frozen
from confluent_kafka import Message
from confluent_kafka.error import (
    ConsumeError,
    KeyDeserializationError,
    ValueDeserializationError,
)
from confluent_kafka.serialization import MessageField, SerializationContext

Deserializer: TypeAlias = Callable[[Any, SerializationContext], Any]


@frozen(kw_only=True)
class Deserializers:
    """The deserializers of a configuration; each is called with bytes or None, and the context."""

    key: Deserializer | None
    value: Deserializer | None


@define(eq=False)
class Decoder:
    """Decodes the records of one consumer, on the thread that takes them.

    Attributes:
        is_paused: whether records leave as bytes: `process` decodes them beside the handlers.
    """

    deserializers: Deserializers
    is_paused: bool = field(default=False, init=False)

    def decode(self, messages: Sequence[Message]) -> list[Message]:
        """Decode records in place, up to the first that cannot be decoded; return these.

        Raises:
            ConsumeError: the first message is an error event, or cannot be decoded.
        """
        decoded: list[tuple[object, object]] = []
        for message in messages:
            try:
                decoded.append(self._decoded(message))
            except ConsumeError:
                if not decoded:
                    raise
                break
        done = list(messages[: len(decoded)])
        with _undone_by_errors(done):
            for message, (key, value) in zip(done, decoded, strict=True):
                message.set_key(key)
                message.set_value(value)
        return done

    @contextmanager
    def decoding(self, message: Message) -> Iterator[None]:
        """Decode a record for a handler; it has its bytes again if the handler raises.

        Raises:
            ConsumeError: the record cannot be decoded.
        """
        with _undone_by_errors([message]):
            self.decode([message])
            yield

    def _decoded(self, message: Message) -> tuple[object, object]:
        if message.error() is not None:
            raise error_of(message)
        context = SerializationContext(message.topic() or "", MessageField.KEY, message.headers())
        key: Any = message.key()
        value: Any = message.value()
        try:
            key = _called(self.deserializers.key, key, context)
        except Exception as error:
            raise KeyDeserializationError(exception=error, kafka_message=message) from error
        context.field = MessageField.VALUE
        try:
            value = _called(self.deserializers.value, value, context)
        except Exception as error:
            raise ValueDeserializationError(exception=error, kafka_message=message) from error
        return key, value


@contextmanager
def _undone_by_errors(messages: Sequence[Message]) -> Iterator[None]:
    """Give messages back their bytes if the block raises, such as by Ctrl-C."""
    before: list[tuple[Any, Any]] = [(one.key(), one.value()) for one in messages]
    try:
        yield
    except BaseException:
        for message, (key, value) in zip(messages, before, strict=True):
            message.set_key(key)
            message.set_value(value)
        raise


def error_of(event: Message) -> ConsumeError:
    """Return the exception of an error event."""
    error: Any = event.error()
    return ConsumeError(error, kafka_message=event)


def _called(deserializer: Deserializer | None, given: Any, context: SerializationContext) -> Any:  # noqa: ANN401
    """Return what a deserializer returns, or the bytes without a deserializer.

    Raises:
        TypeError: the deserializer is a coroutine function.
    """
    if deserializer is None:
        return given
    result = deserializer(given, context)
    if inspect.iscoroutine(result):
        result.close()
        raise TypeError("the deserializer returned a coroutine: it must be a plain function")
    return result
