"""The waits in librdkafka: short during a round, long in states that last."""

import math

import pytest

from coopgroup.kafka.records.pace import BELL_S, CALM_S, IDLE_S, QUIET_S, Pace


def test_slice_when_nothing_is_expected_is_long() -> None:
    assert Pace().slice_s(10.0, is_quiet=True) == QUIET_S


def test_slices_of_a_round_are_short() -> None:
    pace = Pace()
    assert pace.slice_s(10.0, is_quiet=False) == 0.005
    assert pace.slice_s(10.04, is_quiet=False) == 0.005


def test_slices_of_a_state_that_lasts_grow_to_the_quiet_slice() -> None:
    pace = Pace()
    pace.slice_s(10.0, is_quiet=False)
    slices = [pace.slice_s(10.0 + after_s, is_quiet=False) for after_s in (0.1, 0.3, 0.5, 600.0)]
    assert [round(one, 3) for one in slices] == [0.01, 0.03, QUIET_S, QUIET_S]


def test_slices_of_a_state_that_lasts_grow_to_the_idle_slice_without_a_bell() -> None:
    pace = Pace(IDLE_S)
    pace.slice_s(10.0, is_quiet=False)
    slices = [pace.slice_s(10.0 + after_s, is_quiet=False) for after_s in (0.5, 1.0, 600.0)]
    assert [round(one, 3) for one in slices] == [0.05, 0.1, IDLE_S]


def test_slices_after_a_notice_are_short_again() -> None:
    pace = Pace()
    pace.slice_s(10.0, is_quiet=False)
    pace.restart()
    assert pace.slice_s(20.0, is_quiet=False) == 0.005


def test_slices_after_a_quiet_time_are_short_again() -> None:
    pace = Pace()
    pace.slice_s(10.0, is_quiet=False)
    pace.slice_s(15.0, is_quiet=True)
    assert pace.slice_s(20.0, is_quiet=False) == 0.005


def test_long_state_wakes_the_thread_at_most_45_times_in_its_first_second() -> None:
    pace, now_s, slices = Pace(), 10.0, 0
    while now_s < 11.0:
        now_s += pace.slice_s(now_s, is_quiet=False)
        slices += 1
    assert slices <= 45


def test_slices_of_an_idle_consumer_are_long_until_it_hears_something() -> None:
    pace = Pace(IDLE_S)
    assert pace.slice_s(10.0, is_quiet=True) == QUIET_S
    assert pace.slice_s(11.9, is_quiet=True) == QUIET_S
    assert pace.slice_s(12.0, is_quiet=True) == IDLE_S
    pace.hear()
    assert pace.slice_s(12.1, is_quiet=True) == QUIET_S
    assert pace.slice_s(14.2, is_quiet=True) == IDLE_S
    pace.restart()
    assert pace.slice_s(14.3, is_quiet=True) == QUIET_S


def test_slices_of_an_idle_consumer_with_a_bell_stay_short_enough_for_its_rounds() -> None:
    pace = Pace()
    pace.slice_s(10.0, is_quiet=True)
    assert pace.slice_s(600.0, is_quiet=True) == QUIET_S


def test_slice_of_an_idle_consumer_ends_with_the_answer_to_the_next_heartbeat() -> None:
    pace = Pace(IDLE_S)
    pace.slice_s(10.0, is_quiet=True)
    slices = [
        pace.slice_s(20.0, is_quiet=True, calm_until_s=20.0 + after_s)
        for after_s in (3.0, 0.4, 0.0, -60.0, math.inf)
    ]
    assert slices == [CALM_S, pytest.approx(0.43), QUIET_S, QUIET_S, CALM_S]


def test_slice_without_an_expected_time_is_not_longer_than_that_of_signals() -> None:
    pace = Pace(IDLE_S)
    pace.slice_s(10.0, is_quiet=True)
    assert pace.slice_s(20.0, is_quiet=True, calm_until_s=None) == IDLE_S


def test_slice_soon_after_records_does_not_wait_for_the_next_heartbeat() -> None:
    assert Pace(IDLE_S).slice_s(10.0, is_quiet=True, calm_until_s=13.0) == QUIET_S


def test_slice_of_a_member_with_a_bell_does_not_wait_for_the_next_heartbeat() -> None:
    pace = Pace(BELL_S)
    pace.slice_s(10.0, is_quiet=True)
    assert pace.slice_s(20.0, is_quiet=True, calm_until_s=23.0) == BELL_S
