"""`History`: everything that a page shows of one group, derived from its records."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import frozen

from coopgroup.core.telemetry.ledger import LagHistory
from coopgroup.report.history.names import named
from coopgroup.report.history.rounds import RoundRow, round_rows
from coopgroup.report.history.timeline import unowned_counts
from coopgroup.report.history.timeline_events import TimelineEvent, timeline_events
from coopgroup.telemetry import Envelope, Ledger, WarmEnd, read_ledger

__all__ = ["Facts", "History", "facts_of", "history_of"]


@frozen(eq=False, kw_only=True)
class History:
    """One group over time.

    Attributes:
        settled_ms: end of the start of the group. Scales leave out the time before it.
        envelopes: the records, sorted by time, with a client name in each.
    """

    ledger: Ledger
    rounds: tuple[RoundRow, ...]
    timeline_events: tuple[TimelineEvent, ...]
    settled_ms: int = 0
    envelopes: tuple[Envelope, ...] = ()
    lag: LagHistory | None = None


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
    lag: LagHistory | None = None,
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
    ledger = read_ledger(ordered, until_ms=until_ms)
    rounds = round_rows(ordered, names)
    if settled_ms is None:
        settled_ms = unowned_counts(ledger.gaps, ledger.begin_ms, ledger.until_ms).settled_ms
    return History(
        ledger=ledger,
        rounds=rounds,
        timeline_events=timeline_events(ordered, rounds),
        settled_ms=settled_ms,
        envelopes=tuple(ordered),
        lag=lag,
    )


def facts_of(history: History) -> Facts:
    """Compute the figures of a history."""
    gaps, spans = history.ledger.gaps, history.ledger.warm_spans
    lengths_ms = gaps.end_ms - gaps.start_ms
    return Facts(
        rounds=sum(not row.refused for row in history.rounds),
        gap_seconds=float(lengths_ms.sum()) / 1000,
        worst_gap_ms=int(lengths_ms.max(initial=0)),
        warmups=sum(span.is_restore for span in spans),
        moved_warm=sum(span.end is WarmEnd.MOVED and span.warm_ms is not None for span in spans),
    )
