"""All assignors on any group, and each one's own promise against a plain reference."""

import itertools
from collections.abc import Iterator, Sequence

import attrs
import numpy as np
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from coopgroup.assignors import Assignor, LagAwareAssignor, assignor_names, create_assignor
from coopgroup.assignors.sticky.assignor import StickyAssignor
from coopgroup.model import GroupSnapshot, MemberClaim, Resource, ResourceSet, resolve_claims
from coopgroup.model.resource_set import Int32Array, Int64Array
from coopgroup.policies import check_target
from tests.support.checkers import (
    check_balanced,
    check_each_resource_once,
    holders,
    kept_count,
    kept_count_max,
    load_of,
    subscribers_of,
)
from tests.support.groups import claim, group_of, no_lags
from tests.support.strategies import (
    claims,
    indices_by_name,
    mixed_groups,
    mixed_topics,
    uniform_groups,
)

pytestmark = pytest.mark.timeout(600)  # there are many assignors

VARIANTS: tuple[tuple[str, dict[str, object]], ...] = (
    *((name, {}) for name in assignor_names()),
    ("lag-aware", {"sticky": False}),
    ("lag-aware", {"scope": "group"}),
    ("lag-aware", {"scope": "group", "sticky": False}),
    ("lag-aware", {"max_skew": 3}),
    ("lag-aware", {"scope": "group", "max_skew": 2, "gain_min": 0}),
    ("lag-aware", {"moves_max": 0}),
    ("weighted", {"tolerance": 0}),
    ("drain-time", {"sticky": False}),
    ("drain-time", {"gain_min": 0}),
    ("drain-time", {"moves_max": 0}),
)
lag_values = st.integers(0, 5) | st.integers(0, 2**31) | st.integers(0, 2**63 - 1)


def _lags_for(group: GroupSnapshot, values: list[int]) -> Int64Array:
    cycle = itertools.islice(itertools.cycle(values), len(group.resources))
    return np.array(list(cycle), dtype=np.int64)


def _owning(group: GroupSnapshot, target: Int32Array) -> GroupSnapshot:
    """Return the group after all members own their target."""
    return _claiming(group, group.by_member(target), group.resources.take(group.assignable))


def _claiming(
    group: GroupSnapshot, owned: Sequence[ResourceSet], existing: ResourceSet
) -> GroupSnapshot:
    """Return the same members with other claims and other metadata."""
    members = [
        MemberClaim(
            member_id=member.member_id,
            topics=group.subscriptions[number],
            owned=some,
            generation=7,
            consumption_rate_per_s=member.consumption_rate_per_s,
        )
        for member, number, some in zip(group.members, group.class_of.tolist(), owned, strict=True)
    ]
    return resolve_claims(members, existing)


def _assignors() -> Iterator[Assignor]:
    """Yield every assignor: drawing a group takes longer than assigning it with all of them.

    A failing test prints the last assignor.
    """
    for name, options in VARIANTS:
        note(f"{name} {options}")
        yield create_assignor(name, options)


@given(group=mixed_groups() | uniform_groups(), values=st.lists(lag_values, min_size=1))
def test_target_when_group_is_anything_is_valid(group: GroupSnapshot, values: list[int]) -> None:
    """Each subscribed, assignable resource has one holder that subscribes to it."""
    lags = _lags_for(group, values)
    for assignor in _assignors():
        target = assignor.assign(group, lags)
        check_each_resource_once(group, target)
        check_target(group, target)


@given(members=claims(mixed_topics), existing=indices_by_name)
def test_target_when_members_come_in_another_order_is_the_same(
    members: list[MemberClaim], existing: dict[str, list[int]]
) -> None:
    group = resolve_claims(members, ResourceSet(existing))
    again = resolve_claims(members[::-1], ResourceSet(existing))
    for assignor in _assignors():
        first = assignor.assign(group, no_lags(group))
        assert assignor.assign(again, no_lags(again)).tolist() == first.tolist()


@given(group=mixed_groups())
def test_target_when_claims_name_what_does_not_exist_is_unaffected(group: GroupSnapshot) -> None:
    """Claims to resources outside the metadata change nothing for the other resources."""
    existing = group.resources.take(group.assignable)
    owned = [some & existing for some in group.by_member(group.owner)]
    clean = _claiming(group, owned, existing)
    for assignor in _assignors():
        dirty = holders(group, assignor.assign(group, no_lags(group)))
        assert holders(clean, assignor.assign(clean, no_lags(clean))) == dirty


@given(group=mixed_groups() | uniform_groups(), values=st.lists(lag_values, min_size=1))
def test_target_when_already_reached_is_kept(group: GroupSnapshot, values: list[int]) -> None:
    lags = _lags_for(group, values)
    for assignor in _assignors():
        target = assignor.assign(group, lags)
        after = _owning(group, target)
        lags_after = lags[group.resources.positions(after.resources)]
        assert holders(after, assignor.assign(after, lags_after)) == holders(group, target)


@given(uniform_groups())
def test_sticky_when_subscriptions_are_uniform_is_balanced_and_keeps_the_optimum(
    group: GroupSnapshot,
) -> None:
    """Counts differ by at most one, and no balanced target keeps more."""
    target = StickyAssignor().assign(group, no_lags(group))
    loads = load_of(group, target).values()
    assert max(loads, default=0) - min(loads, default=0) <= 1
    assert kept_count(group, target) == kept_count_max(group)


@settings(max_examples=50)
@given(
    owners=st.lists(st.integers(-1, 2), max_size=6),
    member_count=st.integers(1, 3),
)
def test_sticky_when_every_target_is_tried_keeps_the_most(
    owners: list[int], member_count: int
) -> None:
    """The optimum that the other test computes equals the optimum by exhaustive search."""
    owned: list[list[int]] = [[] for _ in range(member_count)]
    for index, owner in enumerate(owners):
        if 0 <= owner < member_count:
            owned[owner].append(index)
    group = group_of(
        {"T": range(len(owners))},
        *(claim(f"m{number}", {"T": some}) for number, some in enumerate(owned)),
    )
    kept = []
    for choice in itertools.product(range(member_count), repeat=len(owners)):
        counts = np.bincount(np.array(choice, dtype=np.int64), minlength=member_count)
        if counts.max() - counts.min() <= 1:
            kept.append(sum(a == b for a, b in zip(choice, owners, strict=True)))
    target = StickyAssignor().assign(group, no_lags(group))
    assert (kept_count(group, target), kept_count_max(group)) == (max(kept), max(kept))


@given(mixed_groups())
def test_sticky_when_subscriptions_are_mixed_is_as_balanced_as_moves_can_make_it(
    group: GroupSnapshot,
) -> None:
    """No member holds a resource that a subscriber with two fewer could take."""
    target = StickyAssignor().assign(group, no_lags(group))
    check_balanced(group, target)


@given(mixed_groups() | uniform_groups())
def test_sticky_when_present_owners_are_valid_moves_only_for_better_balance(
    group: GroupSnapshot,
) -> None:
    """Any state of the best balance is a rest state, also states that another assignor made."""
    after = _owning(group, _greedy(group))
    target = StickyAssignor().assign(after, no_lags(after))
    kept = target.tolist() == after.owner.tolist()
    assert kept or _squares(after, target) < _squares(after, after.owner)


def _squares(group: GroupSnapshot, target: Int32Array) -> int:
    return sum(load**2 for load in load_of(group, target).values())


@settings(max_examples=60)
@given(
    topics=st.lists(st.sets(st.integers(0, 3), min_size=1), min_size=1, max_size=3),
    owners=st.lists(st.integers(-1, 3), max_size=7),
)
def test_sticky_when_every_target_is_tried_has_the_best_balance_then_the_fewest_moves(
    topics: list[set[int]], owners: list[int]
) -> None:
    """Of all targets: the smallest sum of squares, and of those the target that keeps most.

    Args:
        topics: the subscribers of each topic, of members 0 to 3.
        owners: claimant of each partition; partitions belong to the topics in turns.
    """
    owned: list[dict[str, list[int]]] = [{} for _ in range(4)]
    for place, owner in enumerate(owners):
        if owner >= 0:
            owned[owner].setdefault(f"T{place % len(topics)}", []).append(place)
    group = group_of(
        {f"T{number}": range(number, len(owners), len(topics)) for number in range(len(topics))},
        *(
            claim(
                f"m{member}",
                owned[member],
                topics=[f"T{number}" for number, takers in enumerate(topics) if member in takers],
            )
            for member in range(4)
        ),
    )
    takers = [sorted(topics[int(one.name[1:])]) for one in group.resources]
    best = max(
        (
            -sum(choice.count(member) ** 2 for member in range(4)),
            sum(a == b for a, b in zip(choice, group.owner.tolist(), strict=True)),
        )
        for choice in itertools.product(*takers)
    )
    target = StickyAssignor().assign(group, no_lags(group))
    assert (-_squares(group, target), kept_count(group, target)) == best


def _greedy(group: GroupSnapshot) -> Int32Array:
    """Return a valid target that the sticky assignor would not make: last subscribers first."""
    loads = dict.fromkeys(group.member_ids, 0)
    subscribers = subscribers_of(group)
    target = np.full(len(group.resources), -1, dtype=np.int32)
    for place, resource in reversed(list(enumerate(group.resources))):
        if resource in subscribers:
            taker = min(reversed(subscribers[resource]), key=loads.__getitem__)
            loads[taker] += 1
            target[place] = group.member_ids.index(taker)
    return target


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


@given(mixed_groups() | uniform_groups(), st.lists(lag_values, min_size=1))
def test_lag_aware_when_group_is_anything_equals_the_plain_loop(
    group: GroupSnapshot, values: list[int]
) -> None:
    """The array code gives the result of the proposal's loop, partition by partition.

    With any owners, if the assignor ignores them; otherwise without owners.
    """
    lags = _lags_for(group, values)
    free = attrs.evolve(group, owner=np.full_like(group.owner, -1))
    target = LagAwareAssignor().assign(free, lags)
    assert target.tolist() == _lag_aware_reference(group, lags).tolist()
    target = LagAwareAssignor(sticky=False).assign(group, lags)
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


@given(uniform_groups())
def test_sticky_when_assignable_shrinks_ignores_what_is_held_back(group: GroupSnapshot) -> None:
    """Resources that a policy withholds are neither placed nor counted."""
    held = np.arange(len(group.resources)) % 3 == 0
    view = attrs.evolve(group, assignable=group.assignable & ~held)
    target = StickyAssignor().assign(view, no_lags(view))
    check_each_resource_once(view, target)
    check_balanced(view, target)
