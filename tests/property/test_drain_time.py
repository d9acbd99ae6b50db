"""The drain-time assignor against all possible placements, and in groups in any state."""

import itertools
from unittest import mock

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coopgroup.assignors import DrainTimeAssignor
from coopgroup.core.assignors.drain import work_of
from coopgroup.core.assignors.levelling.longest_first import deal_by_time
from coopgroup.core.model import GroupSnapshot
from tests.support.checkers import holders, load_of, subscribers_of
from tests.support.groups import claim, group_of
from tests.support.strategies import arrivals as arrival_rates
from tests.support.strategies import repeated_lags, uniform_groups, with_arrivals

assignors = st.builds(DrainTimeAssignor, moves_max=st.none() | st.integers(0, 3))
lag_lists = st.lists(st.integers(0, 9) | st.integers(0, 10**6) | st.integers(0, 2**62), min_size=1)


@given(
    jobs=st.lists(st.sampled_from([7, 100]) | st.integers(1, 100), min_size=1, max_size=60),
    speeds=st.lists(st.sampled_from([1, 2, 3, 7, 400]), min_size=1, max_size=6),
    begun=st.lists(st.integers(0, 50), min_size=6, max_size=6),
    fills=st.booleans(),
)
def test_dealt_when_in_batches_is_nearly_what_one_by_one_gives(
    jobs: list[int], speeds: list[int], begun: list[int], fills: bool
) -> None:
    """Jobs of a batch differ by at most a tenth, and so do times; equal jobs give equal times.

    Each member without a job gets one, if there are enough.
    """
    size = len(speeds)
    weights, rates = np.array(jobs, dtype=np.int64), np.array(speeds, dtype=np.float64)
    times = np.array(begun[:size], dtype=np.float64)
    lacking = np.full(size, fills)

    def dealt() -> tuple[float, list[int]]:
        columns = deal_by_time(weights, times, rates, lacking)
        assert not fills or len(jobs) < size or set(columns.tolist()) == set(range(size))
        ends = times + np.bincount(columns, weights, minlength=size) / rates
        return float(ends.max()), np.bincount(columns, minlength=size).tolist()

    singly = dealt()
    with mock.patch("coopgroup.core.assignors.levelling.longest_first._SINGLES_MAX", 0):
        batches = dealt()
    if len(set(jobs)) == 1:
        assert batches[0] == pytest.approx(singly[0])
    assert batches[0] <= 1.12 * singly[0]


@settings(max_examples=150)
@given(
    # Less than ten seconds of the group's work counts as that: at most 400 records here.
    lags=st.lists(st.integers(400, 24_000) | st.integers(10_000, 200_000), min_size=1, max_size=7),
    # A rate counts as at most ten times the median of the others.
    rates=st.lists(st.sampled_from([1, 2, 3, 7, 10]), min_size=1, max_size=4),
    owners=st.lists(st.integers(-1, 3), min_size=7, max_size=7),
)
def test_drain_time_when_every_placement_is_tried_is_within_the_bound(
    lags: list[int], rates: list[int], owners: list[int]
) -> None:
    """New: LPT's longest time is at most 2S / (S + 1) times that of the best placement.

    Owned: within it, or no worse than the present owners. Each member gets a resource if there are
    enough.
    """
    size = len(rates)
    members = [
        claim(f"m{number}", consumption_rate_per_s=float(rate)) for number, rate in enumerate(rates)
    ]
    group = group_of({"T": range(len(lags))}, *members)

    def seconds(choice: tuple[int, ...]) -> float:
        loads = np.bincount(np.array(choice), weights=lags, minlength=size)
        return float((loads / rates).max())

    enough = len(lags) >= size
    best = min(
        seconds(choice)
        for choice in itertools.product(range(size), repeat=len(lags))
        if not enough or len(set(choice)) == size
    )
    bound = 2 * size / (size + 1) * best * (1 + 1e-9)
    figures = np.array(lags, dtype=np.int64)
    assert seconds(tuple(DrainTimeAssignor().assign(group, figures).tolist())) <= bound
    owner = np.array([one if one < size else -1 for one in owners[: len(lags)]], dtype=np.int32)
    owning = attrs.evolve(group, owner=owner)
    kept = DrainTimeAssignor(moves_max=0).assign(owning, figures)
    with mock.patch("coopgroup.core.assignors.drain.GAIN_MIN", 0):
        moved = DrainTimeAssignor().assign(owning, figures)
    assert seconds(tuple(moved.tolist())) <= max(bound, seconds(tuple(kept.tolist())) * (1 + 1e-9))


@given(uniform_groups(), lag_lists, arrival_rates, assignors)
def test_target_when_there_are_enough_gives_everybody_one(
    group: GroupSnapshot,
    values: list[int],
    arrivals: list[float] | None,
    assignor: DrainTimeAssignor,
) -> None:
    """Even to a slow member that would gain little."""
    target = assignor.assign(with_arrivals(group, arrivals), repeated_lags(group, values))
    if len(subscribers_of(group)) >= len(group.members):
        assert min(load_of(group, target).values(), default=1) > 0


@given(uniform_groups(), lag_lists, st.integers(0, 3))
def test_moves_when_a_group_owns_are_within_the_budget(
    group: GroupSnapshot, values: list[int], budget: int
) -> None:
    """Not counting the moves that give each member a resource."""
    lags = repeated_lags(group, values)
    target = DrainTimeAssignor(moves_max=budget).assign(group, lags)
    subscribed = subscribers_of(group)
    owned = {one: who for one, who in holders(group, group.owner).items() if one in subscribed}
    moved = sum(holders(group, target)[one] != who for one, who in owned.items())
    lacking = len(set(group.member_ids) - set(owned.values()))
    assert moved <= budget + lacking


@given(uniform_groups(), lag_lists)
def test_moves_when_budget_grows_make_nobody_take_longer_than_the_last_one(
    group: GroupSnapshot, values: list[int]
) -> None:
    """Moves help the slowest member; a gain below the minimum per move is no difference."""
    lags = repeated_lags(group, values)
    work = work_of(group, lags)
    kept = DrainTimeAssignor(moves_max=0).assign(group, lags)
    moved = DrainTimeAssignor().assign(group, lags)
    slack = 0.05 * work.weights.sum() / work.speeds.sum() if group.members else 0.0
    assert work.times(moved).max(initial=0) <= work.times(kept).max(initial=0) + slack
