"""A user's policy may write any `PolicyState`; the leader fits it to the group, or refuses it."""

from collections.abc import Callable
from itertools import product

import attrs
import numpy as np
import pytest

from coopgroup.assignors import StickyAssignor
from coopgroup.core.leader import RoundDecision, decide_round
from coopgroup.core.model import GroupSnapshot, MemberClaim, ResourceSet, resolve_claims
from coopgroup.core.model.lags import NO_LAGS
from coopgroup.core.model.resource_set import EMPTY, Int32Array
from coopgroup.core.policies.memory import NO_RESOURCES, state_from_json, state_to_json
from coopgroup.policies import (
    Offer,
    Policy,
    PolicyState,
    RoundContext,
    SimplePolicy,
    StagedRound,
    Warmup,
)

FOUR = ResourceSet({"T": range(4)})
FIVE = ResourceSet({"A": range(1), "T": range(4)})

Writer = Callable[[RoundContext, PolicyState], PolicyState]


@attrs.frozen
class Rewriting:
    """The simple policy with another state."""

    write: Writer
    warmup: Warmup | None = None
    name = "rewriting"

    def offer(self, group: GroupSnapshot, context: RoundContext) -> Offer:
        return SimplePolicy().offer(group, context)

    def stage(
        self, group: GroupSnapshot, target: Int32Array, context: RoundContext, offer: Offer
    ) -> StagedRound:
        staged = SimplePolicy().stage(group, target, context, offer)
        assert staged.state is not None
        return attrs.evolve(staged, state=self.write(context, staged.state))


def nothing(context: RoundContext, state: PolicyState) -> PolicyState:
    return PolicyState(generation=context.generation)


def no_resources(context: RoundContext, state: PolicyState) -> PolicyState:
    return attrs.evolve(state, resources=NO_RESOURCES, pairs=PolicyState(generation=0).pairs)


def half(context: RoundContext, state: PolicyState) -> PolicyState:
    kept = np.arange(len(state.resources.names)) % 2 == 1
    return attrs.evolve(
        state, resources=state.resources.take(kept), pairs=PolicyState(generation=0).pairs
    )


def old(context: RoundContext, state: PolicyState) -> PolicyState:
    before = context.state
    return state if before is None else attrs.evolve(before, generation=context.generation)


def decided(
    policy: Policy,
    resources: ResourceSet,
    *members: str,
    generation: int = 0,
    state: PolicyState | None = None,
) -> RoundDecision:
    claims = [
        MemberClaim(
            member_id=member,
            topics=("A", "T"),
            owned=FOUR if member == "b" else EMPTY,
            generation=1,
            warm=EMPTY,
        )
        for member in members
    ]
    return decide_round(
        resolve_claims(claims, resources),
        NO_LAGS,
        assignor=StickyAssignor(),
        policy=policy,
        context=RoundContext(leader_id="b", generation=generation, now_ms=0, state=state),
    )


def test_any_state_of_a_user_serves_the_next_round(subtests: pytest.Subtests) -> None:
    for warmup, write in product(
        [None, Warmup(), Warmup(standbys=1)], [nothing, no_resources, half, old]
    ):
        with subtests.test(warmup=warmup, write=write):
            policy = Rewriting(write, warmup)
            state = None
            rounds = [(FIVE, "b", "c"), (FOUR, "a", "b"), (FOUR, "a", "b"), (FOUR, "b", "c")]
            for generation, (resources, *members) in enumerate(rounds):
                decision = decided(policy, resources, *members, generation=generation, state=state)
                assert not decision.refused, decision.records
                state = decision.state
                assert state_from_json(state_to_json(state)) == state
                assert state.resources.names == resources
                assert state.members.ids == tuple(members)


@pytest.mark.parametrize("column", ["holder", "receiver", "loss"])
@pytest.mark.parametrize("value", [-2, 2])
def test_state_with_a_position_out_of_range_is_refused(column: str, value: int) -> None:
    def write(context: RoundContext, state: PolicyState) -> PolicyState:
        values = np.full(len(FOUR), value, dtype=np.int32)
        rows = state.resources
        changed = {
            "holder": attrs.evolve(rows, holder=values),
            "receiver": attrs.evolve(rows, receiver=values),
            "loss": attrs.evolve(rows, loss=values),
        }
        return attrs.evolve(state, resources=changed[column])

    policy = Rewriting(write)
    decision = decided(policy, FOUR, "b", "c")
    assert decision.refused
    assert "position" in str(decision.records[0])


def test_state_with_pairs_of_other_resources_is_refused() -> None:
    def write(context: RoundContext, state: PolicyState) -> PolicyState:
        assert state.pairs.kind.size
        return attrs.evolve(state, resources=NO_RESOURCES)

    decision = decided(Rewriting(write), FOUR, "b", "c")
    assert decision.refused


@pytest.mark.parametrize("holder", [np.zeros(3, dtype=np.int32), np.zeros(4)])
def test_state_with_an_unfit_column_is_refused(holder: Int32Array) -> None:
    def write(context: RoundContext, state: PolicyState) -> PolicyState:
        return attrs.evolve(state, resources=attrs.evolve(state.resources, holder=holder))

    assert decided(Rewriting(write), FOUR, "b", "c").refused


@attrs.frozen
class Forgetting:
    """Writes into a column of the leader's memory."""

    column: str
    warmup: Warmup | None = None
    name = "forgetting"

    def offer(self, group: GroupSnapshot, context: RoundContext) -> Offer:
        if context.state is not None:
            getattr(context.state.resources, self.column)[:] = 0
        return SimplePolicy().offer(group, context)

    def stage(
        self, group: GroupSnapshot, target: Int32Array, context: RoundContext, offer: Offer
    ) -> StagedRound:
        return SimplePolicy().stage(group, target, context, offer)


@pytest.mark.parametrize("column", ["past", "holder", "loss", "receiver", "promised", "planned"])
def test_policy_cannot_write_into_the_memory(column: str) -> None:
    state = decided(Forgetting(column), FOUR, "b", "c").state
    decision = decided(Forgetting(column), FOUR, "b", "c", generation=1, state=state)
    assert decision.refused
    assert "read-only" in str(decision.records[0])
