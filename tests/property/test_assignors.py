"""All assignors on any group, and each one's own promise against a plain reference."""

from collections.abc import Iterator

import attrs
import numpy as np
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from coopgroup.assignors import Assignor, LagAwareAssignor, assignor_names, create_assignor
from coopgroup.core.assignors.sticky.assignor import StickyAssignor
from coopgroup.core.model import (
    NOBODY,
    GroupSnapshot,
    MemberClaim,
    Resource,
    ResourceSet,
    resolve_claims,
)
from coopgroup.core.model.resource_set import Int32Array, Int64Array
from coopgroup.policies import check_target
from tests.support.checkers import (
    check_balanced,
    check_each_resource_once,
    holders,
    kept_count,
    kept_count_max,
    subscribers_of,
)
from tests.support.groups import claim, group_of, no_lags, target_of
from tests.support.strategies import (
    arrivals,
    claims,
    indices_by_name,
    mixed_groups,
    mixed_topics,
    repeated_lags,
    uniform_groups,
    with_arrivals,
)

pytestmark = pytest.mark.timeout(600)  # there are many assignors

VARIANTS: tuple[tuple[str, dict[str, object]], ...] = (
    *((name, {}) for name in assignor_names()),
    ("lag-aware", {"scope": "group"}),
    ("lag-aware", {"moves_max": 0}),
    ("weighted", {"tolerance": 0}),
    ("drain-time", {"moves_max": 0}),
)
ROUNDS_MAX = 12
lag_values = st.integers(0, 5) | st.integers(0, 2**31) | st.integers(0, 2**63 - 1)
lag_lists = st.lists(lag_values, min_size=1)
any_groups = mixed_groups() | uniform_groups()
groups_with_rates = st.builds(with_arrivals, any_groups, arrivals)


def _assignors() -> Iterator[Assignor]:
    """Yield every assignor: drawing a group takes longer than assigning it with all of them.

    A failing test prints the last assignor.
    """
    for name, options in VARIANTS:
        note(f"{name} {options}")
        yield create_assignor(name, options)


@given(group=groups_with_rates, values=lag_lists)
def test_target_when_group_is_anything_is_valid_and_kept(
    group: GroupSnapshot, values: list[int]
) -> None:
    """Each subscribed, assignable resource has one holder that subscribes to it."""
    lags = repeated_lags(group, values)
    for assignor in _assignors():
        target = target_of(assignor, group, lags)
        check_each_resource_once(group, target)
        check_target(group, target)
        after = attrs.evolve(group, owner=target)
        assert target_of(assignor, after, lags).tolist() == target.tolist()


@given(group=groups_with_rates, values=lag_lists)
def test_rounds_when_moves_take_two_of_them_come_to_rest(
    group: GroupSnapshot, values: list[int]
) -> None:
    """Owners stop first and takers follow a round later; the state in between causes no moves."""
    lags = repeated_lags(group, values)
    rightful = np.where(group.assignable & group.may_hold(group.owner), group.owner, NOBODY)
    for assignor in _assignors():
        here = attrs.evolve(group, owner=rightful.astype(np.int32))
        for _ in range(ROUNDS_MAX):
            target = target_of(assignor, here, lags)
            if np.array_equal(here.owner, target):
                break
            moving = (here.owner != target) & (here.owner != NOBODY)
            owner = np.where(moving, NOBODY, target).astype(np.int32)
            here = attrs.evolve(here, owner=owner)
        else:
            raise AssertionError(f"still moving after {ROUNDS_MAX} rounds")


@given(members=claims(mixed_topics), existing=indices_by_name)
def test_target_when_members_come_in_another_order_is_the_same(
    members: list[MemberClaim], existing: dict[str, list[int]]
) -> None:
    group = resolve_claims(members, ResourceSet(existing))
    again = resolve_claims(members[::-1], ResourceSet(existing))
    for assignor in _assignors():
        first = target_of(assignor, group, no_lags(group))
        assert target_of(assignor, again, no_lags(again)).tolist() == first.tolist()


@given(group=mixed_groups(), values=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_target_when_claims_name_what_does_not_exist_is_unaffected(
    group: GroupSnapshot, values: list[int]
) -> None:
    """Claims to resources outside the metadata change nothing for the others, whatever the lags."""
    lags = repeated_lags(group, values)
    existing = group.resources.take(group.assignable)
    members = [
        claim(
            member.member_id,
            (some & existing).to_dict(),
            topics=group.subscriptions[number],
            consumption_rate_per_s=member.consumption_rate_per_s,
        )
        for member, number, some in zip(
            group.members, group.class_of.tolist(), group.by_member(group.owner), strict=True
        )
    ]
    clean = resolve_claims(members, existing)
    for assignor in _assignors():
        dirty = holders(group, target_of(assignor, group, lags))
        assert holders(clean, target_of(assignor, clean, lags[group.assignable])) == dirty


@given(uniform_groups())
def test_sticky_when_subscriptions_are_uniform_keeps_the_optimum(group: GroupSnapshot) -> None:
    target = StickyAssignor().assign(group, no_lags(group))
    assert kept_count(group, target) == kept_count_max(group)


@pytest.mark.parametrize("assignor", [StickyAssignor(), LagAwareAssignor(scope="group")])
@given(group=any_groups, values=lag_lists)
def test_counts_over_all_topics_are_as_balanced_as_moves_can_make_them(
    assignor: Assignor, group: GroupSnapshot, values: list[int]
) -> None:
    """No member holds a resource that a subscriber with two fewer could take."""
    check_balanced(group, target_of(assignor, group, repeated_lags(group, values)))


def _lag_aware_reference(group: GroupSnapshot, lags: Int64Array) -> Int32Array:
    """The proposal's pseudo-code, line by line, without arrays.

    For each topic: "Sort partitions in order of decreasing lag. While there are still unassigned
    partitions: select the unassigned partition with the maximum lag; assign this partition to the
    consumer with the minimum total number of assigned partitions; if all consumers have an equal
    number of partitions assigned, assign the partition to the consumer with the minimum total
    assigned lag."
    """
    subscribers = subscribers_of(group)
    target = np.full(len(group.resources), -1, dtype=np.int32)
    for topic in group.resources.names:
        partitions = [
            (-int(lag), resource.index, place)
            for place, (resource, lag) in enumerate(zip(group.resources, lags, strict=True))
            if resource.name == topic and resource in subscribers
        ]
        counts = dict.fromkeys(group.member_ids, 0)
        totals = dict.fromkeys(group.member_ids, 0)
        for negative_lag, index, place in sorted(partitions):
            members = subscribers[Resource(topic, index)]
            taker = min(members, key=lambda member: (counts[member], totals[member], member))
            counts[taker] += 1
            totals[taker] -= negative_lag
            target[place] = group.member_ids.index(taker)
    return target


@given(any_groups, lag_lists)
def test_lag_aware_when_group_is_anything_equals_the_plain_loop(
    group: GroupSnapshot, values: list[int]
) -> None:
    """Without owners, the array code gives the result of the proposal's loop."""
    lags = repeated_lags(group, values)
    free = attrs.evolve(group, owner=np.full_like(group.owner, -1))
    target = LagAwareAssignor().assign(free, lags)
    assert target.tolist() == _lag_aware_reference(group, lags).tolist()


@settings(max_examples=50)
@given(
    seed=st.integers(0, 2**32),
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=30),
    member_count=st.integers(1, 12),
    lag_max=st.sampled_from([1, 4, 100, 10**6, 2**40, 2**62]),
)
def test_lag_aware_when_topics_take_many_levels_equals_the_plain_loop(
    seed: int, sizes: list[int], member_count: int, lag_max: int
) -> None:
    """The same with topics of several sizes: few of them, or enough for a table."""
    names = [f"T{number}" for number in range(len(sizes))]
    group = group_of(
        {name: range(size) for name, size in zip(names, sizes, strict=True)},
        *(claim(f"m{number:02}", topics=names) for number in range(member_count)),
    )
    lags = np.random.default_rng(seed).integers(0, lag_max, len(group.resources), endpoint=True)
    target = LagAwareAssignor().assign(group, lags)
    assert target.tolist() == _lag_aware_reference(group, lags).tolist()
