"""Declined resources, placed by an assignor that knows nothing of declines."""

import tracemalloc

import attrs
import numpy as np
import pytest

from coopgroup.assignors import (
    NOBODY,
    Assignor,
    GroupMember,
    GroupSnapshot,
    Placement,
    PlacementAssignor,
    ResourceToPlace,
)
from coopgroup.core.leader import NO_LAGS
from coopgroup.core.leader.decision import decide_round
from coopgroup.core.leader.declines import passed_on
from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.core.model.pairs import refusals
from coopgroup.core.model.resource_set import Int32Array, Int64Array
from coopgroup.policies import RoundContext, SimplePolicy
from tests.support.groups import claim, group_of, indices_of_t, no_lags


@attrs.frozen
class Fixed:
    """Gives all resources to one member, or leaves one out."""

    member: int
    no_room: bool = False
    name: str = "fixed"
    needs_lags: bool = False
    has_limits: bool = False

    def assign(self, group: GroupSnapshot, lags: Int64Array) -> Int32Array | Placement:
        target = np.full(len(group.resources), self.member, dtype=np.int32)
        if not self.no_room:
            return target
        target[0] = NOBODY
        return Placement(target=target, no_room={("T", 0): "full"})


def group(*, b_owns: bool = False, c_declines: bool = True) -> GroupSnapshot:
    """Return members a, b and c; a declines T1 and T2, and c declines T2."""
    return group_of(
        {"T": range(4)},
        claim("a", {}, declined=ResourceSet({"T": [1, 2]})),
        claim("b", indices_of_t(1, 3) if b_owns else {}),
        claim("c", {}, declined=ResourceSet({"T": [2]} if c_declines else {})),
    )


def placed(
    assignor: Assignor, given: GroupSnapshot
) -> tuple[list[int], dict[tuple[str, int], str]]:
    answer, reasons = assignor.assign(given, no_lags(given)), dict[tuple[str, int], str]()
    if isinstance(answer, Placement):
        reasons |= {(*one,): why for one, why in answer.no_room.items()}
        answer = answer.target
    limits = getattr(assignor, "has_limits", False)
    target, declined = passed_on(given, answer, has_limits=limits)
    return target.tolist(), reasons | declined


def test_declined_resources_go_to_those_with_the_fewest() -> None:
    assert placed(Fixed(0), group()) == ([0, 1, 1, 0], {})
    assert placed(Fixed(0), group(c_declines=False)) == ([0, 1, 2, 0], {})


def test_declined_resource_stays_with_its_owner() -> None:
    """Otherwise it would move with each round, because its owner has more than others."""
    assert placed(Fixed(0), group(b_owns=True))[0][1] == 1


def test_declined_resource_leaves_an_owner_with_two_more_than_another_member() -> None:
    """Otherwise shares would stay uneven after the member that declines has left."""
    given = group_of(
        {"T": range(4)},
        claim("a", {}, declined=ResourceSet({"T": range(4)})),
        claim("b", indices_of_t(0, 1, 2, 3)),
        claim("c", {}),
    )
    assert placed(Fixed(0), given) == ([1, 2, 1, 2], {})


def test_reasons_of_the_assignor_stay() -> None:
    assert placed(Fixed(0, no_room=True), group()) == ([NOBODY, 1, 1, 0], {("T", 0): "full"})


def test_resource_that_all_decline_has_no_owner() -> None:
    given = group_of(
        {"T": range(2)},
        *(claim(name, {}, declined=ResourceSet({"T": [1]})) for name in "ab"),
    )
    assert placed(Fixed(0), given) == ([0, NOBODY], {("T", 1): "all members decline it"})


def test_reason_of_a_placement_counts_the_members_that_declined() -> None:
    class Odd(PlacementAssignor):
        """Only `e` may run 5, and `e` has no places."""

        def fits(self, member: GroupMember, resource: ResourceToPlace) -> bool:
            return (member.member_id == "e") == (resource.index == 5)

        def places(self, member: GroupMember) -> int:
            return 0

    numbers = {"a": [1, 2, 3, 5], "b": [1, 2], "c": [1, 2], "d": [1], "e": [4]}
    members = (claim(one, {}, declined=ResourceSet({"T": numbers[one]})) for one in numbers)
    reasons = placed(Odd(), group_of({"T": range(6)}, *members))[1]
    assert reasons == {
        ("T", 0): "all 4 that fit are full",
        ("T", 1): "all 4 that fit declined it",
        ("T", 2): "of 4 that fit, 1 is full and 3 declined it",
        ("T", 3): "of 4 that fit, 3 are full and 1 declined it",
        ("T", 4): "all 4 that fit are full",  # it does not fit the member that declined it
        ("T", 5): "the member that it fits is full",
    }
    alone = claim("e", {}, declined=ResourceSet({"T": [5]}))
    reasons = placed(Odd(), group_of({"T": range(4, 6)}, alone))[1]
    assert reasons == {
        ("T", 4): "it fits no member",
        ("T", 5): "the member that it fits declined it",
    }


def test_declined_resource_of_an_assignor_with_limits_has_no_room() -> None:
    why = "the member chosen declines it"
    expected = [0, NOBODY, NOBODY, 0], {("T", 1): why, ("T", 2): why}
    assert placed(Fixed(0, has_limits=True), group(b_owns=True)) == expected


@pytest.mark.parametrize("member", [-2, 3])
def test_target_that_names_no_member_is_refused_whatever_is_declined(member: int) -> None:
    context = RoundContext(leader_id="a", generation=0, now_ms=0, state=None)
    decision = decide_round(
        group(), NO_LAGS, assignor=Fixed(member), policy=SimplePolicy(), context=context
    )
    assert decision.refused


@pytest.mark.parametrize("assignor", [Fixed(1), PlacementAssignor()])
def test_answer_without_declines_is_the_assignors_own(assignor: Assignor) -> None:
    given = group_of({"T": range(3)}, claim("a", {}), claim("b", {}))
    assert not refusals(given).size
    mine, theirs = placed(assignor, given)[0], assignor.assign(given, no_lags(given))
    assert mine == (theirs.target if isinstance(theirs, Placement) else theirs).tolist()


def test_declined_resource_of_a_large_group_needs_no_mask_of_all_pairs() -> None:
    """One member that declined a resource made a leader of a large group run out of memory."""
    members = [claim(f"m{number:04}") for number in range(2_000)]
    members[7] = claim("m0007", declined=ResourceSet({"T": [5]}))
    large = group_of({"T": range(100_000)}, *members)
    tracemalloc.start()
    try:
        target, no_room = placed(Fixed(7), large)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (target[4:7], no_room) == ([7, 0, 7], {})
    assert peak < 50_000_000, "all pairs are 200 MB"


def test_declined_warm_up_forbids_nothing() -> None:
    every = ResourceSet({"T": range(2)})
    given = group_of({"T": range(2)}, claim("a", {}, declined_warmups=every, warm=EMPTY))
    assert not refusals(given).size
