"""Snapshots become the history that the report draws."""

from __future__ import annotations

import numpy as np
import pytest
from attrs import evolve

from coopgroup.core.model import ResourceSet
from coopgroup.report.history import facts_of
from coopgroup.report.history.timeline_events import TimelineEventKind
from coopgroup.telemetry import Envelope, RoundDecided, WarmupsChanged
from coopgroup.watch import chronicle
from coopgroup.watch.chronicle import Chapter, Chronicle
from coopgroup.watch.tracking import GroupTracker
from coopgroup.watch.values import GroupView
from tests.unit.watch.views import MEMBERS, view

BEGIN_MS = 1_700_000_000_000


def _told(*views: GroupView, window_ms: int = 1_800_000) -> Chapter:
    tracker, told = GroupTracker(), Chronicle(window_ms)
    for one in views:
        told.note(tracker.note(one))
    found = told.chapter()
    assert found is not None
    return found


def _bars(chapter: Chapter) -> list[tuple[int, str, float, float]]:
    """Return partition, owner, begin and end in seconds of each interval."""
    one = chapter.history.ledger
    return [
        (resource, one.clients[owner], (start - BEGIN_MS) / 1000, (end - BEGIN_MS) / 1000)
        for resource, owner, start, end in zip(
            one.work.resource.tolist(),
            one.work.owner.tolist(),
            one.work.start_ms.tolist(),
            one.work.end_ms.tolist(),
            strict=True,
        )
    ]


def _record(record: RoundDecided | WarmupsChanged, at_s: float, member: str = "m-a") -> Envelope:
    at_ms = BEGIN_MS + round(1000 * at_s)
    return Envelope(at_ms=at_ms, group="billing", member=member, generation=5, record=record)


def test_bars_begin_and_end_at_the_look_that_shows_another_owner() -> None:
    found = _told(
        view(), view(2.0, owners=("m-b", "m-a", "")), view(5.0, owners=("m-b", "m-a", ""))
    )
    assert _bars(found) == [
        (0, "a", 0.0, 2.0),
        (0, "pod-b", 2.0, 5.0),
        (1, "a", 0.0, 5.0),
        (2, "pod-b", 0.0, 2.0),
    ]
    assert facts_of(found.history).gap_seconds == 3.0


def test_static_member_that_restarts_keeps_name_and_colour() -> None:
    again = evolve(MEMBERS[1], member_id="m-b2", host="10.0.0.77")
    found = _told(
        view(),
        view(1.0, owners=("m-a", "m-a", ""), members=MEMBERS[:1]),
        view(2.0, owners=("m-a", "m-a", "m-b2"), members=(MEMBERS[0], again)),
        view(3.0, owners=("m-a", "m-a", "m-b2"), members=(MEMBERS[0], again)),
    )
    assert found.history.ledger.clients == ("a", "pod-b")
    labels = [one.label for one in found.history.timeline_events]
    assert labels == ["pod-b left", "pod-b joined"]


def test_history_is_that_of_the_window() -> None:
    views = [view(at_s, owners=("m-a" if at_s < 30 else "m-b",) * 3) for at_s in range(100)]
    found = _told(*views, window_ms=50_000)
    assert found.history.ledger.begin_ms == BEGIN_MS + 49_000
    assert {bar[1:] for bar in _bars(found)} == {("pod-b", 49.0, 99.0)}
    assert found.history.lag is not None
    assert found.history.lag.times_ms.min() >= found.history.ledger.begin_ms


def test_topic_that_was_deleted_is_forgotten_after_the_window() -> None:
    counts = [3 if at_s < 10 else 2 for at_s in range(80)]
    views = [
        view(at_s, owners=("m-a",) * count, committed=(0,) * count)
        for at_s, count in enumerate(counts)
    ]
    found = _told(*views, window_ms=50_000)
    assert found.history.ledger.resources == ResourceSet({"orders": [0, 1]})
    assert found.history.lag is not None
    assert found.history.lag.lags.shape == (found.history.lag.times_ms.size, 2)


def test_unknown_lag_is_none() -> None:
    """The chart of a group without commits showed that it had read all records."""
    unknown = view()
    unknown = evolve(unknown, partitions=tuple(evolve(one, lag=None) for one in unknown.partitions))
    found = _told(unknown, view(4.0))
    assert found.history.lag is not None
    assert [np.isnan(row).all() for row in found.history.lag.lags] == [True, False]


def test_silence_of_the_brokers_is_a_fault() -> None:
    chronicle = Chronicle()
    chronicle.note(view())
    chronicle.note_silence(BEGIN_MS + 1_000, BEGIN_MS + 13_400)
    chronicle.note(view(13.4))
    found = chronicle.chapter()
    assert found is not None
    (event,) = found.history.timeline_events
    assert (event.label, event.at_ms) == ("no answer for 12 s", BEGIN_MS + 1_000)


def test_telemetry_of_the_leader_becomes_rounds_with_their_reasons() -> None:
    decided = RoundDecided(
        policy="simple",
        assignor="sticky",
        members=("m-a", "m-b"),
        granted=ResourceSet({"orders": [2]}),
    )
    warm = WarmupsChanged(begun=ResourceSet({"orders": [0]}))
    records = (_record(decided, 1.0), _record(warm, 1.5, member="m-b"))
    found = _told(view(), evolve(view(2.0), records=records), view(4.0))
    (row,) = found.history.rounds
    assert (row.leader, row.generation, row.granted) == ("a", 5, 1)
    assert row.sentences[0] == "First round seen, with a, pod-b."
    (span,) = found.history.ledger.warm_spans
    assert (span.client, span.begin_ms) == ("pod-b", BEGIN_MS + 1_500)


def test_oldest_records_are_left_out_if_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chronicle, "_RECORDS_MAX", 2)
    record = RoundDecided(policy="simple", assignor="sticky", members=("m-a",))
    flood = tuple(_record(record, at_s) for at_s in (1.0, 1.2, 1.4, 1.6))
    found = _told(view(), evolve(view(2.0), records=flood)).history
    assert [one.at_ms for one in found.rounds] == [BEGIN_MS + 1_400, BEGIN_MS + 1_600]
    (fault,) = [one for one in found.timeline_events if one.kind is TimelineEventKind.FAULT]
    assert (fault.at_ms, fault.label) == (
        BEGIN_MS + 1_400,
        "older records are left out, because they were many",
    )
    later = view(1_900.0)
    gone = _told(view(), evolve(view(2.0), records=flood), later, view(1_901.0)).history
    assert TimelineEventKind.FAULT not in {one.kind for one in gone.timeline_events}


def test_group_without_partitions_has_no_chapter() -> None:
    chronicle = Chronicle()
    chronicle.note(view(owners=(), committed=()))
    assert chronicle.chapter() is None


def test_clock_that_is_set_back_ends_nothing() -> None:
    later = ("m-b",) * 3
    found = _told(view(100.0), view(50.0, owners=later), view(110.0, owners=later))
    assert {bar[1:] for bar in _bars(found)} == {("pod-b", 100.0, 110.0)}


def test_only_changes_count_as_changes() -> None:
    tracker, chronicle = GroupTracker(), Chronicle()
    chronicle.note(tracker.note(view()))
    chronicle.note(tracker.note(view(1.0)))  # the first look is a change, and is drawn only now
    at_first = chronicle.changes
    chronicle.note(tracker.note(view(2.0, committed=(11, 21, 31))))
    assert chronicle.changes == at_first
    chronicle.note(tracker.note(view(3.0, owners=("m-b", "m-a", "m-b"))))
    assert chronicle.changes > at_first


def test_members_that_join_are_shown_also_beside_a_round() -> None:
    decided = RoundDecided(policy="simple", assignor="sticky", members=("m-a", "m-b"))
    later = evolve(view(2.0), records=(_record(decided, 1.5),))
    found = _told(view(members=MEMBERS[:1], owners=("m-a",) * 3), later)
    assert "pod-b joined" in {one.label for one in found.history.timeline_events}


def test_record_of_a_clock_that_is_ahead_is_forgotten_after_the_window() -> None:
    decided = RoundDecided(policy="simple", assignor="sticky", members=("m-a", "m-b"))
    records = (_record(decided, 9_000.0), _record(decided, 2.0))
    found = _told(view(), evolve(view(2.0), records=records), view(80.0), window_ms=50_000)
    assert found.history.envelopes == ()
