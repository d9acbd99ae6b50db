"""Policies of users hold back moves to cold members, or their rounds are refused."""

from itertools import product
from typing import Any, ClassVar

import attrs
import numpy as np
import pytest

from coopgroup.assignors import LagAwareAssignor, StickyAssignor
from coopgroup.core.assignors.base import Assignor
from coopgroup.core.leader import Lags, RoundDecision, decide_round
from coopgroup.core.model import (
    NOBODY,
    GroupSnapshot,
    MemberClaim,
    ResourceSet,
    resolve_claims,
)
from coopgroup.core.model.resource_set import Int32Array
from coopgroup.core.policies.memory import PairKind, Past
from coopgroup.core.policies.policy import Policy
from coopgroup.core.telemetry.records import RoundRefused
from coopgroup.policies import (
    IncrementalPolicy,
    Offer,
    PolicyState,
    RoundContext,
    SimplePolicy,
    StagedRound,
    Warmup,
)
from tests.support.memory import planned_in, resources_in

FOUR = ResourceSet({"T": range(4)})
HOT = Lags.from_mapping({"T": {0: 50_000, 1: 50_000, 2: 10, 3: 10}})


@attrs.frozen(kw_only=True)
class Obstinate:
    """Moves the first `count` partitions of the first member that stay with it in the target.

    Attributes:
        count: how many.
        promises: whether it promises them. Otherwise it writes no state, as a policy of a user may
            do.
        ignores: whether it moves resources to cold members, as a policy does that knows nothing of
            warm-ups.
    """

    count: int
    promises: bool = False
    ignores: bool = False
    name = "obstinate"
    warmup: ClassVar[Warmup] = Warmup()

    def offer(self, group: GroupSnapshot, context: RoundContext) -> Offer:
        return SimplePolicy().offer(group, self._known(context))

    def stage(
        self, group: GroupSnapshot, target: Int32Array, context: RoundContext, offer: Offer
    ) -> StagedRound:
        moved = target.copy()
        others = np.flatnonzero(target == 0)[: self.count]
        moved[others] = 1
        staged = SimplePolicy().stage(group, moved, self._known(context), offer)
        if not self.promises:
            return attrs.evolve(staged, state=None)
        assert staged.state is not None
        mask = moved != target
        receiver = np.where(mask, moved, NOBODY).astype(np.int32)
        rows = attrs.evolve(staged.state.resources, receiver=receiver, promised=mask)
        return attrs.evolve(staged, state=attrs.evolve(staged.state, resources=rows))

    def _known(self, context: RoundContext) -> RoundContext:
        return attrs.evolve(context, warmth=None) if self.ignores else context


def claim(member_id: str, *owned: int, warm: ResourceSet | None = FOUR - FOUR) -> MemberClaim:
    return MemberClaim(
        member_id=member_id,
        topics=("T",),
        owned=ResourceSet({"T": owned}),
        generation=1,
        warm=warm,
    )


def decided(policy: Policy, *claims: MemberClaim, **options: Any) -> RoundDecision:  # noqa: ANN401 - of `round_of`
    decision = round_of(policy, *claims, **options)
    assert not decision.refused, decision.records
    return decision


def round_of(
    policy: Policy,
    *claims: MemberClaim,
    assignor: Assignor | None = None,
    balance: bool = False,
    state: PolicyState | None = None,
) -> RoundDecision:
    return decide_round(
        resolve_claims(claims, FOUR),
        HOT,
        assignor=StickyAssignor() if assignor is None else assignor,
        policy=policy,
        context=RoundContext(
            leader_id="a",
            generation=2 if state is None else state.generation + 1,
            now_ms=1_000_000 if balance else 0,
            state=state,
            balance=balance,
            lags=HOT,
        ),
    )


def test_policy_of_a_user_holds_back_cold_moves(subtests: pytest.Subtests) -> None:
    for promises, count in product([False, True], [0, 1]):
        with subtests.test(promises=promises, count=count):
            policy = Obstinate(count=count, promises=promises)
            plan = decided(policy, claim("a", 0, 1, 2, 3), claim("b")).plan
            assert plan.assigned.tolist() == [0, 0, 0, 0]
            assert plan.waiting.tolist() == [count == 1, True, False, True]
            assert plan.warmup_resources.tolist() == ([0, 1] if count else [1, 3])
            assert plan.warmup_members.tolist() == [1, 1]
            assert not plan.follow_up, "the next round would find the same group"


@pytest.mark.parametrize("promises", [False, True])
def test_move_of_a_user_that_waits_is_not_forgotten(*, promises: bool) -> None:
    policy = Obstinate(count=0, promises=promises)
    state = decided(policy, claim("a", 0, 1, 2, 3), claim("b")).state
    rows = state.resources
    assert rows.receiver.tolist() == [NOBODY, 1, NOBODY, 1]
    assert rows.holder.tolist() == [0, 0, 0, 0]
    assert not (rows.past == Past.RELEASED).any()
    assert not resources_in(state, PairKind.TOLD)
    assert not promises or planned_in(state) == ResourceSet({"T": [1, 3]})


@pytest.mark.parametrize("promises", [False, True])
def test_policy_that_ignores_warm_ups_is_refused_until_all_receivers_are_warm(
    *, promises: bool
) -> None:
    """The sentence has the call that the policy should make."""
    policy = Obstinate(count=0, promises=promises, ignores=True)
    half = ResourceSet({"T": [1]})
    owner = claim("a", 0, 1, 2, 3)
    refused = round_of(policy, owner, claim("b", warm=half))
    assert refused.plan.assigned.tolist() == [0, 0, 0, 0]
    expected = "expected it to wait while `context.warmth.waits_for(target)`: T-3"
    sentence = f"taken for a member that is cold, {expected}"
    assert refused.records[0] == RoundRefused(violations=(sentence,))
    plan = decided(policy, owner, claim("b", warm=half | ResourceSet({"T": [3]}))).plan
    assert (plan.assigned.tolist(), plan.follow_up) == ([0, -1, 0, -1], True)


@pytest.mark.parametrize("takes_part", [True, False])
def test_exchange_that_balances_lags_waits_for_its_warm_ups(takes_part: bool) -> None:
    policy = IncrementalPolicy(
        max_moves_per_round=2,
        lag_check_interval_ms=1_000,
        lag_imbalance_min=10,
        warmup=Warmup(),
    )
    warm = ResourceSet() if takes_part else None
    claims = [claim("a", 0, 1, warm=warm), claim("b", 2, 3, warm=warm)]
    assignor = LagAwareAssignor()
    settled = decided(SimplePolicy(), *claims, assignor=_Settled())
    decision = decided(policy, *claims, assignor=assignor, balance=True, state=settled.state)
    if not takes_part:
        assert decision.plan.follow_up
        return
    assert decision.plan.assigned.tolist() == [0, 0, 1, 1]
    warmups = zip(
        decision.plan.warmup_resources.tolist(), decision.plan.warmup_members.tolist(), strict=True
    )
    (from_a, to_b), (from_b, to_a) = warmups
    assert (from_a in (0, 1), to_b, from_b in (2, 3), to_a) == (True, 1, True, 0)
    assert not decision.state.moves_pending, "the rest of the target stays as it is"
    warm_a, warm_b = ResourceSet({"T": [from_b]}), ResourceSet({"T": [from_a]})
    claims = [claim("a", 0, 1, warm=warm_a), claim("b", 2, 3, warm=warm_b)]
    decision = decided(policy, *claims, assignor=assignor, state=decision.state)
    assert decision.plan.follow_up
    assert decision.plan.assigned[[from_a, from_b]].tolist() == [-1, -1]


class _Settled:
    name = "settled"
    needs_lags = False

    def assign(self, group: GroupSnapshot, lags: object) -> Int32Array:
        return group.owner.copy()


def test_promise_ends_if_its_receiver_no_longer_subscribes() -> None:
    """The leader would warm up a member that may not have the resource, and refuse each round."""
    policy = IncrementalPolicy(
        max_moves_per_round=2, lag_check_interval_ms=1_000, lag_imbalance_min=10, warmup=Warmup()
    )
    claims = [claim("a", 0, 1), claim("b", 2), claim("c", 3), claim("d")]
    settled = decided(SimplePolicy(), *claims, assignor=_Settled())
    before = decided(
        policy, *claims, assignor=LagAwareAssignor(), balance=True, state=settled.state
    )
    assert before.plan.warmup_members.size, "a resource is promised"
    (promised,) = np.flatnonzero(before.state.resources.promised).tolist()
    receiver = before.group.member_ids[before.state.resources.receiver[promised]]
    lost = next(m for m in ("c", "b") if m != receiver)
    after = [
        attrs.evolve(one, topics=()) if one.member_id == receiver else one
        for one in claims
        if one.member_id != lost
    ]
    decision = decided(policy, *after, assignor=_ToLast(), state=before.state)
    assert decision.plan.lost.any(), "the round rests"
    assert decision.plan.assigned[promised] == 0


class _ToLast:
    name = "to-last"
    needs_lags = False

    def assign(self, group: GroupSnapshot, lags: object) -> Int32Array:
        last = max(
            number for number, kind in enumerate(group.class_of) if group.subscriptions[kind]
        )
        return np.where(group.assignable, last, NOBODY).astype(np.int32)
