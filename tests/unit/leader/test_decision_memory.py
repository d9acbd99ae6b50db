"""What a policy written by a user remembers, and what its two halves tell each other."""

import attrs
import pytest
from attrs import frozen

from coopgroup.assignors import StickyAssignor
from coopgroup.leader import NO_LAGS, RoundDecision, TopicMetadata, decide_round
from coopgroup.model import GroupSnapshot, MemberClaim, ResourceSet
from coopgroup.model.resource_set import Int32Array
from coopgroup.policies import Offer, PolicyState, RoundContext, SimplePolicy, StagedRound

EXISTING = TopicMetadata(resources=ResourceSet({"T": range(2)}))


@frozen(kw_only=True)
class CountingPolicy:
    """Counts its rounds, and leaves the rest to the simple policy."""

    name = "counting"
    own_state: bool = True

    def offer(self, group: GroupSnapshot, context: RoundContext) -> Offer:
        whole = SimplePolicy().offer(group, context)
        return attrs.evolve(whole, facts=("counted", context.memory or 0))

    def stage(
        self, group: GroupSnapshot, target: Int32Array, context: RoundContext, offer: Offer
    ) -> StagedRound:
        assert isinstance(offer.facts, tuple)
        _, rounds = offer.facts
        staged = SimplePolicy().stage(group, target, context, offer)
        state = staged.state if self.own_state else None
        return StagedRound(plan=staged.plan, state=state, memory=rounds + 1)


def play(policy: CountingPolicy, state: PolicyState | None, generation: int) -> RoundDecision:
    claims = (MemberClaim(member_id="a", topics=("T",), generation=generation),)
    context = RoundContext(leader_id="a", generation=generation, now_ms=0, state=state)
    return decide_round(
        claims, EXISTING, NO_LAGS, assignor=StickyAssignor(), policy=policy, context=context
    )


@pytest.mark.parametrize("own_state", [True, False])
def test_policy_gets_its_memory_and_its_facts_back(own_state: bool) -> None:
    policy = CountingPolicy(own_state=own_state)
    first = play(policy, None, 1)
    second = play(policy, first.state, 2)
    assert (first.refused, first.state.memory, second.state.memory) == (False, 1, 2)


def test_leader_writes_its_own_memory_when_the_policy_does_not() -> None:
    by_policy = play(CountingPolicy(), None, 1).state
    by_leader = play(CountingPolicy(own_state=False), None, 1).state
    assert by_leader == by_policy
    assert by_leader.holdings.resources == EXISTING.resources
