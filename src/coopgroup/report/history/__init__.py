"""`History`: everything that a page shows of one group, derived from its records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from attrs import evolve, frozen

from coopgroup.core.telemetry.ownership import Ownership, read_ownership
from coopgroup.report.history.names import named
from coopgroup.report.history.rounds import RoundRow, round_rows
from coopgroup.report.history.timeline import Doubles, Spans, doubles_of, gaps_of, unowned_counts
from coopgroup.report.history.timeline_events import TimelineEvent, known_ms, timeline_events
from coopgroup.report.runs import LagSamples
from coopgroup.telemetry import Envelope, WarmEnd, WarmSpan, read_warm_spans

__all__ = ["Facts", "History", "facts_of", "history_of"]

Int64Array: TypeAlias = npt.NDArray[np.int64]


@frozen(eq=False, kw_only=True)
class History:
    """One group over time.

    Attributes:
        known_ms: int64, shape (R,): first mention of each resource.
        warm_spans: warm-ups and standbys.
        settled_ms: end of the start of the group. Scales leave out the time before it.
        envelopes: the records, sorted by time, with a client name in each.
    """

    ownership: Ownership
    known_ms: Int64Array
    gaps: Spans
    doubles: Doubles
    rounds: tuple[RoundRow, ...]
    timeline_events: tuple[TimelineEvent, ...]
    warm_spans: tuple[WarmSpan, ...] = ()
    settled_ms: int = 0
    envelopes: tuple[Envelope, ...] = ()
    lag: LagSamples | None = None


@frozen(kw_only=True)
class Facts:
    """Figures derived from records alone.

    Attributes:
        gap_seconds: partition-seconds without an owner, counted from the first mention of each
            resource.
        warmups: warm-ups that restored a state beside its owner.
        moved_warm: resources that were assigned to a client that was warm for them.
    """

    rounds: int
    gap_seconds: float
    worst_gap_ms: int
    warmups: int = 0
    moved_warm: int = 0


def history_of(
    envelopes: Iterable[Envelope],
    lag: LagSamples | None = None,
    *,
    settled_ms: int | None = None,
) -> History:
    """Read the records of one group.

    Args:
        envelopes: records of the group, in any order.
        lag: lag over time, if measured.
        settled_ms: end of the start of the group; None to derive it from the records.
    """
    ordered, names = named(sorted(envelopes, key=lambda envelope: envelope.at_ms))
    ends_ms = [one.at_ms for one in ordered[-1:]]
    if lag is not None:
        ends_ms += lag.times_ms[-1:].tolist()
    until_ms = max(ends_ms, default=0)
    warm_spans = read_warm_spans(ordered, until_ms=until_ms)
    ownership = _of_clients_at_work(read_ownership(ordered, until_ms=until_ms), warm_spans)
    known = known_ms(ordered, ownership.resources, ownership.until_ms)
    rounds = round_rows(ordered, names)
    gaps = gaps_of(ownership, known)
    if settled_ms is None:
        settled_ms = unowned_counts(gaps, ownership.begin_ms, ownership.until_ms).settled_ms
    return History(
        ownership=ownership,
        known_ms=known,
        gaps=gaps,
        doubles=doubles_of(ownership),
        rounds=rounds,
        timeline_events=timeline_events(ordered, rounds),
        warm_spans=warm_spans,
        settled_ms=settled_ms,
        envelopes=tuple(ordered),
        lag=lag,
    )


def _of_clients_at_work(ownership: Ownership, warm_spans: Iterable[WarmSpan]) -> Ownership:
    """Drop clients that neither worked nor warmed up: they need no colour."""
    numbers = {name: number for number, name in enumerate(ownership.clients)}
    warming = sorted({numbers[span.client] for span in warm_spans})
    shown = np.union1d(ownership.owner, np.array(warming, dtype=np.int32))
    return evolve(
        ownership,
        clients=tuple(ownership.clients[number] for number in shown.tolist()),
        owner=np.searchsorted(shown, ownership.owner).astype(np.int32),
    )


def facts_of(history: History) -> Facts:
    """Compute the figures of a history."""
    lengths_ms = history.gaps.end_ms - history.gaps.start_ms
    return Facts(
        rounds=sum(not row.refused for row in history.rounds),
        gap_seconds=float(lengths_ms.sum()) / 1000,
        worst_gap_ms=int(lengths_ms.max(initial=0)),
        warmups=sum(span.is_restore for span in history.warm_spans),
        moved_warm=sum(
            span.end is WarmEnd.MOVED and span.warm_ms is not None for span in history.warm_spans
        ),
    )
