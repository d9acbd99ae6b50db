"""The lag-aware assignor in groups with owned partitions, in any state: its invariants.

They hold for small groups, and for large ones, in which many pairs exchange at the same time.
"""

from collections.abc import Iterator
from unittest import mock

import attrs
import numpy as np
import pytest
from attrs import frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from coopgroup.assignors import Assignor, DrainTimeAssignor, LagAwareAssignor
from coopgroup.core.model import GroupSnapshot
from coopgroup.core.model.resource_set import Int32Array, Int64Array
from tests.support.checkers import holders, kept_count, subscribers_of
from tests.support.groups import claim, group_of, target_of
from tests.support.strategies import mixed_groups, repeated_lags, uniform_groups


@pytest.fixture(autouse=True, scope="module", params=["singly", "together"])
def many(request: pytest.FixtureRequest) -> Iterator[None]:
    """Count two members as a large group in the second half of the tests."""
    if request.param == "singly":
        yield
        return
    with mock.patch("coopgroup.core.assignors.levelling.steps._TOGETHER_MIN", 2):
        yield


assignors = st.builds(LagAwareAssignor, moves_max=st.none() | st.integers(0, 3))
drain_assignors = st.just(DrainTimeAssignor())
lag_lists = st.lists(st.integers(0, 9) | st.integers(0, 10_000), min_size=1)


@frozen(kw_only=True)
class _Topic:
    """Partition counts and lags of a topic's subscribers, ascending."""

    counts: list[int]
    loads: list[int]


def _topics(group: GroupSnapshot, target: Int32Array, lags: Int64Array) -> dict[str, _Topic]:
    held = holders(group, target)
    lag_of = dict(zip(group.resources, lags.tolist(), strict=True))
    takers = {resource.name: members for resource, members in subscribers_of(group).items()}
    found = {}
    for name, members in takers.items():
        each = [
            [lag_of[one] for one, holder in held.items() if (one.name, holder) == (name, member)]
            for member in members
        ]
        found[name] = _Topic(counts=sorted(map(len, each)), loads=sorted(map(sum, each)))
    return found


@given(mixed_groups() | uniform_groups(), assignors, lag_lists)
def test_counts_when_topics_are_placed_differ_by_at_most_one(
    group: GroupSnapshot, assignor: LagAwareAssignor, values: list[int]
) -> None:
    """In each topic; and each member has a partition if there are enough."""
    lags = repeated_lags(group, values)
    target = target_of(assignor, group, lags)
    for topic in _topics(group, target, lags).values():
        assert topic.counts[-1] - topic.counts[0] <= 1
        assert topic.counts[0] > 0 or sum(topic.counts) < len(topic.counts)


@given(uniform_groups(), lag_lists)
def test_moves_when_a_group_owns_are_no_more_than_budget_and_counts_ask_for(
    group: GroupSnapshot, values: list[int]
) -> None:
    lags = repeated_lags(group, values)
    none = LagAwareAssignor(scope="group", moves_max=0).assign(group, lags)
    two = LagAwareAssignor(scope="group", moves_max=2).assign(group, lags)
    fewest = _moved(group, none)
    assert _moved(group, two) <= fewest + 2
    from_counts = LagAwareAssignor(scope="group").assign(group, np.zeros_like(lags))
    assert fewest <= _moved(group, from_counts)


@given(mixed_groups() | uniform_groups(), assignors | drain_assignors, lag_lists)
def test_target_when_reached_is_kept(
    group: GroupSnapshot, assignor: Assignor, values: list[int]
) -> None:
    lags = repeated_lags(group, values)
    target = target_of(assignor, group, lags)
    again = attrs.evolve(group, owner=target)
    assert target_of(assignor, again, lags).tolist() == target.tolist()


@given(uniform_groups(), lag_lists)
def test_highest_lag_of_a_topic_is_no_higher_than_without_moves(
    group: GroupSnapshot, values: list[int]
) -> None:
    """Each exchange relieves the slower of two members, unless the gain is not worth a move."""
    lags = repeated_lags(group, values)
    none, some = (LagAwareAssignor(moves_max=moves).assign(group, lags) for moves in (0, None))
    before, after = _topics(group, none, lags), _topics(group, some, lags)
    for name, topic in after.items():
        gain_min = 0.05 * sum(topic.loads) / len(topic.loads)
        assert topic.loads[-1] <= before[name].loads[-1] + gain_min


def _moved(group: GroupSnapshot, target: Int32Array) -> int:
    owned = holders(group, group.owner)
    subscribed = subscribers_of(group)
    could_stay = sum(owner in subscribed.get(one, ()) for one, owner in owned.items())
    return could_stay - kept_count(group, target)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32),
    sizes=st.lists(st.integers(1, 25), min_size=1, max_size=3),
    member_count=st.integers(2, 6),
)
def test_placement_when_exchanged_is_as_even_as_the_proposals_or_nothing_helps(
    seed: int, sizes: list[int], member_count: int
) -> None:
    """Exhaustive check: no move and no swap of two members would gain the minimum per move."""
    rng = np.random.default_rng(seed)
    names = tuple(f"T{number}" for number in range(len(sizes)))
    claims = [claim(f"m{number}", topics=names) for number in range(member_count)]
    free = group_of({name: range(size) for name, size in zip(names, sizes, strict=True)}, *claims)
    lags = rng.integers(0, 1_000, len(free.resources))
    owner = rng.integers(-1, member_count, lags.size).astype(np.int32)
    group = attrs.evolve(free, owner=owner)
    target = LagAwareAssignor().assign(group, lags)
    fresh = LagAwareAssignor().assign(free, lags)
    for number, (low, high) in enumerate(
        zip(free.resources.starts, free.resources.starts[1:], strict=False)
    ):
        held = [lags[low:high][target[low:high] == m].tolist() for m in range(member_count)]
        loads = [sum(some) for some in held]
        gain = 0.05 * sum(loads) / member_count
        goal = _topics(group, fresh, lags)[names[number]].loads
        even = all(mine <= theirs + gain for mine, theirs in zip(sorted(loads), goal, strict=True))
        assert even or _best_gain(held) <= 2 * gain


def _best_gain(held: list[list[int]]) -> float:
    """Return the largest relief of the heavier member by one move; a swap counts half."""
    best = 0.0
    for heavy in held:
        for light in held:
            between = sum(heavy) - sum(light)
            gifts = [(2.0, lag) for lag in heavy if len(heavy) == len(light) + 1]
            swaps = [(1.0, lag - other) for lag in heavy for other in light]
            best = max([best, *(part * min(d, between - d) for part, d in gifts + swaps)])
    return best
