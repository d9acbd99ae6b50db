"""The weight of a partition and the speed of a member, from lags, arrivals and rates."""

import attrs
import numpy as np
import pytest

from coopgroup.assignors.drain.work import work_of
from coopgroup.model import GroupSnapshot, MemberClaim, ResourceSet, resolve_claims


def group_of_rates(
    partitions: int, *rates: float | None, arrivals: list[float] | None = None
) -> GroupSnapshot:
    """Return members m0, m1, … with these rates, which own nothing."""
    group = resolve_claims(
        [
            MemberClaim(member_id=f"m{number}", topics=("T",), consumption_rate_per_s=rate)
            for number, rate in enumerate(rates)
        ],
        ResourceSet({"T": range(partitions)}),
    )
    return group if arrivals is None else attrs.evolve(group, arrivals_per_s=np.array(arrivals))


def shares(group: GroupSnapshot, *lags: int) -> list[float]:
    """Return the weight of each partition as a share of the first one's."""
    weights = work_of(group, np.array(lags, dtype=np.int64)).weights
    return [round(float(weight / weights[0]), 6) for weight in weights.tolist()]


@pytest.mark.parametrize(
    ("rates", "speeds"),
    [
        ((None, None), [1, 1]),
        ((30.0, 10.0), [1.5, 0.5]),
        ((30.0, None, 10.0), [1.5, 1, 0.5]),
        ((0.0, None), [1, 1]),
        ((0.0, 20.0), [0.001, 2]),
        ((1e-4, 1e-300), [1, 1]),
        ((1e12, 1e-9), [2, 0.001]),
    ],
)
def test_speed_when_rates_are_known_is_a_share_of_their_mean(
    rates: tuple[float | None, ...], speeds: list[float]
) -> None:
    assert work_of(group_of_rates(1, *rates), np.zeros(1, dtype=np.int64)).speeds.tolist() == speeds


def test_weight_when_nothing_comes_in_is_the_lag() -> None:
    group = group_of_rates(3, 100.0, 300.0)
    assert shares(group, 30_000, 60_000, 15_000) == [1, 2, 0.5]
    assert shares(group, 2**62, 2**61, 2**60) == [1, 0.5, 0.25]
    assert work_of(group, np.full(3, 2**62)).weights.sum() < 2**53


def test_weight_when_records_come_in_counts_them_up_to_the_horizon() -> None:
    """All lag divided by rates minus arrivals: 90,000 / (400 - 100) is 300 s."""
    group = group_of_rates(3, 100.0, 300.0, arrivals=[0, 100, 0])
    assert shares(group, 60_000, 0, 30_000) == [1, 0.5, 0.5]


@pytest.mark.parametrize(
    ("arrivals", "horizon_s"),
    [
        ([60.0, 30.0], 60),  # caught up: a minute
        ([300.0, 100.0], 3_600),  # the maximum: an hour
        ([900.0, 100.0], 3_600),
    ],
)
def test_weight_when_the_horizon_has_no_end_or_none_is_needed_is_bounded(
    arrivals: list[float], horizon_s: float
) -> None:
    group = group_of_rates(2, 100.0, 300.0, arrivals=arrivals)
    first, second = 8_000 + arrivals[0] * horizon_s, 4_000 + arrivals[1] * horizon_s
    assert shares(group, 8_000, 4_000) == [1, round(second / first, 6)]


def test_weight_when_lag_is_small_is_that_of_ten_seconds_of_work() -> None:
    group = group_of_rates(2, 100.0, 300.0)
    assert shares(group, 2_000, 0) == [1, 1]
    assert shares(group, 1_999, 7) == [1, 1]
    assert shares(group, 4_000, 7) == [1, 0.5]


def test_weight_when_no_rate_is_known_is_a_hundredth_of_the_mean_at_least() -> None:
    """Otherwise all partitions without lag could gather on one member."""
    group = group_of_rates(4, None, None)
    assert shares(group, 40_000, 0, 0, 0) == [1, 0.0025, 0.0025, 0.0025]
    assert shares(group, 0, 0, 0, 0) == [1, 1, 1, 1]
    assert shares(group, 5, -3, 0, 0) == [1, 0.2, 0.2, 0.2]


def test_weight_of_what_is_not_to_be_placed_is_nothing() -> None:
    group = group_of_rates(3, 1.0)
    held = attrs.evolve(group, assignable=np.array([True, False, True]))
    assert work_of(held, np.full(3, 9_000)).weights.astype(bool).tolist() == [True, False, True]
    strangers = attrs.evolve(group, subscriptions=(("other",),))
    assert work_of(strangers, np.full(3, 9_000)).weights.tolist() == [0, 0, 0]
