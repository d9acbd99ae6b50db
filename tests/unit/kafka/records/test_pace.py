"""The waits in librdkafka: short during a round, long in states that last."""

import pytest

from coopgroup.kafka.records.pace import IDLE_S, QUIET_S, Pace

SHORT_S = 0.005


@pytest.mark.parametrize(
    ("longest_s", "slices"),
    [
        (QUIET_S, {0.0: SHORT_S, 0.04: SHORT_S, 0.1: 0.01, 0.3: 0.03, 0.5: QUIET_S, 600: QUIET_S}),
        (IDLE_S, {0.0: SHORT_S, 0.5: 0.05, 1.0: IDLE_S, 600.0: IDLE_S}),
    ],
    ids=["of a loop", "of poll"],
)
def test_slices_of_a_round_grow_if_it_lasts(longest_s: float, slices: dict[float, float]) -> None:
    pace = Pace(longest_s)
    assert [round(pace.slice_s(10.0 + at, is_quiet=False), 3) for at in slices] == [
        *slices.values()
    ]


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
