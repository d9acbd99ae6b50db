"""The data plane: fair shares in closed form, offsets, lags."""

import math

import pytest

from coopgroup.core.model import ResourceSet
from coopgroup.simulator.world.load import Load

T = ResourceSet({"T": [0, 1, 2]})


def load_of(*rates_per_s: float) -> Load:
    """Return a topic T with these rates, from time 0."""
    load = Load()
    load.produce("T", 0, rates_per_s, 0)
    return load


@pytest.mark.parametrize(
    ("capacity_per_s", "positions"),
    [
        (90, [20, 40, 60]),  # no partition needs more than an equal share
        (60, [20, 40, 60]),  # exactly enough
        (45, [20, 35, 35]),  # the slowest partition gets its full rate, the others share the rest
        (30, [20, 20, 20]),
        (9, [6, 6, 6]),
    ],
)
def test_work_when_capacity_is_short_is_shared_fairly(
    capacity_per_s: float, positions: list[float]
) -> None:
    load = load_of(10, 20, 30)
    was_busy = load.work(load.numbers(T), capacity_per_s, 0, 2_000)
    assert load.positions.tolist() == pytest.approx(positions)
    assert was_busy == (capacity_per_s < 60)


def test_numbers_when_topics_come_and_grow_are_places_in_the_arrays() -> None:
    load = load_of(1, 2, 3)
    load.produce("S", 5, [4, 5], 10)
    load.produce("T", 3, [6], 20)
    for wanted in (T, ResourceSet(), ResourceSet({"S": [6], "T": [0, 3]}), load.resources):
        numbers = load.numbers(wanted)
        assert numbers.tolist() == load.resources.positions(wanted).tolist()
    assert load.rates[load.numbers(ResourceSet({"S": [5], "T": [3]}))].tolist() == [0.004, 0.006]


def test_work_with_a_backlog_goes_on_until_it_is_gone() -> None:
    load = load_of(0, 10)
    load.produce("T", 0, [100, 10], 0)
    load.produce("T", 0, [0, 10], 1_000)  # 100 records in partition 0, no more
    numbers = load.numbers(load.resources)
    load.work(numbers, 60, 1_000, 2_000)  # partition 1 gets its 10 + backlog of 10, fairly
    load.work(numbers, 60, 2_000, 5_000)
    assert load.positions.tolist() == pytest.approx([100, 50])


def test_work_in_two_steps_is_work_in_one() -> None:
    """The result must not depend on the times of queries."""
    once, twice = load_of(5, 50, 500), load_of(5, 50, 500)
    numbers = once.numbers(T)
    once.work(numbers, 100, 0, 9_000)
    for begin_ms, end_ms in ((0, 1), (1, 2_500), (2_500, 9_000)):
        twice.work(numbers, 100, begin_ms, end_ms)
    assert twice.positions.tolist() == pytest.approx(once.positions.tolist())


def test_begin_starts_from_the_committed_offset() -> None:
    load = load_of(10)
    number = load.numbers(load.resources)
    load.work(number, math.inf, 0, 1_000)
    load.note_commit(number, [4])
    load.begin(number)
    assert load.to_commit(load.resources, number) == []
    load.work(number, 3, 1_000, 2_000)
    assert load.to_commit(load.resources, number) == [("T", 0, 7)]


def test_lags_count_what_is_not_committed() -> None:
    load = load_of(10, 20)
    load.note_commit(load.numbers(ResourceSet({"T": [1]})), [15])
    lags = load.lags(ResourceSet({"T": [0, 1]}), 1_000)
    assert lags.values.tolist() == [10, 5]
    assert lags.arrivals_per_s is not None
    assert lags.arrivals_per_s.tolist() == [10, 20]


def test_delete_leaves_no_lag_behind() -> None:
    load = load_of(10)
    load.delete("T", 1_000)
    assert load.lags(load.resources, 5_000).values.tolist() == [0]
    load.produce("T", 0, [10], 5_000)
    assert load.lags(load.resources, 6_000).values.tolist() == [10]
