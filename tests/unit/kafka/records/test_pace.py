"""The waits in librdkafka: short during a round, long in states that last."""

import math

import pytest

from coopgroup.kafka.records.pace import BELL_S, CALM_S, IDLE_S, QUIET_S, Pace

SHORT_S = 0.005


@pytest.mark.parametrize(
    ("longest_s", "slices"),
    [
        (QUIET_S, {0.0: SHORT_S, 0.04: SHORT_S, 0.1: 0.01, 0.3: 0.03, 0.5: QUIET_S, 600: QUIET_S}),
        (IDLE_S, {0.0: SHORT_S, 0.5: 0.05, 1.0: 0.1, 600.0: IDLE_S}),
    ],
    ids=["with a bell", "without"],
)
def test_slices_of_a_round_grow_if_it_lasts(longest_s: float, slices: dict[float, float]) -> None:
    pace = Pace(longest_s)
    assert [round(pace.slice_s(10.0 + at, is_quiet=False), 3) for at in slices] == [
        *slices.values()
    ]


def test_slices_are_shorter_as_soon_as_the_bell_may_ring() -> None:
    pace = Pace(IDLE_S)
    pace.slice_s(10.0, is_quiet=True)
    assert pace.slice_s(20.0, is_quiet=True, calm_until_s=23.0) == CALM_S
    pace.hear_bell()
    assert pace.slice_s(21.0, is_quiet=True, calm_until_s=23.0) == BELL_S


def test_slices_of_an_idle_consumer_are_long_until_it_hears_something() -> None:
    pace = Pace(IDLE_S)
    assert pace.slice_s(10.0, is_quiet=True) == QUIET_S
    assert pace.slice_s(11.9, is_quiet=True) == QUIET_S
    assert pace.slice_s(12.0, is_quiet=True) == IDLE_S
    pace.hear()
    assert pace.slice_s(12.1, is_quiet=True) == QUIET_S
    assert pace.slice_s(14.2, is_quiet=True) == IDLE_S
    pace.restart()
    assert pace.slice_s(14.3, is_quiet=True, calm_until_s=17.0) == QUIET_S


@pytest.mark.parametrize(
    ("longest_s", "calm_s", "expected_s"),
    [
        (IDLE_S, 3.0, CALM_S),
        (IDLE_S, 0.4, 0.43),
        (IDLE_S, 0.0, QUIET_S),
        (IDLE_S, -60.0, QUIET_S),
        (IDLE_S, math.inf, CALM_S),
        (IDLE_S, None, IDLE_S),
        (BELL_S, 3.0, BELL_S),
        (QUIET_S, None, QUIET_S),
    ],
)
def test_slice_of_an_idle_consumer_without_a_bell_ends_with_the_answer_to_the_next_heartbeat(
    longest_s: float, calm_s: float | None, expected_s: float
) -> None:
    """Rounds of a bell come at any time. Without an expected time, signals are the limit."""
    pace = Pace(longest_s)
    pace.slice_s(10.0, is_quiet=True)
    until_s = None if calm_s is None else 20.0 + calm_s
    assert pace.slice_s(20.0, is_quiet=True, calm_until_s=until_s) == pytest.approx(expected_s)
