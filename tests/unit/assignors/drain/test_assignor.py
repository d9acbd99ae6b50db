"""`DrainTimeAssignor`: groups whose members have different rates."""

import time

import attrs
import numpy as np

from coopgroup.assignors import DrainTimeAssignor
from coopgroup.assignors.drain.work import work_of
from coopgroup.model import GroupSnapshot
from coopgroup.model.resource_set import Int32Array, Int64Array
from tests.unit.assignors.drain.test_work import group_of_rates


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


def test_member_that_gets_nothing_done_has_the_smallest_partition() -> None:
    group = group_of_rates(6, 500.0, 0.0, 500.0)
    target = assigned(group, np.array([70_000, 90_000, 80_000, 30_000, 20_000, 10_000]))
    assert np.flatnonzero(target == 1).tolist() == [5]


def test_busy_partitions_when_nothing_waits_are_spread_by_what_comes_in() -> None:
    arrivals = [90.0, 90.0, 90.0, 10.0, 10.0, 10.0]
    group = group_of_rates(6, 100.0, 100.0, 100.0, arrivals=arrivals)
    target = assigned(group, np.zeros(6, dtype=np.int64))
    assert np.bincount(target, weights=arrivals).tolist() == [100, 100, 100]


def test_member_that_becomes_slow_hands_over_and_no_other_moves() -> None:
    before = group_of_rates(40, 300.0, 300.0, 300.0, 300.0)
    lags = np.full(40, 50_000)
    owner = assigned(before, lags)
    group = owned(group_of_rates(40, 300.0, 300.0, 100.0, 300.0), *owner.tolist())
    target = assigned(group, lags)
    assert counts(group, target) == [12, 12, 4, 12]
    assert set(owner[target != owner].tolist()) == {2}
    assert int((target != owner).sum()) == 6


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
    began_s = time.process_time()
    owner = assigned(group, lags)
    slower = attrs.evolve(group.members[0], consumption_rate_per_s=rates[0] / 3)
    group = attrs.evolve(group, members=(slower, *group.members[1:]), owner=owner)
    target = assigned(group, lags)
    assert time.process_time() - began_s < 4
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
