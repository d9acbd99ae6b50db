"""Resource sets and claims against plain Python sets."""

import pickle

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from coopgroup.core.model import (
    NOBODY,
    GroupSnapshot,
    MemberClaim,
    Resource,
    ResourceSet,
    resolve_claims,
)
from coopgroup.core.model.plan import plan_that_moves_nothing, revoked_by_member, revoked_claims
from coopgroup.core.model.positions import ABSENT, positions_in
from tests.support.checkers import claims_of, holders
from tests.support.strategies import (
    claims,
    indices_by_name,
    mixed_groups,
    mixed_topics,
    wide_indices_by_name,
)

anything = indices_by_name | wide_indices_by_name


def _pairs(indices: dict[str, list[int]]) -> set[tuple[str, int]]:
    return {(name, index) for name, some in indices.items() for index in some}


@given(anything)
def test_set_when_built_holds_each_pair_once_in_order(indices: dict[str, list[int]]) -> None:
    """A set iterates over its distinct pairs by name, then index, and counts them."""
    made = ResourceSet(indices)
    expected = sorted(_pairs(indices))
    assert [tuple(one) for one in made] == expected
    assert (len(made), bool(made)) == (len(expected), bool(expected))
    assert made.names == tuple(sorted({name for name, _ in expected}))
    assert ResourceSet(made.to_dict()) == made == ResourceSet.from_pairs(reversed(expected))
    assert made.flat_indices.tolist() == [index for _, index in expected]
    other = ResourceSet({name: some[::-1] for name, some in reversed(indices.items())})
    assert (made == other, hash(made) == hash(other)) == (True, True)
    assert pickle.loads(pickle.dumps(made)) == made  # noqa: S301 - our own bytes


@given(anything, anything)
def test_algebra_when_compared_with_python_sets_agrees(
    left: dict[str, list[int]],
    right: dict[str, list[int]],
) -> None:
    """Union, intersection, difference, subset, disjointness and equality."""
    mine, theirs, a, b = ResourceSet(left), ResourceSet(right), _pairs(left), _pairs(right)
    assert mine | theirs == ResourceSet.from_pairs(a | b)
    assert mine & theirs == ResourceSet.from_pairs(a & b)
    assert mine - theirs == ResourceSet.from_pairs(a - b)
    assert (mine <= theirs) == (a <= b)
    assert mine.isdisjoint(theirs) == a.isdisjoint(b)
    assert (mine == theirs) == (a == b)


@given(st.lists(anything, max_size=5))
def test_union_all_when_given_many_sets_is_their_union(many: list[dict[str, list[int]]]) -> None:
    expected = set[tuple[str, int]]().union(*map(_pairs, many))
    assert ResourceSet.union_all(map(ResourceSet, many)) == ResourceSet.from_pairs(expected)


@example(left={"b": [0], "c": [1]}, right={"c": [0]})
@given(anything, anything)
def test_positions_when_asked_for_another_set_find_what_is_there(
    left: dict[str, list[int]], right: dict[str, list[int]]
) -> None:
    mine, theirs = ResourceSet(left), ResourceSet(right)
    place_of = {resource: place for place, resource in enumerate(mine)}
    found = [place_of.get(one, ABSENT) for one in theirs]
    assert mine.positions(theirs).tolist() == found
    assert positions_in(mine, [theirs, mine]).tolist() == [*found, *range(len(mine))]
    inside = mine & theirs
    assert mine.positions_all([inside, mine]).tolist() == [
        place_of[one] for some in (inside, mine) for one in some
    ]


@given(anything, st.integers(1, 4))
def test_take_when_given_a_mask_keeps_what_it_selects(
    indices: dict[str, list[int]], modulus: int
) -> None:
    """The mask follows the order of the set; names without an index disappear."""
    made = ResourceSet(indices)
    mask = np.array([one.index % modulus == 0 for one in made], dtype=np.bool_)
    expected = [one for one, kept in zip(made, mask.tolist(), strict=True) if kept]
    assert made.take(mask) == ResourceSet.from_pairs(expected)


@given(anything, st.lists(st.sampled_from(["T0", "T1", "", "absent"])))
def test_restrict_names_when_given_names_keeps_only_theirs(
    indices: dict[str, list[int]], names: list[str]
) -> None:
    expected = {pair for pair in _pairs(indices) if pair[0] in names}
    assert ResourceSet(indices).restrict_names(names) == ResourceSet.from_pairs(expected)


@given(anything, st.tuples(st.sampled_from(["T0", "T1", ""]), st.integers(-2, 7)))
def test_membership_when_asked_for_a_pair_is_that_of_the_set(
    indices: dict[str, list[int]],
    pair: tuple[str, int],
) -> None:
    made = ResourceSet(indices)
    assert (pair in made) == (pair in _pairs(indices))
    assert (pair[1] in made.indices(pair[0]).tolist()) == (pair in made)


def _rightful(members: list[MemberClaim]) -> tuple[dict[Resource, str], set[Resource]]:
    """KIP-792 in plain Python: the newest claim of a subscriber wins, and a tie has no owner."""
    by_resource: dict[Resource, list[MemberClaim]] = {}
    for member in members:
        for resource in member.owned:
            by_resource.setdefault(resource, []).append(member)
    owners, contested = {}, set[Resource]()
    for resource, some in by_resource.items():
        rank = {one.member_id: (resource.name in one.topics, one.generation) for one in some}
        winners = [member_id for member_id in rank if rank[member_id] == max(rank.values())]
        if len(winners) == 1:
            owners[resource] = winners[0]
        else:
            contested.add(resource)
    return owners, contested


@given(claims(mixed_topics), indices_by_name)
def test_claims_when_resolved_give_each_resource_to_the_newest_claim(
    members: list[MemberClaim], existing: dict[str, list[int]]
) -> None:
    """Owners, contested resources and all claims equal those of a plain loop."""
    group = resolve_claims(reversed(members), ResourceSet(existing))
    owners, contested = _rightful(members)
    assert holders(group, group.owner) == owners
    assert set(group.resources.take(group.contested)) == contested
    assert group.resources.take(group.assignable) == ResourceSet(existing)
    assert claims_of(group) == {
        resource: {member.member_id for member in members if resource in member.owned}
        for resource in ResourceSet.union_all(member.owned for member in members)
    }


@given(mixed_groups())
def test_masks_when_compared_with_plain_values_agree(group: GroupSnapshot) -> None:
    """`subscribed`, `claimed` and `may_hold`, per resource."""
    topics = [set(group.subscriptions[number]) for number in group.class_of.tolist()]
    names = [resource.name for resource in group.resources]
    assert group.subscribed().tolist() == [any(n in t for t in topics) for n in names]
    assert set(group.resources.take(group.claimed())) == set(claims_of(group))
    assert group.may_hold(group.owner).tolist() == [
        number != NOBODY and name in topics[number]
        for name, number in zip(names, group.owner.tolist(), strict=True)
    ]


@given(mixed_groups())
def test_by_member_when_split_puts_each_resource_to_its_holder(group: GroupSnapshot) -> None:
    """The sets by member are disjoint and hold exactly the resources of the array."""
    split = group.by_member(group.owner)
    held = {
        resource: member
        for member, some in zip(group.member_ids, split, strict=True)
        for resource in some
    }
    assert held == holders(group, group.owner)
    assert sum(map(len, split)) == len(held)


@given(mixed_groups())
def test_plan_that_moves_nothing_gives_nobody_anything(group: GroupSnapshot) -> None:
    """Rightful owners keep what they may hold, and every other claim must stop."""
    plan = plan_that_moves_nothing(group)
    kept = holders(group, plan.assigned)
    may_stay = group.assignable & group.may_hold(group.owner)
    assert kept == holders(group, np.where(may_stay, group.owner, NOBODY).astype(np.int32))
    stopped = {
        (resource, member)
        for member, some in zip(
            group.member_ids, revoked_by_member(group, plan.assigned), strict=True
        )
        for resource in some
    }
    claimed = {(resource, m) for resource, some in claims_of(group).items() for m in some}
    assert stopped == claimed - set(kept.items())
    assert int(revoked_claims(group, plan.assigned).sum()) == len(stopped)
    assert plan.follow_up == bool(stopped)
