"""`traced`: a span for each record that a handler gets.

The instrumentation of confluent_kafka replaces its `Consumer`, and does not see the consumers of
coopgroup. `traced` makes a span for each record, with the sender's context as parent.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from opentelemetry import propagate
from opentelemetry.trace import Span, SpanKind, Tracer, TracerProvider, get_tracer_provider

_Handler = TypeVar("_Handler", bound=Callable[..., Any])


def traced(
    handle: _Handler, *, group: str = "", tracer_provider: TracerProvider | None = None
) -> _Handler:
    """Return a handler that makes a span for each record.

    Args:
        handle: a function or a coroutine function whose first argument is a record: a
            `confluent_kafka.Message`, or a `ConsumerRecord` of `coopgroup.aio`.
        group: name of the group, for the attribute `messaging.consumer.group.name`.
        tracer_provider: the global provider if not given.

    Raises:
        TypeError: `handle` cannot be called.
    """
    if not callable(handle):
        raise TypeError("handle expects a callable that takes a record")
    provider = get_tracer_provider() if tracer_provider is None else tracer_provider
    tracer = provider.get_tracer("coopgroup")
    called: Any
    if inspect.iscoroutinefunction(handle):

        @functools.wraps(handle)
        async def called_later(record: Any, *more: Any, **named: Any) -> Any:  # noqa: ANN401
            with _span(tracer, record, group):
                return await handle(record, *more, **named)

        called = called_later
    else:

        @functools.wraps(handle)
        def called_now(record: Any, *more: Any, **named: Any) -> Any:  # noqa: ANN401
            with _span(tracer, record, group):
                return handle(record, *more, **named)

        called = called_now
    found: _Handler = called
    return found


@contextmanager
def _span(tracer: Tracer, record: object, group: str) -> Iterator[Span]:
    topic = _of(record, "topic")
    attributes: dict[str, Any] = {
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": topic,
        "messaging.destination.partition.id": str(_of(record, "partition")),
        "messaging.kafka.offset": _of(record, "offset"),
    }
    if group:
        attributes["messaging.consumer.group.name"] = group
    if _of(record, "value") is None:
        attributes["messaging.kafka.message.tombstone"] = True
    with tracer.start_as_current_span(
        f"process {topic}",
        context=propagate.extract(_carrier(record)),
        kind=SpanKind.CONSUMER,
        attributes=attributes,
    ) as span:
        yield span


def _of(record: object, name: str) -> Any:  # noqa: ANN401  (of a record)
    """Return a field: a method of a `Message`, an attribute of a `ConsumerRecord`."""
    found = getattr(record, name)
    return found() if callable(found) else found


def _carrier(record: object) -> Mapping[str, str]:
    """Return the headers of a record that are text."""
    headers = _of(record, "headers") or ()
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    carrier = {}
    for name, value in pairs:
        try:
            carrier[name] = value.decode() if isinstance(value, bytes) else str(value or "")
        except UnicodeDecodeError:
            continue
    return carrier
