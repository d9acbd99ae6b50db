"""`DrainTimeAssignor`: groups whose members have different rates, and the weights behind it."""

import time

import attrs
import numpy as np
import pytest

from coopgroup.assignors import DrainTimeAssignor
from coopgroup.core.assignors.drain import work_of
from coopgroup.core.model import GroupSnapshot
from coopgroup.core.model.resource_set import Int32Array, Int64Array
from tests.support.groups import claim, group_of


def group_of_rates(
    partitions: int, *rates: float | None, arrivals: list[float] | None = None
) -> GroupSnapshot:
    """Return members m0, m1, … with these rates, which own nothing."""
    members = [
        claim(f"m{number}", consumption_rate_per_s=rate) for number, rate in enumerate(rates)
    ]
    group = group_of({"T": range(partitions)}, *members)
    return group if arrivals is None else attrs.evolve(group, arrivals_per_s=np.array(arrivals))


def counts(group: GroupSnapshot, target: Int32Array) -> list[int]:
    found: list[int] = np.bincount(target, minlength=len(group.members)).tolist()
    return found


def assigned(group: GroupSnapshot, lags: Int64Array, **options: object) -> Int32Array:
    return DrainTimeAssignor(**options).assign(group, lags)  # type: ignore[arg-type]  # any option


def owned(group: GroupSnapshot, *owner: int) -> GroupSnapshot:
    return attrs.evolve(group, owner=np.array(owner, dtype=np.int32))


def test_shares_when_partitions_are_alike_are_in_proportion_to_rates() -> None:
    group = group_of_rates(40, 300.0, 300.0, 100.0, 300.0)
    for lag in (0, 50_000):
        assert counts(group, assigned(group, np.full(40, lag))) == [12, 12, 4, 12]


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ((1_000.0, 1_000.0, 10_000.0), [10, 10, 100]),
        ((1_000.0, 1_000.0, (2**63 - 1) / 1_000), [10, 10, 100]),
        ((1_000.0, 2_000.0, 1e15), [5, 10, 105]),
        ((1_100.0, 1e15), [11, 109]),
        ((*(1_000.0,) * 9, 1e15), [6] * 9 + [66]),
        ((1_000.0, 1_000.0, 0.001), [60, 59, 1]),
        ((1_000.0, None, 1e15), [7, 40, 73]),
        ((1e15,), [120]),
    ],
)
def test_rate_counts_as_ten_times_the_median_of_the_others_at_most(
    rates: tuple[float | None, ...], expected: list[int]
) -> None:
    """A faster member keeps its share up to there; a false rate of any size gets no more."""
    group = group_of_rates(120, *rates)
    assert counts(group, assigned(group, np.full(120, 50_000))) == expected


def test_member_that_gets_nothing_done_has_the_smallest_partition() -> None:
    group = group_of_rates(6, 500.0, 0.0, 500.0)
    target = assigned(group, np.array([70_000, 90_000, 80_000, 30_000, 20_000, 10_000]))
    assert np.flatnonzero(target == 1).tolist() == [5]


def test_busy_partitions_when_nothing_waits_are_spread_by_what_comes_in() -> None:
    arrivals = [90.0, 90.0, 90.0, 10.0, 10.0, 10.0]
    group = group_of_rates(6, 100.0, 100.0, 100.0, arrivals=arrivals)
    target = assigned(group, np.zeros(6, dtype=np.int64))
    assert np.bincount(target, weights=arrivals).tolist() == [100, 100, 100]


def test_moves_when_there_is_a_budget_are_no_more() -> None:
    group = group_of_rates(40, 300.0, 300.0, 100.0, 300.0)
    lags, owner = np.full(40, 50_000), np.arange(40, dtype=np.int32) % 4
    seen = []
    for _ in range(4):
        target = assigned(owned(group, *owner.tolist()), lags, moves_max=2)
        seen.append(int((target != owner).sum()))
        owner = target
    assert (seen, counts(group, owner)) == ([2, 2, 2, 0], [12, 12, 4, 12])


def test_large_group_when_one_member_becomes_slow_is_placed_in_a_second() -> None:
    """200,000 partitions with various lags, 2,000 members. A slow machine may take four seconds."""
    rng = np.random.default_rng(1)
    rates = (rng.choice([300.0, 1_000.0, 1_500.0], 2_000)).tolist()
    lags = rng.lognormal(8, 1, 200_000).astype(np.int64)
    group = group_of_rates(200_000, *rates)
    began_s = time.thread_time()
    owner = assigned(group, lags)
    slower = attrs.evolve(group.members[0], consumption_rate_per_s=rates[0] / 3)
    group = attrs.evolve(group, members=(slower, *group.members[1:]), owner=owner)
    target = assigned(group, lags)
    assert time.thread_time() - began_s < 4
    work = work_of(group, lags)
    mean = work.weights.sum() / work.speeds.sum()
    assert work.times(owner).max() > 2.9 * mean
    assert work.times(target).max() < 1.06 * mean
    assert int((target != owner).sum()) < 100


def test_newcomer_when_it_joins_a_large_group_gets_its_share_by_few_moves() -> None:
    lags = np.full(10_000, 5_000)
    owner = assigned(group_of_rates(10_000, *[100.0] * 100), lags)
    group = owned(group_of_rates(10_000, *[100.0] * 101), *owner.tolist())
    target = assigned(group, lags)
    moved = target != owner
    assert set(target[moved].tolist()) == {100}
    assert 94 <= int(moved.sum()) <= 99


# --- the weight of a partition and the speed of a member --------------------------------------


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
        ((1e12, 1e-9), [1, 1]),
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
