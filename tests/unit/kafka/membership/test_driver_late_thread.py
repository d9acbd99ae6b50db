"""Warnings about a late group thread, also with a real hold of the GIL."""

from __future__ import annotations

import math
from typing import Any

import pytest

from coopgroup.kafka.membership.driver import LateThread
from tests.support.by_hand import Hand


@pytest.mark.parametrize(
    ("session_ms", "calls", "warned"),
    [
        pytest.param(4_000, [(1, -math.inf), (1, 0.999), (1, 1.0)], [(1_000, 0)], id="a quarter"),
        pytest.param(4_000, [(1, 3.999), (1, 4.0)], [(3_999, 0), (4_000, 0)], id="more than late"),
        pytest.param(
            4_000,
            [(1, 2.0), (1, 2.5), (1, 2.5), (1, 2.5), (57, 2.0), (60, 2.0)],
            [(2_000, 0), (2_000, 3), (2_000, 0)],
            id="once a minute",
        ),
        # A busy machine is no reason to warn.
        pytest.param(1_000, [(1, 0.49), (1, 0.5)], [(500, 0)], id="at least half a second"),
    ],
)
def test_delay_from_a_quarter_of_the_session_on_is_warned_of_once_a_minute(
    hand: Hand, session_ms: int, calls: list[tuple[float, float]], warned: list[tuple[int, int]]
) -> None:
    """A delay that may cost the membership is warned of although a lesser one was."""
    told: list[dict[str, Any]] = []

    def warn(event: str, **fields: object) -> None:
        assert event == "group_thread_late"
        told.append(fields)

    thread = LateThread(session_ms, warn)
    for after_s, late_s in calls:
        hand.now_s += after_s
        thread.look(hand.now_s - late_s)
    assert [(one["late_ms"], one["left_out"]) for one in told] == warned
    for one in told:
        may_have_left = one["late_ms"] >= session_ms
        said = "may have dropped" if may_have_left else "heartbeats were late"
        assert said in one["why"]
        assert "GIL" in one["why"]
        assert one["session_ms"] == session_ms
