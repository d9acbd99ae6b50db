"""Events on the time axis: faults, process starts and process ends.

A simulator records the faults that it injects and the fate of its processes. Real consumers cannot.
For them, lost memberships count as faults. A refused round is always a fault.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from attrs import evolve, frozen

from coopgroup.report.history.rounds import RoundRow
from coopgroup.telemetry import (
    EndCause,
    Envelope,
    FaultInjected,
    MembershipLost,
    ProcessEnded,
    ProcessPaused,
    ProcessResumed,
    ProcessStarted,
    ResourcesStopped,
    StopReason,
)

HOVER_ONLY: Final = -1
"""Replaces a lane if there is no room for the label."""
_NAMED_MAX: Final = 6


class TimelineEventKind(enum.StrEnum):
    """Kinds of events."""

    FAULT = "fault"
    STARTED = "started"
    ENDED = "ended"


@frozen(kw_only=True)
class TimelineEvent:
    """An event at a point in time.

    Attributes:
        story: full text of all events that this one joins.
    """

    at_ms: int
    kind: TimelineEventKind
    label: str
    story: str


def timeline_events(
    envelopes: Sequence[Envelope], rounds: Iterable[RoundRow]
) -> tuple[TimelineEvent, ...]:
    """Return all events in order of time."""
    injected_ms = {one.at_ms for one in envelopes if isinstance(one.record, FaultInjected)}
    hosted = any(isinstance(one.record, ProcessStarted) for one in envelopes)
    events = [
        event
        for one in envelopes
        for event in _events_of(one, told=one.at_ms in injected_ms, hosted=hosted)
    ]
    events += [
        _event(row.at_ms, TimelineEventKind.FAULT, f"round {row.generation} refused")
        for row in rounds
        if row.refused
    ]
    return tuple(sorted(events, key=lambda event: event.at_ms))


def clustered(events: Iterable[TimelineEvent], near_ms: float) -> tuple[TimelineEvent, ...]:
    """Join events of one kind that are too close to distinguish."""
    clusters: dict[TimelineEventKind, list[list[TimelineEvent]]] = {}
    for event in events:
        of_kind = clusters.setdefault(event.kind, [])
        if of_kind and event.at_ms - of_kind[-1][0].at_ms <= near_ms:
            of_kind[-1].append(event)
        else:
            of_kind.append([event])
    joined = (_joined(cluster) for of_kind in clusters.values() for cluster in of_kind)
    return tuple(sorted(joined, key=lambda event: event.at_ms))


def lanes(spans: Iterable[tuple[float, float]], lanes_max: int) -> tuple[int, ...]:
    """Return the lowest lane with room for each label, or `HOVER_ONLY`; spans ascend by begin."""
    free_from = [float("-inf")] * lanes_max
    chosen = []
    for begin, end in spans:
        lane = next((lane for lane, free in enumerate(free_from) if free <= begin), HOVER_ONLY)
        if lane != HOVER_ONLY:
            free_from[lane] = end
        chosen.append(lane)
    return tuple(chosen)


def _event(at_ms: int, kind: TimelineEventKind, label: str) -> TimelineEvent:
    return TimelineEvent(at_ms=at_ms, kind=kind, label=label, story=label)


def _events_of(envelope: Envelope, *, told: bool, hosted: bool) -> Iterator[TimelineEvent]:
    """Yield the events of one record."""
    record, at_ms = envelope.record, envelope.at_ms
    who = envelope.client or envelope.member
    ended = (
        (TimelineEventKind.ENDED,) if told else (TimelineEventKind.ENDED, TimelineEventKind.FAULT)
    )
    match record:
        case FaultInjected():
            yield _event(at_ms, TimelineEventKind.FAULT, record.description)
        case ProcessStarted():
            yield _event(at_ms, TimelineEventKind.STARTED, f"{who} started")
        case ProcessResumed():
            yield _event(at_ms, TimelineEventKind.STARTED, f"{who} resumed")
        case ProcessEnded(cause=EndCause.CLOSED):
            yield _event(at_ms, TimelineEventKind.ENDED, f"{who} closed")
        case ProcessEnded():
            yield from (_event(at_ms, kind, f"{who} {record.cause}") for kind in ended)
        case ProcessPaused():
            yield from (_event(at_ms, kind, f"{who} paused") for kind in ended)
        case MembershipLost() if not hosted:
            yield _event(at_ms, TimelineEventKind.FAULT, f"{who}: {record.cause}")
        case ResourcesStopped(reason=StopReason.CLOSED) if not hosted:
            yield _event(at_ms, TimelineEventKind.ENDED, f"{who} closed")
        case _:
            pass


def _joined(cluster: Sequence[TimelineEvent]) -> TimelineEvent:
    labels = list(dict.fromkeys(event.label for event in cluster))
    first = cluster[0]
    if len(labels) == 1:
        return first
    story = "; ".join(labels[:_NAMED_MAX])
    if len(labels) > _NAMED_MAX:
        story += f"; and {len(labels) - _NAMED_MAX:,} more"
    return evolve(first, label=f"{first.label} + {len(labels) - 1:,}", story=story)
