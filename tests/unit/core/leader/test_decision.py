"""The decision of a round and its failures: a refused round moves nothing."""

from collections.abc import Callable

import attrs
import numpy as np
import pytest
from attrs import frozen

from coopgroup.assignors import Assignor, Placement, StickyAssignor
from coopgroup.core.leader import (
    Lags,
    RoundDecision,
    TopicMetadata,
    member_assignments,
    refused_round,
)
from coopgroup.core.model import (
    EMPTY,
    NOBODY,
    GroupSnapshot,
    MemberClaim,
    ResourceSet,
    RoundPlan,
    plan_that_moves_nothing,
)
from coopgroup.core.model.resource_set import Int32Array, Int64Array
from coopgroup.core.policies.memory import PairKind
from coopgroup.policies import (
    DeferredPolicy,
    IncrementalPolicy,
    Offer,
    PolicyState,
    RoundContext,
    SimplePolicy,
    StagedRound,
    Warmup,
)
from coopgroup.protocol import Assignment
from coopgroup.telemetry import RoundDecided, RoundRefused, WithoutRoom
from tests.support.memory import holders_in, planned_in, remembered, resources_in
from tests.unit.core.leader.rounds import (
    FunctionAssignor,
    FunctionPolicy,
    claim,
    context,
    decided_by,
    joined,
    led,
    orders,
    raising,
)


def test_decide_round_when_rates_are_given_shows_them_to_the_assignor() -> None:
    seen: list[object] = []

    def assign(group: GroupSnapshot, lags: Int64Array) -> Int32Array:
        assert lags.size == 2
        assert group.arrivals_per_s is not None
        seen.append(group.arrivals_per_s.tolist())
        seen.append([member.consumption_rate_per_s for member in group.members])
        return np.zeros(2, dtype=np.int32)

    decided_by(
        claims=[claim("a"), claim("b", consumption_rate_per_s=30.0)],
        metadata=TopicMetadata(resources=orders(0, 1)),
        lags=Lags(
            resources=orders(1), values=np.zeros(1, dtype=np.int64), arrivals_per_s=np.array([7.0])
        ),
        assignor=FunctionAssignor(function=assign),
    )
    assert seen == [[0, 7.0], [None, 30.0]]


def test_decide_round_when_resources_move_records_what_and_why() -> None:
    decided = decided_by(
        claims=[
            claim("a", {"orders": [0, 3]}),
            claim("b", {"orders": [1, 3]}),
            claim("c", {"orders": [1]}, generation=0),
        ],
        assignor=FunctionAssignor(function=lambda *_: np.array([1, 1, 0, 0], dtype=np.int32)),
    )
    (record,) = decided.records
    assert isinstance(record, RoundDecided)
    assert (record.granted, record.revoked) == (orders(2), orders(0, 1, 3))
    assert (record.contested, record.follow_up) == (orders(3), True)


def test_decide_round_when_resources_are_deleted_says_so() -> None:
    """A claim tells it to a new leader, and the memory to one that knows the group."""
    claims = [claim("a", {"orders": [0, 4]}), claim("b", {"orders": [1]})]
    memory = remembered("a", "b", generation=1, owned=orders(1, 2, 5), granted=orders(6))
    for state, gone in ((None, orders(4)), (memory, orders(4, 5, 6))):
        record = decided_by(assignor=FAILS, claims=claims, state=state).records[-1]
        assert isinstance(record, RoundDecided)
        assert record.gone == gone


FAILS = FunctionAssignor(function=raising)


def refusal_of(decided: RoundDecision) -> tuple[str, ...]:
    plan = plan_that_moves_nothing(decided.group)
    assert decided.refused
    assert decided.plan.assigned.tolist() == plan.assigned.tolist()
    refusal, record = decided.records
    assert isinstance(refusal, RoundRefused)
    assert isinstance(record, RoundDecided)
    assert record.granted == EMPTY
    return refusal.violations


def failing_plan(*_: object) -> RoundPlan:
    raise KeyError("b")


def test_decide_round_when_the_assignor_raises_moves_nothing() -> None:
    decided = decided_by(assignor=FAILS)
    assert refusal_of(decided) == ("assignor mine: ZeroDivisionError: no luck",)
    assert member_assignments(decided) == (
        Assignment(assigned=orders(0, 1)),
        Assignment(assigned=EMPTY),
    )


def test_decide_round_when_an_error_has_no_text_moves_nothing() -> None:
    class SilentError(Exception):
        def __str__(self) -> str:
            raise ValueError

    def fails(*_: object) -> Int32Array:
        raise SilentError

    decided = decided_by(assignor=FunctionAssignor(function=fails))
    assert refusal_of(decided) == ("assignor mine: SilentError: …",)


@pytest.mark.parametrize("target", [None, np.full(4, NOBODY, dtype=np.int32)])
def test_decide_round_when_the_target_breaks_the_contract_moves_nothing(target: Int32Array) -> None:
    """`test_safety` has each of the contract's rules."""
    decided = decided_by(assignor=FunctionAssignor(function=lambda *_: target))
    (reason,) = refusal_of(decided)
    assert reason.startswith("assignor mine: AssignorError: target ")


@pytest.mark.parametrize(
    "stage", [failing_plan, lambda group, target: None], ids=["raises", "none"]
)
def test_decide_round_when_the_policy_fails_moves_nothing(
    stage: Callable[[GroupSnapshot, Int32Array], RoundPlan],
) -> None:
    (reason,) = refusal_of(decided_by(policy=FunctionPolicy(function=stage)))
    assert reason.startswith("policy mine: ")


def test_decide_round_when_the_policy_makes_a_second_owner_moves_nothing() -> None:
    def everything_at_once(group: GroupSnapshot, target: Int32Array) -> RoundPlan:
        assigned = np.ones(4, dtype=np.int32)
        plan = plan_that_moves_nothing(group)
        return attrs.evolve(plan, target=target, assigned=assigned, follow_up=True)

    assert refusal_of(decided_by(policy=FunctionPolicy(function=everything_at_once)))


def test_decide_round_when_user_code_writes_into_the_group_refuses_it() -> None:
    """The arrays are read-only, so that the safety check compares with the original values."""

    def meddle(group: GroupSnapshot, lags: Int64Array) -> Int32Array:
        group.claim_members[:] = 1
        return group.owner

    (reason,) = refusal_of(decided_by(assignor=FunctionAssignor(function=meddle)))
    assert reason == "assignor mine: ValueError: assignment destination is read-only"


def test_refused_round_when_the_last_assignments_may_be_lost_keeps_its_moves_planned() -> None:
    """The leader's own SyncGroup failed. Both ways to refuse a round remember the same."""
    last = decided_by(
        assignor=FunctionAssignor(function=lambda *_: np.array([1, 0, 0, 0], dtype=np.int32))
    ).state
    assert resources_in(last, PairKind.TOLD) == orders(0)
    decided = decided_by(assignor=FAILS, state=last)
    refused = refused_round(
        decided.group,
        ("no metadata",),
        assignor=FAILS,
        policy=SimplePolicy(),
        context=context(last, generation=1, now_ms=0),
    )
    assert planned_in(refused.state) == orders(0)
    assert refused.state == decided.state


def test_decide_round_when_refused_keeps_a_running_delay_running() -> None:
    claims = (
        claim("a", {"orders": [0]}, rejoin_in_ms=0, loss_ends_in_ms=0),
        claim("b", {"orders": [1]}, rejoin_in_ms=900, loss_ends_in_ms=900),
        claim("c", rejoin_in_ms=400, loss_ends_in_ms=400),
    )
    decided = decided_by(assignor=FAILS, claims=claims)
    answers = member_assignments(decided)
    assert {(one.rejoin_in_ms, one.loss_ends_in_ms) for one in answers} == {(400, 400)}


@pytest.mark.parametrize(
    ("known", "told"),
    [
        ([(0, None), (300, None)], (300, None)),
        ([(0, 5_000), (300, None)], (300, 5_000)),
        ([(0, 200), (300, 300)], (200, 200)),
        ([(None, 200), (0, 0)], (200, 200)),
        ([(0, 0), (0, None)], (None, None)),
    ],
)
def test_decide_round_when_refused_tells_pauses_and_waits_apart(
    known: list[tuple[int | None, int | None]], told: tuple[int | None, int | None]
) -> None:
    claims = tuple(
        claim(name, {"orders": [place]}, rejoin_in_ms=rejoin_ms, loss_ends_in_ms=loss_ms)
        for place, (name, (rejoin_ms, loss_ms)) in enumerate(zip("ab", known, strict=True))
    )
    decided = decided_by(assignor=FAILS, claims=claims)
    assert {
        (answer.rejoin_in_ms, answer.loss_ends_in_ms) for answer in member_assignments(decided)
    } == {told}


def test_decide_round_when_refused_and_revoking_sends_no_delay() -> None:
    claims = (
        claim("a", {"orders": [0], "gone": [1]}, rejoin_in_ms=900, loss_ends_in_ms=900),
        claim("b", {"orders": [1]}),
    )
    decided = decided_by(assignor=FAILS, claims=claims)
    assert member_assignments(decided) == (
        Assignment(assigned=orders(0), revoked=ResourceSet({"gone": [1]})),
        Assignment(assigned=orders(1), revoked=EMPTY),
    )


def test_decide_round_when_refused_brings_the_memory_up_to_date() -> None:
    before = remembered("x", generation=0, owned=orders(3), silent=["a"])
    decided = decided_by(
        assignor=FAILS,
        state=before,
        claims=(claim("a", {"orders": [0]}), MemberClaim(member_id="b", topics=(), readable=False)),
    )
    after = remembered("x", generation=1, owned=orders(0, 3), silent=["b"])
    assert decided.state == attrs.evolve(
        after, resources=after.resources.aligned(decided.group.resources)
    )


def test_decide_round_when_refused_remembers_who_is_missed_and_what_was_told() -> None:
    before = led(joined("a", {"orders": [0]}), joined("b", {"orders": [1]})).state
    decided = decided_by(
        assignor=FAILS,
        state=before,
        claims=(claim("a", {"orders": [0]}), claim("c", {"orders": [0]}, generation=0)),
    )
    assert decided.state.members.ids == ("a", "b")
    assert holders_in(decided.state) == holders_in(before) != {}
    assert resources_in(decided.state, PairKind.TOLD) == orders(0)


@pytest.mark.parametrize("remaining_ms", [None, 300], ids=["a new group", "a pause between moves"])
def test_decide_round_when_the_first_one_was_refused_evens_shares_out(
    remaining_ms: int | None,
) -> None:
    """A leader without memory that could not decide knows no more in its next round."""
    policy = IncrementalPolicy(max_moves_per_round=1, move_interval_ms=500)
    paused: dict[str, int] = {}
    if remaining_ms is not None:
        paused = {"rejoin_in_ms": remaining_ms}
    owned = {"a": [0, 1], "b": [2, 3], "c": []}
    claims = tuple(claim(name, {"orders": some}, **paused) for name, some in owned.items())
    refused = decided_by(assignor=FAILS, policy=policy, claims=claims)
    assert refused.refused
    early, due = (
        decided_by(
            policy=policy, claims=claims, state=refused.state, generation=2, now_ms=now_ms
        ).plan
        for now_ms in (299, 300)
    )
    assert bool((early.assigned == NOBODY).any()) == (remaining_ms is None)
    assert int((due.assigned == NOBODY).sum()) == 1


def deferred(
    assignor: Assignor, claims: list[MemberClaim], state: PolicyState | None, now_ms: int
) -> RoundDecision:
    return decided_by(
        assignor=assignor,
        policy=DeferredPolicy(scheduled_rebalance_timeout_ms=500, initial_delay_ms=3_000),
        claims=claims,
        state=state,
        generation=now_ms,
        now_ms=now_ms,
    )


@pytest.mark.parametrize("refusals", [1, 2])
def test_decide_round_when_the_first_ones_were_refused_waits_for_more_members(
    refusals: int,
) -> None:
    claims, state = [claim("a"), claim("b")], None
    for now_ms in range(1, refusals + 1):
        state = deferred(FAILS, claims, state, now_ms).state
    waits = deferred(StickyAssignor(), claims, state, 1_000)
    assert (waits.plan.assigned == NOBODY).all()
    assert waits.plan.rejoin_in_ms == 3_000
    later = deferred(StickyAssignor(), claims, waits.state, 3_500)
    assert later.plan.rejoin_in_ms == 500
    over = deferred(StickyAssignor(), claims, later.state, 4_000)
    assert (over.plan.assigned != NOBODY).all()


def test_decide_round_when_refused_in_a_group_that_owned_resources_does_not_wait_again() -> None:
    """All members died after the refused round: their resources are lost, not new."""
    claims = [claim("a", {"orders": [0, 1, 2, 3]})]
    refused = deferred(FAILS, claims, None, 1)
    plan = deferred(StickyAssignor(), [claim("b")], refused.state, 10).plan
    assert plan.rejoin_in_ms in {None, 500}


# --- what a policy written by a user remembers, and what its two halves tell each other -----------


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


@pytest.mark.parametrize("own_state", [True, False])
def test_policy_gets_its_memory_and_its_facts_back(own_state: bool) -> None:
    policy = CountingPolicy(own_state=own_state)
    first = decided_by(policy=policy)
    second = decided_by(policy=policy, state=first.state, generation=2)
    assert (first.refused, first.state.memory, second.state.memory) == (False, 1, 2)


@frozen(kw_only=True)
class ForgetfulPolicy:
    """Writes a memory with members only, and leaves the rest to the deferred policy."""

    name = "forgetful"

    def offer(self, group: GroupSnapshot, context: RoundContext) -> Offer:
        return DeferredPolicy().offer(group, context)

    def stage(
        self, group: GroupSnapshot, target: Int32Array, context: RoundContext, offer: Offer
    ) -> StagedRound:
        staged = DeferredPolicy().stage(group, target, context, offer)
        state = remembered(*group.member_ids, generation=context.generation)
        return attrs.evolve(staged, state=state)


def test_memory_without_subscriptions_is_no_change_of_them() -> None:
    claims = [claim("a", {"orders": [0, 1, 2, 3]})]
    first = decided_by(policy=ForgetfulPolicy(), claims=claims)
    second = decided_by(policy=ForgetfulPolicy(), claims=claims, state=first.state, generation=2)
    assert (first.refused, second.refused) == (False, False)


def test_leader_writes_its_own_memory_when_the_policy_does_not() -> None:
    by_leader = decided_by(policy=CountingPolicy(own_state=False)).state
    assert by_leader == decided_by(policy=CountingPolicy()).state
    assert holders_in(by_leader)


# --- no room --------------------------------------------------------------------------------------


def two_places(group: GroupSnapshot, _: Int64Array) -> Placement:
    """Place the first two of orders 0 to 3; a heavy and a light one are left out."""
    target = np.where(group.assignable, 0, NOBODY).astype(np.int32)
    target[2:] = NOBODY
    reasons = {("orders", 2): "too heavy", ("orders", 3): "all places are taken"}
    return Placement(target=target, no_room=reasons)


def test_decide_round_when_no_member_has_room_goes_on_and_says_why() -> None:
    decided = decided_by(
        claims=[claim("a", {"orders": [2]})],
        metadata=TopicMetadata(resources=orders(0, 1, 2, 3)),
        assignor=FunctionAssignor(function=two_places),
    )
    round_, *without_room = decided.records
    assert without_room == [
        WithoutRoom(resources=orders(3), reasons=("all places are taken",)),
        WithoutRoom(resources=orders(2), reasons=("too heavy",)),
    ]
    assert isinstance(round_, RoundDecided)
    assert (round_.granted, round_.revoked, round_.gone) == (orders(0, 1), orders(2), EMPTY)
    assert not decided.refused


def test_many_reasons_share_the_last_record() -> None:
    def nowhere(group: GroupSnapshot, _: Int64Array) -> Placement:
        reasons = {("orders", number): f"reason {number}" for number in range(12)}
        return Placement(target=np.full_like(group.owner, NOBODY), no_room=reasons)

    _, *told = decided_by(
        claims=[claim("a")],
        metadata=TopicMetadata(resources=orders(*range(12))),
        assignor=FunctionAssignor(function=nowhere),
    ).records
    assert [len(one.resources) for one in told if isinstance(one, WithoutRoom)] == [1, 1, 1, 1, 8]
    assert [len(one.reasons) for one in told if isinstance(one, WithoutRoom)] == [1, 1, 1, 1, 5]


def test_decide_round_when_a_place_is_free_again_grants_what_had_none() -> None:
    full = decided_by(
        claims=[claim("a", {"orders": [0, 1]})],
        metadata=TopicMetadata(resources=orders(0, 1, 2, 3)),
        assignor=FunctionAssignor(function=two_places),
    )
    again = decided_by(
        claims=[claim("a", {"orders": [0, 1]})],
        metadata=TopicMetadata(resources=orders(0, 1, 2, 3)),
        state=full.state,
        generation=2,
    )
    (round_,) = again.records
    assert isinstance(round_, RoundDecided)
    assert (round_.granted, round_.created) == (orders(2, 3), orders(2, 3))


@pytest.mark.parametrize("declining", ["a", "ab"])
def test_decide_round_when_all_members_decline_a_bundle_is_refused_and_says_why(
    declining: str,
) -> None:
    both = ResourceSet.from_pairs([("orders", 0), ("payments", 0)])
    decided = decided_by(
        claims=[
            attrs.evolve(
                claim(name),
                topics=("orders", "payments"),
                declined=orders(0) if name in declining else EMPTY,
            )
            for name in "ab"
        ],
        metadata=TopicMetadata(resources=both),
        assignor=StickyAssignor(),
        policy=SimplePolicy(warmup=Warmup(co_partition=[("orders", "payments")])),
    )
    told = [one.violations for one in decided.records if isinstance(one, RoundRefused)]
    if declining == "a":
        assert told == []
        assert decided.plan.assigned.tolist() == [1, 1]
    else:
        assert told == [
            ("assignor sticky leaves out the bundle of ('orders', 0): all members decline it",)
        ]


def test_decide_round_when_a_resource_is_left_out_without_a_reason_is_refused() -> None:
    def assign(group: GroupSnapshot, lags: Int64Array) -> Placement:
        placement = two_places(group, lags)
        return attrs.evolve(placement, no_room={("orders", 2): "too heavy"})

    decided = decided_by(
        claims=[claim("a")],
        metadata=TopicMetadata(resources=orders(0, 1, 2, 3)),
        assignor=FunctionAssignor(function=assign),
    )
    refused = decided.records[0]
    assert isinstance(refused, RoundRefused)
    assert "target leaves out what is assignable and has a subscriber: orders-3" in str(
        refused.violations
    )
