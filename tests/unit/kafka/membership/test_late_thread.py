"""Warnings about a late group thread, also with a real hold of the GIL."""

from __future__ import annotations

import math
from typing import Any

import pytest

from coopgroup.kafka.membership.late_thread import LateThread
from tests.support.by_hand import Hand
from tests.unit.kafka.one_member_group import DriverAndGroup, running, subscribe, warnings

SESSION_MS = 4_000


class _Watched:
    """A thread on a clock that the test sets, and its warnings."""

    def __init__(self, hand: Hand) -> None:
        self.hand = hand
        self.warned: list[dict[str, Any]] = []
        self.thread = LateThread(SESSION_MS, self._warn)

    def _warn(self, event: str, **fields: object) -> None:
        assert event == "group_thread_late"
        self.warned.append(fields)

    def late(self, late_s: float, *, after_s: float = 1.0) -> list[tuple[int, int]]:
        """Make the thread late, and return (late_ms, left_out) of each warning."""
        self.hand.now_s += after_s
        self.warned.clear()
        self.thread.look(self.hand.now_s - late_s)
        return [(one["late_ms"], one["left_out"]) for one in self.warned]


def test_delay_from_a_quarter_of_the_session_on_is_warned_of(hand: Hand) -> None:
    watched = _Watched(hand)
    assert watched.late(-math.inf) == []
    assert watched.late(0.999) == []
    assert watched.late(1.0) == [(1_000, 0)]
    assert "heartbeats were late" in watched.warned[0]["why"]
    assert watched.warned[0]["session_ms"] == SESSION_MS


def test_delay_that_may_cost_the_membership_is_warned_of_though_a_lesser_one_was(
    hand: Hand,
) -> None:
    watched = _Watched(hand)
    assert watched.late(3.999) == [(3_999, 0)]
    assert watched.late(4.0) == [(4_000, 0)]
    assert "may have dropped" in watched.warned[0]["why"]
    assert "GIL" in watched.warned[0]["why"]


def test_warnings_come_once_a_minute_and_count_what_they_left_out(hand: Hand) -> None:
    watched = _Watched(hand)
    assert watched.late(2.0) == [(2_000, 0)]
    assert [watched.late(2.5) for _ in range(3)] == [[]] * 3
    assert watched.late(2.0, after_s=57.0) == [(2_000, 3)]
    assert watched.late(2.0, after_s=60.0) == [(2_000, 0)]


def test_short_session_is_no_reason_to_warn_of_a_busy_machine(hand: Hand) -> None:
    """The minimum delay is half a second."""
    watched = _Watched(hand)
    watched.thread.session_timeout_ms = 1_000
    assert watched.late(0.49) == []
    assert watched.late(0.5) == [(500, 0)]


def test_driver_warns_when_its_thread_did_not_get_to_run(
    hand: Hand, driver_and_group: DriverAndGroup, caplog: pytest.LogCaptureFixture
) -> None:
    """As when a C call holds the GIL."""
    driver, _ = driver_and_group
    subscribe(hand, driver)
    hand.now_s += 1.0
    hand.run()
    assert "may have dropped" in warnings(caplog)


def test_driver_does_not_warn_of_a_short_hold(hand: Hand, caplog: pytest.LogCaptureFixture) -> None:
    patient = {"session.timeout.ms": 60_000, "max.poll.interval.ms": 60_000}
    with running(hand, more=patient) as (driver, _):
        subscribe(hand, driver)
        hand.now_s += 0.5
        hand.advance(1.0)
    assert "group_thread_late" not in warnings(caplog)
