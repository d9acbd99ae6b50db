"""One span for each rebalance, with its rounds as events."""

from __future__ import annotations

from collections.abc import Iterable

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from coopgroup.core.model import ResourceSet
from coopgroup.metrics import OpenTelemetrySpans
from coopgroup.telemetry import (
    AssignmentReceived,
    Envelope,
    MembershipLost,
    Record,
    RequestRefused,
    ResourcesStopped,
    RoundDecided,
    StateChanged,
    StopReason,
)
from tests.unit.metrics.members import GivenProbe

A = ResourceSet({"t": [0]})
JOINED = StateChanged(before="joining", after="syncing", cause="joined")


def _state(before: str, after: str, cause: str = "x") -> StateChanged:
    return StateChanged(before=before, after=after, cause=cause)


def _spans(records: Iterable[Record]) -> tuple[ReadableSpan, ...]:
    """Return the ended spans of one member that wrote a record each 100 ms."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    spans = OpenTelemetrySpans(tracer_provider=provider)
    listener = spans.watch_member(GivenProbe())
    for number, record in enumerate(records):
        at_ms = 1_000 + 100 * number
        listener(Envelope(at_ms=at_ms, group="g", member="m", generation=3, record=record))
    spans.drain()
    return exporter.get_finished_spans()


def test_rebalance_of_two_rounds_is_one_span() -> None:
    (span,) = _spans(
        [
            _state("stable", "joining", "a round has begun"),
            JOINED,
            AssignmentReceived(leader=True, revoked=A, follow_up=True),
            _state("syncing", "revoking"),
            ResourcesStopped(resources=A, reason=StopReason.REVOKED, duration_ms=90),
            _state("revoking", "joining", "revocation completed"),
            RoundDecided(policy="simple", assignor="sticky", members=("m", "n"), granted=A),
            AssignmentReceived(leader=True),
            _state("syncing", "stable"),
        ]
    )
    assert span.name == "rebalance g"
    assert span.attributes is not None
    assert span.attributes["coopgroup.cause"] == "other_member"
    assert span.attributes["coopgroup.rounds"] == 2
    assert span.attributes["messaging.consumer.group.name"] == "g"
    assert (span.start_time, span.end_time) == (1_000_000_000, 1_800_000_000)
    names = [one.name for one in span.events]
    assert names == ["assignment", "revocation", "decision", "assignment"]
    assert span.events[1].attributes == {
        "coopgroup.partitions": 1,
        "coopgroup.reason": "revoked",
        "coopgroup.duration_ms": 90,
    }
    assert span.status.is_ok or span.status.is_unset


def test_lost_membership_is_an_error_of_the_span() -> None:
    (span,) = _spans(
        [
            _state("stable", "losing", "lease expired"),
            MembershipLost(resources=A, cause="lease expired"),
            RequestRefused(request="JoinGroup", error="NOT_COORDINATOR", action="seek"),
            _state("losing", "joining", "loss handled"),
            AssignmentReceived(leader=False),
            _state("syncing", "stable"),
        ]
    )
    assert (span.status.is_ok, span.status.description) == (False, "lease expired")
    assert [one.name for one in span.events] == ["loss", "refused request", "assignment"]


def test_member_that_fails_or_leaves_ends_its_span() -> None:
    (failed,) = _spans([_state("unsubscribed", "joining"), _state("joining", "failed", "fenced")])
    assert failed.status.description == "fenced"
    assert _spans([_state("stable", "leaving"), _state("leaving", "unsubscribed")]) == ()
