"""`OpenTelemetrySpans`: one span for each rebalance that a member takes part in.

A span begins when the member leaves its settled state, and ends when it is settled again or out of
the group. It covers all rounds of the rebalance, and has an event for each assignment, revocation,
loss and decision of the leader. Its times are those of the telemetry.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Mapping
from typing import Any, Final

from attrs import define, field
from opentelemetry.trace import (
    Span,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    TracerProvider,
    get_tracer_provider,
)

from coopgroup.metrics.events import cause_of
from coopgroup.metrics.feed import Probe
from coopgroup.metrics.names import CommonLabels, of_member
from coopgroup.metrics.record_queue import RecordQueue
from coopgroup.telemetry import (
    AssignmentReceived,
    Envelope,
    MembershipLost,
    Record,
    RequestRefused,
    ResourcesStarted,
    ResourcesStopped,
    RoundDecided,
    RoundRefused,
    StateChanged,
)

_NS_PER_MS: Final = 1_000_000
_OUTSIDE: Final = frozenset({"unsubscribed", "failed"})
# The event of each kind of record: its name, and the fields that it shows.
_EVENTS: Final[Mapping[type[Record], tuple[str, tuple[str, ...]]]] = types.MappingProxyType(
    {
        AssignmentReceived: ("assignment", ("leader", "gained", "kept", "revoked")),
        ResourcesStopped: ("revocation", ("resources", "reason", "duration_ms")),
        ResourcesStarted: ("start", ("resources",)),
        MembershipLost: ("loss", ("resources", "cause")),
        RoundDecided: ("decision", ("members", "granted", "revoked", "waiting", "lost")),
        RoundRefused: ("refused round", ("violations",)),
        RequestRefused: ("refused request", ("request", "error")),
    }
)
_ATTRIBUTES: Final = types.MappingProxyType(
    {"resources": "coopgroup.partitions", "error": "error.type"}
)


class OpenTelemetrySpans:
    """Spans of rebalances, for `coopgroup.telemetry.listener`.

    Args:
        tracer_provider: the global provider if not given.
    """

    def __init__(self, *, tracer_provider: TracerProvider | None = None) -> None:
        provider = get_tracer_provider() if tracer_provider is None else tracer_provider
        self._tracer = provider.get_tracer("coopgroup")
        self._queue: RecordQueue[MemberSpans] = RecordQueue(
            take=lambda spans, envelope: spans.take(envelope)
        )
        self._unbound: dict[CommonLabels, MemberSpans] = {}

    def watch_member(self, probe: Probe) -> MemberSpans:
        """Return the listener of one member; a consumer calls it when it is made."""
        health = probe.read()
        labels = health.group_id, health.client_id, health.instance_id
        return MemberSpans(self._tracer, labels, self._queue)

    def __call__(self, envelope: Envelope) -> None:
        """Queue a record that does not come from a consumer, such as one that was read back."""
        labels = envelope.group, envelope.client, ""
        spans = self._unbound.get(labels)
        if spans is None:
            spans = self._unbound[labels] = MemberSpans(self._tracer, labels, self._queue)
        spans(envelope)

    def drain(self) -> None:
        """Make the spans of all waiting records, for example before the exporter is flushed."""
        self._queue.drain()


@define(eq=False, weakref_slot=True)
class MemberSpans:
    """The telemetry listener of one member, with its open span."""

    tracer: Tracer
    labels: CommonLabels
    queue: RecordQueue[MemberSpans]
    _span: Span | None = field(default=None, init=False)
    _rounds: int = field(default=0, init=False)

    def __call__(self, envelope: Envelope) -> None:
        """Queue a record; never waits."""
        self.queue.put(self, envelope)

    def take(self, envelope: Envelope) -> None:
        """Begin, extend or end the span."""
        record, at_ns = envelope.record, envelope.at_ms * _NS_PER_MS
        if isinstance(record, StateChanged):
            self._move(record, envelope, at_ns)
            return
        if self._span is None:
            return
        told = _event(record)
        if told is not None:
            name, attributes = told
            self._span.add_event(name, attributes, at_ns)
        if isinstance(record, AssignmentReceived):
            self._rounds += 1
        if isinstance(record, MembershipLost):
            self._span.set_status(Status(StatusCode.ERROR, record.cause))

    def _move(self, record: StateChanged, envelope: Envelope, at_ns: int) -> None:
        if self._span is None:
            if record.after not in _OUTSIDE | {"stable", "leaving"}:
                self._begin(record, at_ns)
        elif record.after == "stable" or record.after in _OUTSIDE:
            self._span.set_attribute("coopgroup.rounds", self._rounds)
            self._span.set_attribute("coopgroup.generation", envelope.generation)
            self._span.set_attribute("coopgroup.member_id", envelope.member)
            if record.after == "failed":
                self._span.set_status(Status(StatusCode.ERROR, record.cause))
            self._span.end(at_ns)
            self._span = None

    def _begin(self, record: StateChanged, at_ns: int) -> None:
        self._rounds = 0
        self._span = self.tracer.start_span(
            f"rebalance {self.labels[0]}",
            kind=SpanKind.INTERNAL,
            start_time=at_ns,
            attributes={
                **of_member(self.labels),
                "coopgroup.cause": cause_of(record.cause),
                "coopgroup.cause.text": record.cause,
            },
        )


def _event(record: Record) -> tuple[str, dict[str, str | int | bool]] | None:
    """Return name and attributes of the event of a record; None if it has none."""
    if type(record) not in _EVENTS:
        return None
    name, fields = _EVENTS[type(record)]
    values = ((one, _plain(one, getattr(record, one))) for one in fields)
    return name, {_ATTRIBUTES.get(one, f"coopgroup.{one}"): value for one, value in values}


def _plain(name: str, value: Any) -> str | int | bool:  # noqa: ANN401  (a field of a record)
    """Return a value of an attribute: sets and members are counted."""
    if name == "violations":
        return "; ".join(value)
    if isinstance(value, enum.Enum):
        return str(value.value)
    return value if isinstance(value, str | int) else len(value)
