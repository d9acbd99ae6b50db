"""`PlacementAssignor`: what stays, what moves, what has no room and why."""

from itertools import chain
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coopgroup.assignors import Assignor, GroupMember, PlacementAssignor, ResourceToPlace
from coopgroup.core.model import NOBODY, GroupSnapshot, MemberClaim, ResourceSet, resolve_claims
from coopgroup.policies import check_target
from tests.support.groups import no_lags

Held = dict[str, list[int]]


class Tagged(PlacementAssignor):
    """`fits`: the resource's index is in the list `fits`, if there is one."""

    name = "tagged"

    def fits(self, member: GroupMember, resource: ResourceToPlace) -> bool:
        return resource.index in member.traits.get("fits", [resource.index])

    def places(self, member: GroupMember) -> int | None:
        found: int | None = member.traits.get("places")
        return found

    def score(self, member: GroupMember, resource: ResourceToPlace) -> float:
        return float(member.traits.get("score", {}).get(str(resource.index), 0))


class Lasting(Tagged):
    evens_out = False


def member(name: str, *owned: int, **traits: Any) -> MemberClaim:  # noqa: ANN401  (of JSON)
    return MemberClaim(
        member_id=name, topics=("T",), owned=ResourceSet({"T": owned}), generation=1, traits=traits
    )


def group_of(count: int, *members: MemberClaim, weights: list[int] | None = None) -> GroupSnapshot:
    weighed = None if weights is None else np.array(weights, dtype=np.int64)
    return resolve_claims(members, ResourceSet({"T": range(count)}), weights=weighed)


def placed(
    group: GroupSnapshot, assignor: PlacementAssignor | None = None
) -> tuple[Held, dict[tuple[str, int], str]]:
    placement = (assignor or Tagged()).assign(group, no_lags(group))
    held = group.by_member(placement.target)
    rows = zip(group.member_ids, held, strict=True)
    reasons = {(name, index): why for (name, index), why in placement.no_room.items()}
    return {name: list(one.indices("T")) for name, one in rows}, reasons


def test_what_nobody_runs_moves_on_at_once() -> None:
    """Members joined so soon that others had not received their resources; no later round comes."""
    group = group_of(6, member("a", 0), member("b"), member("c"))
    owner = np.array([0, 0, 0, 1, 1, 1], dtype=np.int32)
    held, _ = placed(group.view(owner=owner, assignable=group.assignable))
    assert held == {"a": [0, 2], "b": [4, 5], "c": [1, 3]}


@pytest.mark.parametrize("assignor", [Tagged(), Lasting()])
def test_what_an_owner_would_get_back_gives_its_place_to_what_runs_nowhere_else(
    assignor: Tagged,
) -> None:
    group = group_of(3, member("a", places=2), member("b", fits=[0]))
    owner = np.array([0, 0, NOBODY], dtype=np.int32)
    held, no_room = placed(group.view(owner=owner, assignable=group.assignable), assignor)
    assert (held, no_room) == ({"a": [1, 2], "b": [0]}, {})


def test_what_moves_to_a_member_does_not_move_on_before_it_arrives() -> None:
    group = group_of(4, member("a", 0, 1, 2, 3), member("b"), member("c"))
    owner = np.array([1, 1, 1, 1], dtype=np.int32)
    held, _ = placed(group.view(owner=owner, assignable=group.assignable))
    assert held == {"a": [], "b": [0, 1, 2, 3], "c": []}


def test_base_class_spreads_over_all_members() -> None:
    group = group_of(4, member("a"), member("b"))
    placement = PlacementAssignor().assign(group, no_lags(group))
    check_target(group, placement.target)
    assert isinstance(PlacementAssignor(), Assignor)
    assert [len(one) for one in group.by_member(placement.target)] == [2, 2]


def test_owner_keeps_what_fits_and_stops_the_rest() -> None:
    group = group_of(3, member("a", 0, 1, 2, fits=[0, 1]), member("b", places=0))
    assert placed(group, Lasting()) == (
        {"a": [0, 1], "b": []},
        {("T", 2): "the member that it fits is full"},
    )


def test_owner_of_too_many_keeps_the_heaviest() -> None:
    group = group_of(3, member("a", 0, 1, 2, places=2), weights=[5, 1, 9])
    assert placed(group) == ({"a": [0, 2]}, {("T", 1): "the member that it fits is full"})


def test_reasons_say_how_many_members_are_full() -> None:
    group = group_of(3, member("a", 0, places=1, fits=[0, 1]), member("b", places=0, fits=[1]))
    assert placed(group)[1] == {("T", 1): "all 2 that fit are full", ("T", 2): "it fits no member"}


def test_place_is_taken_while_its_resource_stops() -> None:
    """The resource that does not fit any longer runs until the member has stopped it."""
    group = group_of(2, member("a", 0, places=1, fits=[1]))
    assert placed(group) == (
        {"a": []},
        {("T", 0): "it fits no member", ("T", 1): "the member that it fits is full"},
    )
    assert placed(group_of(2, member("a", places=1, fits=[1])))[0] == {"a": [1]}


def test_free_resources_change_places_so_that_as_many_as_possible_run() -> None:
    group = group_of(
        3,
        member("a", places=1, fits=[0, 1, 2]),
        member("b", places=1, fits=[0]),
        member("c", places=1, fits=[1, 2]),
    )
    assert placed(group) == ({"a": [2], "b": [0], "c": [1]}, {})


@given(
    fits=st.lists(st.sets(st.integers(0, 5)), min_size=1, max_size=4),
    places=st.lists(st.integers(0, 3), min_size=4, max_size=4),
)
def test_as_many_free_resources_run_as_in_the_best_placement(
    fits: list[set[int]], places: list[int]
) -> None:
    def most(number: int, left: tuple[int, ...]) -> int:
        """Return how many of the resources from a number on find places, by trying everything."""
        if number == 6:
            return 0
        taken = [
            1 + most(number + 1, (*left[:at], left[at] - 1, *left[at + 1 :]))
            for at in range(len(fits))
            if number in fits[at] and left[at]
        ]
        return max([most(number + 1, left), *taken])

    members = [member(f"m{at}", fits=sorted(one), places=places[at]) for at, one in enumerate(fits)]
    held, reasons = placed(group_of(6, *members))
    running = list(chain.from_iterable(held.values()))
    assert len(running) == most(0, tuple(places[: len(fits)]))
    assert sorted([*running, *(index for _, index in reasons)]) == list(range(6))


def test_running_resource_never_makes_room() -> None:
    group = group_of(2, member("a", 0, places=1), member("b", places=1, fits=[0]))
    assert placed(group) == (
        {"a": [0], "b": []},
        {("T", 1): "the member that it fits is full"},
    )


def test_free_resource_goes_to_the_highest_score_and_then_to_the_smallest_load() -> None:
    group = group_of(3, member("a", 0), member("b", score={"1": 1}), member("c", score={"1": 2}))
    assert placed(group)[0] == {"a": [0], "b": [2], "c": [1]}


def test_joiner_gets_its_share_unless_only_free_resources_move() -> None:
    group = group_of(4, member("a", 0, 1, 2, 3), member("b"))
    assert placed(group)[0] == {"a": [2, 3], "b": [0, 1]}
    assert placed(group, Lasting())[0] == {"a": [0, 1, 2, 3], "b": []}


def test_evening_out_respects_places_fitness_and_scores() -> None:
    full = group_of(4, member("a", 0, 1, 2, 3), member("b", places=1))
    assert placed(full)[0] == {"a": [1, 2, 3], "b": [0]}
    unfit = group_of(4, member("a", 0, 1, 2, 3), member("b", fits=[3]))
    assert placed(unfit)[0] == {"a": [0, 1, 2], "b": [3]}
    worse = group_of(2, member("a", 0, 1, score={"0": 1}), member("b"))
    assert placed(worse)[0] == {"a": [0], "b": [1]}


def test_load_is_weight_per_place() -> None:
    group = group_of(6, member("a", places=4), member("b", places=2))
    assert placed(group)[0] == {"a": [0, 1, 3, 4], "b": [2, 5]}
    heavy = group_of(4, member("a"), member("b"), weights=[30, 10, 10, 10])
    assert placed(heavy)[0] == {"a": [0], "b": [1, 2, 3]}


def test_target_stays_when_it_is_reached() -> None:
    group = group_of(7, member("a", 0, 1, 2, 3, 4, 5, 6), member("b", places=2), member("c"))
    held = placed(group)[0]
    after = group_of(
        7, member("a", *held["a"]), member("b", *held["b"], places=2), member("c", *held["c"])
    )
    assert placed(after)[0] == held


def test_resource_on_its_way_takes_no_place_of_a_running_one() -> None:
    """In rounds with warm-ups, the receiver of a move is shown as the owner."""
    group = group_of(4, member("a", 0, fits=[]), member("b", 1, 2, 3, places=3))
    receivers = np.array([1, 1, 1, 1], dtype=np.int32)
    shown = group.view(owner=receivers, assignable=group.assignable)
    assert placed(shown) == (
        {"a": [], "b": [1, 2, 3]},
        {("T", 0): "the member that it fits is full"},
    )


def test_owner_that_is_back_gets_its_resources_before_free_ones_are_placed() -> None:
    group = group_of(4, member("a", places=2), member("b", 0, places=2))
    owners = np.array([1, 0, 0, -1], dtype=np.int32)
    shown = group.view(owner=owners, assignable=group.assignable)
    assert placed(shown)[0] == {"a": [1, 2], "b": [0, 3]}


def test_member_that_hands_over_is_not_asked_about() -> None:
    leaver = MemberClaim(
        member_id="a",
        topics=(),
        owned=ResourceSet({"T": [0]}),
        generation=1,
        warm=ResourceSet(),
        hands_over=True,
        traits={"fits": None, "places": "?"},  # `fits` would raise, and `places` be refused
    )
    assert placed(group_of(1, leaver, member("b")))[0] == {"a": [], "b": [0]}


@pytest.mark.parametrize("places", [-1, 1.5, True, "2"])
def test_wrong_number_of_places_is_refused(places: object) -> None:
    with pytest.raises(ValueError, match=r"^places of a: got .*, expected a whole number from 0"):
        placed(group_of(1, member("a", places=places)))


def test_score_that_is_no_number_is_refused() -> None:
    group = group_of(1, member("a", score={"0": "nan"}))
    with pytest.raises(ValueError, match=r"index=0.*: got nan, expected a number$"):
        placed(group)


def test_thousand_resources_are_placed_soon() -> None:
    members = [member(f"m{number}", places=40, fits=list(range(1_000))) for number in range(20)]
    held, reasons = placed(group_of(1_000, *members))
    assert {len(one) for one in held.values()} == {40}
    assert set(reasons.values()) == {"all 20 that fit are full"}
    assert len(reasons) == 200
