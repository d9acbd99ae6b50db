"""A policy never grants a free resource beyond the limits of an assignor."""

from itertools import product

import attrs
import numpy as np
import pytest

from coopgroup.assignors import GroupMember, PlacementAssignor, StickyAssignor
from coopgroup.core.leader import decide_round
from coopgroup.core.model import EMPTY, GroupSnapshot, MemberClaim, resolve_claims
from coopgroup.core.model.lags import NO_LAGS
from coopgroup.core.model.resource_set import Int32Array, Int64Array
from coopgroup.core.telemetry.records import RoundRefused
from coopgroup.policies import (
    DeferredPolicy,
    Offer,
    Policy,
    RoundContext,
    SimplePolicy,
    StagedRound,
    Warmup,
)
from tests.support.memory import holders_in
from tests.support.warm_group import WarmGroup, partitions

DEFERRED = DeferredPolicy(scheduled_rebalance_timeout_ms=1_000)


class Places(PlacementAssignor):
    name = "places"

    def places(self, member: GroupMember) -> int:
        return int(member.traits["places"])


def group_of(policy: Policy) -> WarmGroup:
    """Return a group of three partitions; `b` departed with one, and `a` has more places now."""
    group = WarmGroup(existing=partitions(0, 1, 2), policy=policy, assignor=Places())
    group.add("a", traits={"places": 2}, warm=None)
    group.add("b", traits={"places": 1}, warm=None)
    group.settle()
    assert group.owned() == {"a": [0, 1], "b": [2]}
    del group.members["b"]
    group.members["a"].traits = {"places": 3}
    return group


@pytest.mark.parametrize(("places", "owner"), [(0, "a"), (1, "c")])
def test_newcomer_gets_the_share_of_a_departed_member_if_it_has_places(
    places: int, owner: str
) -> None:
    group = group_of(DEFERRED)
    group.add("c", traits={"places": places}, warm=None)
    group.settle()
    assert {name for name, owned in group.owned().items() if 2 in owned} == {owner}
    state = group.state
    assert state is not None
    assert state.members.ids[holders_in(state)["T", 2]] == owner


def test_new_leader_does_not_take_itself_for_the_missing_owner_without_a_place() -> None:
    group = group_of(DEFERRED)
    group.add("0", traits={"places": 0}, warm=None)
    group.settle()
    assert group.leader == "0"
    assert group.owned() == {"0": [], "a": [0, 1, 2]}


def test_warm_member_without_a_place_does_not_take_over() -> None:
    group = WarmGroup(policy=SimplePolicy(warmup=Warmup(standbys=1)), assignor=Places())
    group.existing = partitions(0)
    group.add("a", traits={"places": 1})
    group.add("b", traits={"places": 0})
    group.settle()
    group.warms_up("b")
    group.add("c", traits={"places": 0})
    group.settle()
    del group.members["a"]
    group.members["c"].traits = {"places": 1}
    group.settle()
    assert group.owned() == {"b": [], "c": [0]}


class ChangesItsMind:
    """Its second answer in a round moves more, so the round follows its first one."""

    name = "changes-its-mind"
    needs_lags = False
    has_limits = True

    def __init__(self) -> None:
        self.answers: list[Int32Array] = []

    def assign(self, group: GroupSnapshot, lags: Int64Array) -> Int32Array:
        answer = [1, 1, 1] if self.answers else [1, 0, 0]
        self.answers.append(np.array(answer, dtype=np.int32))
        return self.answers[-1]


def test_free_resource_goes_where_the_chosen_answer_wants_it() -> None:
    assignor = ChangesItsMind()
    group = WarmGroup(existing=partitions(0, 1, 2), assignor=assignor)
    group.add("a", 0, 1)
    group.add("b", warm=[1])
    group.round()
    assert len(assignor.answers) == 2
    assert group.owned() == {"a": [0, 1, 2], "b": []}


def test_other_assignors_leave_the_choice_to_the_policy() -> None:
    group = group_of(DEFERRED)
    group.assignor = StickyAssignor()
    group.add("c", warm=None)
    group.settle()
    assert group.owned() == {"a": [0, 1], "c": [2]}


class Stays(Places):
    """A running resource stays where it is, so a member that comes late has nothing."""

    evens_out = False


def test_idle_member_does_not_count_as_an_owner_that_returns() -> None:
    """The leader departs and returns before the others join, so the new leader has no memory.

    It takes members with nothing for those that lost something. The idle member was in the last
    round, and the assignor left it without anything on purpose.
    """
    group = WarmGroup(policy=DEFERRED, assignor=Stays())
    group.add("a", traits={"places": 2}, warm=None)
    group.add("b", traits={"places": 2}, warm=None)
    group.settle()
    group.add("c", traits={"places": 2}, warm=None)
    group.settle()
    before = group.owned()
    assert before["c"] == []
    del group.members["a"]
    group.add("d", traits={"places": 2}, warm=None)
    group.settle()
    assert group.owned() == {"b": before["b"], "c": [], "d": before["a"]}


def test_owner_that_is_back_does_not_get_what_it_declines() -> None:
    """It missed its assignment. Then its application declined, and no further round would come."""
    group = WarmGroup(policy=DEFERRED, assignor=StickyAssignor())
    group.add("a", warm=None)
    group.add("b", warm=None)
    group.settle()
    back = group.members["b"]
    before, back.owned = back.owned, EMPTY
    back.declined = before
    group.round()
    assert group.members["a"].owned >= before
    assert back.owned == EMPTY


def test_member_that_joins_right_after_others_has_its_share() -> None:
    """The others were granted all, and joined the next round before they had received it."""
    group = WarmGroup(existing=partitions(*range(6)), policy=DEFERRED, assignor=Places())
    for name in "ab":
        group.add(name, traits={"places": 6}, warm=None)
    group.deaf = {"a", "b"}
    group.round()
    group.add("c", traits={"places": 6}, warm=None)
    group.settle()
    assert [len(owned) for owned in group.owned().values()] == [2, 2, 2]


@attrs.frozen
class _Misnumbering:
    """Gives the first partition to a member that does not exist."""

    number: int
    name = "misnumbering"

    def offer(self, group: GroupSnapshot, context: RoundContext) -> Offer:
        return SimplePolicy().offer(group, context)

    def stage(
        self, group: GroupSnapshot, target: Int32Array, context: RoundContext, offer: Offer
    ) -> StagedRound:
        staged = SimplePolicy().stage(group, target, context, offer)
        assigned = staged.plan.assigned.copy()
        assigned[0] = self.number
        return StagedRound(plan=attrs.evolve(staged.plan, assigned=assigned))


def _plan_with_an_unknown_member_is_refused_whatever_is_declined(
    number: int, declined: int
) -> None:
    claims = [
        MemberClaim(member_id="a", topics=("T",), owned=EMPTY, declined=partitions(declined)),
        MemberClaim(member_id="b", topics=("T",), owned=EMPTY),
    ]
    decision = decide_round(
        resolve_claims(claims, partitions(0, 1, 2)),
        NO_LAGS,
        assignor=StickyAssignor(),
        policy=_Misnumbering(number),
        context=RoundContext(leader_id="a", generation=0, now_ms=0, state=None),
    )
    assert decision.refused
    problem = f"assigned names member {number} of a group of 2"
    assert decision.records[0] == RoundRefused(violations=(problem,))


def test_plan_with_an_unknown_member_is_refused_whatever_is_declined(
    subtests: pytest.Subtests,
) -> None:
    for number, declined in product([-2, 2, 3], [0, 1, 2]):
        with subtests.test(number=number, declined=declined):
            _plan_with_an_unknown_member_is_refused_whatever_is_declined(number, declined)
