"""Events have what changed; who missed some gets them, or everything."""

from __future__ import annotations

import json
from typing import Any

from attrs import evolve

from coopgroup.telemetry import Envelope, RoundDecided
from coopgroup.watch.feed import Feed
from coopgroup.watch.tracking import GroupTracker
from tests.unit.watch.views import view


def _events(written: bytes) -> list[dict[str, Any]]:
    found = []
    for block in written.decode().split("\n\n")[:-1]:
        (named, told) = block.splitlines()
        assert named.startswith("id: ")
        found.append(json.loads(told.removeprefix("data: ")))
    return found


def test_event_has_only_the_rows_that_changed() -> None:
    feed, tracker = Feed("x"), GroupTracker()
    feed.show(tracker.note(view()), 1)
    last = feed.last_id
    feed.show(evolve(view(1.0, committed=(10, 20, 35)), moves=()), 1)
    (event,) = _events(feed.after(last))
    assert event["members"] == {"count": 2, "rows": []}
    assert [(y, row[3]) for y, row in event["partitions"]["rows"]] == [(2, "5")]
    assert feed.after(feed.last_id) == b""


def test_browser_that_missed_too_much_or_knows_another_run_gets_everything() -> None:
    feed = Feed("x")
    for at_s in range(100):
        feed.show(view(at_s), 1)
    for last in ("x-1", "y-99", "x-101", "x--1", "x-", "-", "x-²", "x-" + "9" * 5_000, "nonsense"):
        (event,) = _events(feed.after(last))
        assert event["whole"]


def test_silence_is_told_once_and_ends_with_the_next_answer() -> None:
    feed = Feed("x")
    feed.show(view(), 1)
    last = feed.last_id
    for _ in range(3):
        feed.show_silence(1_700_000_000_000, "no broker")
    (event,) = _events(feed.after(last))
    assert event["silence"]["reason"] == "no broker"
    assert _events(feed.after(""))[0]["silence"] == event["silence"]
    feed.show(view(9.0), 1)
    assert _events(feed.after(""))[0]["silence"] is None


def test_round_whose_record_comes_after_its_look_is_a_change() -> None:
    feed, tracker = Feed("x"), GroupTracker()
    feed.show(tracker.note(view(10.0)), 1)
    last = feed.last_id
    decided = RoundDecided(policy="simple", assignor="sticky", members=("m-a", "m-b"))
    at_ms = view(9.95).at_ms
    record = Envelope(at_ms=at_ms, group="billing", member="m-a", generation=5, record=decided)
    feed.show(tracker.note(evolve(view(11.0), records=(record,))), 1)
    (event,) = _events(feed.after(last))
    assert [text for _, text, _ in event["moves"]] == ["round 5: 0 granted, 0 to be revoked"]
