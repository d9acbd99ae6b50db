"""Records are decoded as DeserializingConsumer decodes them."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, Message
from confluent_kafka.error import (
    ConsumeError,
    KeyDeserializationError,
    ValueDeserializationError,
)
from confluent_kafka.serialization import SerializationContext, StringDeserializer

from coopgroup.kafka.records.decoding import Decoder, Deserializer, Deserializers
from tests.unit.kafka.notice_stage import BOTH, Stage, delivery_of, owning


def message(offset: int, value: bytes | None = b"1", key: bytes | None = b"k") -> Message:
    headers: Any = [("h", b"1")]
    return Message(topic="t", partition=0, offset=offset, key=key, value=value, headers=headers)


def number(data: bytes | None, _: SerializationContext) -> int | None:
    return None if data is None else int(data)


def data_of(one: Message) -> tuple[object, object]:
    """Return key and value, whose types are those of bytes for a type checker."""
    return one.key(), one.value()


def decoder_of(key: Any = None, value: Any = number) -> Decoder:  # noqa: ANN401
    return Decoder(Deserializers(key=key, value=value))


def next_offset(stage: Stage) -> list[int]:
    return [one.offset for one in stage.committing.store.due(BOTH)]


def test_deserializers_get_bytes_or_none_and_the_context() -> None:
    seen: list[tuple[object, ...]] = []

    def read(data: bytes | None, context: SerializationContext) -> str:
        seen.append((data, context.topic, context.field, context.headers))
        return f"<{data!r}>"

    [one] = decoder_of(read, read).decode([message(1, value=None)])
    assert data_of(one) == ("<b'k'>", "<None>")
    [plain] = decoder_of(key=StringDeserializer(), value=None).decode([message(1)])
    assert data_of(plain) == ("k", b"1")
    assert seen == [(b"k", "t", "key", [("h", b"1")]), (None, "t", "value", [("h", b"1")])]


@pytest.mark.parametrize(
    ("key", "value", "kind", "name"),
    [
        (number, number, KeyDeserializationError, "_KEY_DESERIALIZATION"),
        (None, number, ValueDeserializationError, "_VALUE_DESERIALIZATION"),
    ],
)
def test_exception_carries_the_record_with_its_bytes(
    key: Deserializer | None, value: Deserializer, kind: type[ConsumeError], name: str
) -> None:
    bad = message(1, value=b"x")
    with pytest.raises(kind, match="invalid literal") as caught:
        decoder_of(key, value).decode([bad])
    assert caught.value.kafka_message is bad
    assert isinstance(caught.value.exception, ValueError)
    assert caught.value.name == name
    assert (bad.key(), bad.value()) == (b"k", b"x")


def test_coroutine_function_is_refused_with_the_record() -> None:
    async def read(data: bytes, _: object) -> bytes:
        return data

    with pytest.raises(ValueDeserializationError, match="must be a plain function"):
        decoder_of(value=read).decode([message(1)])


def test_records_before_a_bad_one_are_returned_first_and_those_after_it_later() -> None:
    stage = owning(*(message(at, value=b"x" if at == 2 else b"1") for at in range(5)))
    delivery = delivery_of(stage, decoder_of())
    first = delivery.take(10, 0)
    assert [(one.offset(), data_of(one)[1]) for one in first] == [(0, 1), (1, 1)]
    assert next_offset(stage)[0] == 2
    with pytest.raises(ValueDeserializationError) as caught:
        delivery.take(10, 0)
    assert caught.value.kafka_message is not None
    assert caught.value.kafka_message.offset() == 2
    assert next_offset(stage)[0] == 3  # as if it had been handed out
    assert [one.offset() for one in delivery.take(10, 0)] == [3, 4]


def test_event_is_raised() -> None:
    end = Message(topic="t", partition=0, offset=2, error=KafkaError(KafkaError._PARTITION_EOF))
    stage = owning(message(0))
    delivery = delivery_of(stage, decoder_of())
    stage.librdkafka.feed([message(1), end])
    assert data_of(delivery.take(1, 0)[0]) == (b"k", 1)
    with pytest.raises(ConsumeError) as caught:
        [*delivery.take(1, 0), *delivery.take(1, 0)]
    assert caught.value.code == KafkaError._PARTITION_EOF


def test_processing_gets_bytes_and_decodes_around_the_handler() -> None:
    decoder = decoder_of()
    decoder.is_paused = True
    [one] = delivery_of(owning(message(0, value=b"7")), decoder).take(1, 0)
    assert one.value() == b"7"
    with decoder.decoding(one):
        assert data_of(one) == (b"k", 7)
    [one] = delivery_of(owning(message(0, value=b"7")), decoder).take(1, 0)
    with pytest.raises(OSError, match="no disk"), decoder.decoding(one):
        raise OSError("no disk")
    assert one.value() == b"7"  # for a dead letter
