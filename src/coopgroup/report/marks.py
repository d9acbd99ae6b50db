"""Marks on the time axis: faults, process starts and process ends.

A simulator records the faults that it injects and the fate of its processes. Real consumers cannot.
For them, lost memberships count as faults. A refused round is always a fault.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from attrs import evolve, frozen

from coopgroup.model import ResourceSet
from coopgroup.report.rounds import RoundRow
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
    RoundLed,
    StopReason,
)

__all__ = ["HOVER_ONLY", "Mark", "MarkKind", "clustered", "known_ms", "lanes", "marks_of"]

HOVER_ONLY: Final = -1
"""In place of a lane: there is no room for the label."""
_NAMED_MAX: Final = 6


class MarkKind(enum.StrEnum):
    """Kinds of marks."""

    FAULT = "fault"
    STARTED = "started"
    ENDED = "ended"


@frozen(kw_only=True)
class Mark:
    """An event at a point in time.

    Attributes:
        at_ms: time on the clock of the records.
        kind: kind of the event.
        label: a few words.
        story: full text of the events in this mark.
    """

    at_ms: int
    kind: MarkKind
    label: str
    story: str


def marks_of(envelopes: Sequence[Envelope], rounds: Iterable[RoundRow]) -> tuple[Mark, ...]:
    """Return all marks in order of time.

    Args:
        envelopes: the records.
        rounds: rows made from the same records; refused rounds are faults.
    """
    injected_ms = {one.at_ms for one in envelopes if isinstance(one.record, FaultInjected)}
    hosted = any(isinstance(one.record, ProcessStarted) for one in envelopes)
    marks = [
        mark
        for one in envelopes
        for mark in _marks(one, told=one.at_ms in injected_ms, hosted=hosted)
    ]
    marks += [
        _mark(row.at_ms, MarkKind.FAULT, f"round {row.generation} refused")
        for row in rounds
        if row.refused
    ]
    return tuple(sorted(marks, key=lambda mark: mark.at_ms))


def known_ms(
    envelopes: Iterable[Envelope], resources: ResourceSet, end_ms: int
) -> npt.NDArray[np.int64]:
    """Return when a leader first mentioned each resource.

    Args:
        envelopes: the records.
        resources: the resources, R of them.
        end_ms: time for resources that leaders never mentioned.

    Returns:
        int64, shape (R,).
    """
    known = np.full(len(resources), end_ms, dtype=np.int64)
    for envelope in envelopes:
        record = envelope.record
        if not isinstance(record, RoundLed):
            continue
        for named in (record.granted, record.created, record.lost, record.waiting):
            places = resources.positions(named)
            places = places[places >= 0]
            known[places] = np.minimum(known[places], envelope.at_ms)
    return known


def clustered(marks: Iterable[Mark], near_ms: float) -> tuple[Mark, ...]:
    """Join marks of one kind that are too close to distinguish.

    Args:
        marks: in order of time.
        near_ms: maximum distance from the first mark of a cluster.
    """
    clusters: dict[MarkKind, list[list[Mark]]] = {}
    for mark in marks:
        of_kind = clusters.setdefault(mark.kind, [])
        if of_kind and mark.at_ms - of_kind[-1][0].at_ms <= near_ms:
            of_kind[-1].append(mark)
        else:
            of_kind.append([mark])
    joined = (_joined(cluster) for of_kind in clusters.values() for cluster in of_kind)
    return tuple(sorted(joined, key=lambda mark: mark.at_ms))


def lanes(spans: Iterable[tuple[float, float]], lanes_max: int) -> tuple[int, ...]:
    """Assign each label to a lane so that labels do not overlap.

    Args:
        spans: begin and end of each label, ascending by begin.
        lanes_max: number of lanes.

    Returns:
        The lowest lane with room for each label, or `HOVER_ONLY`.
    """
    free_from = [float("-inf")] * lanes_max
    chosen = []
    for begin, end in spans:
        lane = next((lane for lane, free in enumerate(free_from) if free <= begin), HOVER_ONLY)
        if lane != HOVER_ONLY:
            free_from[lane] = end
        chosen.append(lane)
    return tuple(chosen)


def _mark(at_ms: int, kind: MarkKind, label: str) -> Mark:
    return Mark(at_ms=at_ms, kind=kind, label=label, story=label)


def _marks(envelope: Envelope, *, told: bool, hosted: bool) -> Iterator[Mark]:
    """Yield the marks of one record.

    Args:
        envelope: the record.
        told: whether the host recorded a fault at that time itself.
        hosted: whether a host records process starts and ends.
    """
    record, at_ms = envelope.record, envelope.at_ms
    who = envelope.client or envelope.member
    ended = (MarkKind.ENDED,) if told else (MarkKind.ENDED, MarkKind.FAULT)
    match record:
        case FaultInjected():
            yield _mark(at_ms, MarkKind.FAULT, record.description)
        case ProcessStarted():
            yield _mark(at_ms, MarkKind.STARTED, f"{who} started")
        case ProcessResumed():
            yield _mark(at_ms, MarkKind.STARTED, f"{who} resumed")
        case ProcessEnded(cause=EndCause.CLOSED):
            yield _mark(at_ms, MarkKind.ENDED, f"{who} closed")
        case ProcessEnded():
            yield from (_mark(at_ms, kind, f"{who} {record.cause}") for kind in ended)
        case ProcessPaused():
            yield from (_mark(at_ms, kind, f"{who} paused") for kind in ended)
        case MembershipLost() if not hosted:
            yield _mark(at_ms, MarkKind.FAULT, f"{who}: {record.cause}")
        case ResourcesStopped(reason=StopReason.CLOSED) if not hosted:
            yield _mark(at_ms, MarkKind.ENDED, f"{who} closed")
        case _:
            pass


def _joined(cluster: Sequence[Mark]) -> Mark:
    labels = list(dict.fromkeys(mark.label for mark in cluster))
    first = cluster[0]
    if len(labels) == 1:
        return first
    story = "; ".join(labels[:_NAMED_MAX])
    if len(labels) > _NAMED_MAX:
        story += f"; and {len(labels) - _NAMED_MAX:,} more"
    return evolve(first, label=f"{first.label} + {len(labels) - 1:,}", story=story)
