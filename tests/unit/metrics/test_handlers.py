"""A span for each record that a handler gets."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from confluent_kafka import Message
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from coopgroup.aio import ConsumerRecord
from coopgroup.metrics import traced

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def _tracing() -> tuple[TracerProvider, InMemorySpanExporter]:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider, exporter


def _message(value: bytes | None = b"v") -> Message:
    headers: list[tuple[str, Any]] = [("traceparent", PARENT.encode()), ("bad", b"\xff")]
    return Message(topic="orders", partition=3, offset=42, value=value, headers=headers)


def test_record_of_a_thread_has_a_span_below_that_of_its_sender() -> None:
    provider, exporter = _tracing()
    seen: list[int | None] = []

    def note(message: Message) -> None:
        seen.append(message.offset())

    traced(note, group="g", tracer_provider=provider)(_message())
    (span,) = exporter.get_finished_spans()
    assert (seen, span.name) == ([42], "process orders")
    assert span.parent is not None
    assert f"{span.parent.trace_id:032x}" == PARENT.split("-")[1]
    assert span.attributes == {
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "3",
        "messaging.kafka.offset": 42,
        "messaging.consumer.group.name": "g",
    }


def test_record_of_an_event_loop_has_a_span_too() -> None:
    provider, exporter = _tracing()

    async def handle(record: ConsumerRecord) -> int:
        return record.offset

    record = ConsumerRecord(_message(None))
    assert asyncio.run(traced(handle, tracer_provider=provider)(record)) == 42
    (span,) = exporter.get_finished_spans()
    assert span.attributes is not None
    assert span.attributes["messaging.kafka.message.tombstone"] is True


def test_handler_that_is_none_is_refused() -> None:
    with pytest.raises(TypeError, match="handle expects a callable"):
        traced("print")  # type: ignore[type-var]
