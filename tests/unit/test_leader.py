"""The leader's duty: decode, resolve claims, assign, stage, check, encode; and what goes wrong."""

from collections.abc import Callable, Mapping

import attrs
import numpy as np
import pytest

from coopgroup.assignors import StickyAssignor
from coopgroup.errors import ConfigurationError, DecodeError, RemoteProtocolError
from coopgroup.leader import (
    NO_LAGS,
    DecidedRound,
    Lags,
    LedRound,
    TopicMetadata,
    decide_round,
    fallback_round,
    lead,
    member_assignments,
    read_members,
)
from coopgroup.model import (
    EMPTY,
    NO_LOSS,
    NOBODY,
    GroupSnapshot,
    MemberClaim,
    ResourceSet,
    RoundPlan,
    plan_that_moves_nothing,
)
from coopgroup.model.group_api import JoinedMember
from coopgroup.model.resource_set import Int32Array, Int64Array
from coopgroup.policies.base import Offer, Policy, RoundContext, StagedRound
from coopgroup.policies.simple import SimplePolicy
from coopgroup.policies.state import PolicyState
from coopgroup.protocol import (
    Assignment,
    Subscription,
    UserData,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
    encode_user_data,
)
from coopgroup.telemetry import RoundLed, RoundRefused, SubscriptionUnreadable

NOT_A_SUBSCRIPTION = b"\x00\x01\x00\x00"
ORDERS_4 = TopicMetadata(resources=ResourceSet({"orders": range(4)}))


@attrs.frozen(kw_only=True)
class FunctionAssignor:
    """An assignor as a user might write one, without inheriting anything."""

    function: Callable[[GroupSnapshot, Int64Array], Int32Array]
    name: str = "mine"
    needs_lags: bool = True

    def assign(self, group: GroupSnapshot, lags: Int64Array) -> Int32Array:
        """Ask the function."""
        return self.function(group, lags)


@attrs.frozen(kw_only=True)
class FunctionPolicy:
    """A policy as a user might write one: offers everything, stages as the function says."""

    function: Callable[[GroupSnapshot, Int32Array], RoundPlan]
    name: str = "mine"

    def offer(self, group: GroupSnapshot, context: RoundContext) -> Offer:
        """Offer everything, with the owners of the claims."""
        return Offer(owner=group.owner, held=np.zeros(len(group.resources), dtype=np.bool_))

    def stage(self, group: GroupSnapshot, target: Int32Array, context: RoundContext) -> StagedRound:
        """Ask the function for the plan; remember nothing."""
        state = PolicyState(generation=context.generation, members=group.member_ids)
        return StagedRound(plan=self.function(group, target), state=state)


def joined(
    member_id: str,
    owned: Mapping[str, list[int]] | None = None,
    *,
    topics: tuple[str, ...] = ("orders",),
    generation: int = 1,
) -> JoinedMember:
    """A member whose subscription can be read."""
    subscription = Subscription(
        topics=topics, owned=ResourceSet(owned or {}), generation=generation
    )
    return JoinedMember(
        member_id=member_id, group_instance_id=None, metadata=encode_subscription(subscription)
    )


def unreadable(member_id: str) -> JoinedMember:
    """A member whose subscription cannot be read."""
    return JoinedMember(member_id=member_id, group_instance_id=None, metadata=NOT_A_SUBSCRIPTION)


def claim(
    member_id: str, owned: Mapping[str, list[int]] | None = None, generation: int = 1
) -> MemberClaim:
    """A member's claim on partitions of its only topic."""
    return MemberClaim(
        member_id=member_id,
        topics=("orders",),
        owned=ResourceSet(owned or {}),
        generation=generation,
    )


def context(state: PolicyState | None = None, generation: int = 1) -> RoundContext:
    """Circumstances of a round that `a` leads."""
    return RoundContext(leader_id="a", generation=generation, now_ms=0, state=state)


def led(
    *members: JoinedMember,
    metadata: TopicMetadata = ORDERS_4,
    state: PolicyState | None = None,
    generation: int = 1,
) -> LedRound:
    """A round of the simple policy and the sticky assignor."""
    return lead(
        read_members(members),
        metadata,
        NO_LAGS,
        assignor=StickyAssignor(),
        policy=SimplePolicy(),
        context=context(state, generation),
    )


def told(round_: LedRound) -> dict[str, Assignment]:
    """What each member reads in its answer."""
    return {member: decode_assignment(message) for member, message in round_.assignments}


def orders(*indices: int) -> ResourceSet:
    """Partitions of the topic `orders`."""
    return ResourceSet({"orders": indices})


# --- what the members say ------------------------------------------------------------------------


def test_read_members_when_all_is_given_keeps_all() -> None:
    """Subscription, claims, generation, rack, static id and running delay reach the claim."""
    subscription = Subscription(
        topics=("payments", "orders", "orders"),
        user_data=encode_user_data(
            UserData(
                remaining_delay_ms=700, remaining_loss_ms=9_000, consumption_rate_per_s=1_234.5
            )
        ),
        owned=orders(1, 2),
        generation=7,
        rack="r1",
    )
    member = JoinedMember(
        member_id="a", group_instance_id="static-a", metadata=encode_subscription(subscription)
    )
    request = read_members([joined("b", topics=("refunds",)), member])
    assert request.claims == (
        MemberClaim(
            member_id="a",
            topics=("orders", "payments"),
            owned=orders(1, 2),
            generation=7,
            instance_id="static-a",
            rack="r1",
            remaining_delay_ms=700,
            remaining_loss_ms=9_000,
            consumption_rate_per_s=1_234.5,
        ),
        MemberClaim(member_id="b", topics=("refunds",), generation=1),
    )
    assert request.topics == ("orders", "payments", "refunds")
    assert request.records == ()


@pytest.mark.parametrize(
    "user_data",
    [None, b"", b"\x00\x00\x00\x07", encode_user_data(UserData(remaining_delay_ms=7))[:-1]],
    ids=["null", "empty", "generation", "damaged"],
)
def test_read_members_when_user_data_is_not_ours_reads_the_rest(user_data: bytes | None) -> None:
    """Whatever stands in the user data, the subscription around it counts."""
    subscription = Subscription(topics=("orders",), user_data=user_data, owned=orders(3))
    member = JoinedMember(
        member_id="a", group_instance_id=None, metadata=encode_subscription(subscription)
    )
    assert read_members([member]).claims == (
        MemberClaim(member_id="a", topics=("orders",), owned=orders(3)),
    )


def test_read_members_when_one_cannot_be_read_says_so() -> None:
    """The member stays in the round without topics and claims, and a record tells why."""
    with pytest.raises(DecodeError) as refusal:
        decode_subscription(NOT_A_SUBSCRIPTION)
    static = attrs.evolve(unreadable("b"), group_instance_id="static-b")
    request = read_members([static, joined("a")])
    assert request.claims[1] == MemberClaim(
        member_id="b", topics=(), instance_id="static-b", readable=False
    )
    assert request.records == (SubscriptionUnreadable(member_id="b", reason=str(refusal.value)),)
    assert request.topics == ("orders",)


def test_read_members_when_an_id_comes_twice_is_refused() -> None:
    """A coordinator that names a member twice is broken; guessing would drop a claim."""
    with pytest.raises(RemoteProtocolError, match=r"^members: got 'a' twice, expected every"):
        read_members([joined("a"), joined("b"), joined("a")])


def test_read_members_when_connectors_count_reads_and_answers_them() -> None:
    """A group that shares connectors has the index -1, in claims and in answers."""
    subscription = Subscription(topics=("sink",), owned=ResourceSet({"sink": [-1, 0]}))
    member = JoinedMember(
        member_id="a",
        group_instance_id=None,
        metadata=encode_subscription(subscription, index_min=-1),
    )
    round_ = lead(
        read_members([member], index_min=-1),
        TopicMetadata(resources=ResourceSet({"sink": [-1, 0, 1]})),
        NO_LAGS,
        assignor=StickyAssignor(),
        policy=SimplePolicy(),
        context=context(),
    )
    assert decode_assignment(round_.assignments[0][1], index_min=-1) == Assignment(
        assigned=ResourceSet({"sink": [-1, 0, 1]})
    )


# --- lags ----------------------------------------------------------------------------------------


def test_lags_when_aligned_are_those_of_the_group() -> None:
    """What the group lacks is passed over, what is unknown or below zero counts as zero."""
    lags = Lags.from_mapping({"orders": {3: 30, 1: -5}, "gone": {0: 9}, "payments": {0: 2**40}})
    resources = ResourceSet({"orders": range(4), "payments": [0, 1], "fresh": [0]})
    assert lags.aligned(resources).tolist() == [0, 0, 0, 0, 30, 2**40, 0]


def test_lags_when_figures_and_resources_differ_in_number_are_refused() -> None:
    """A figure too few would shift all that follow to other partitions."""
    with pytest.raises(ConfigurationError, match=r"^lags: got '1 figures', expected 2, one per"):
        Lags(resources=orders(0, 1), values=np.zeros(1, dtype=np.int64))


def test_arrivals_when_aligned_are_those_of_the_group() -> None:
    """Unknown ones are 0, and so are those of a topic that has fewer records than before."""
    lags = Lags(
        resources=ResourceSet({"gone": [0], "orders": [1, 3]}),
        values=np.zeros(3, dtype=np.int64),
        arrivals_per_s=np.array([9.0, -4.0, 2.5]),
    )
    aligned = lags.aligned_arrivals(orders(0, 1, 2, 3))
    assert aligned is not None
    assert aligned.tolist() == [0, 0, 0, 2.5]
    assert NO_LAGS.aligned_arrivals(orders(0)) is None


def test_arrivals_when_figures_and_resources_differ_in_number_are_refused() -> None:
    """As with the lags beside them."""
    with pytest.raises(ConfigurationError, match=r"^arrivals: got '1 figures', expected 2, one p"):
        Lags(resources=orders(0, 1), values=np.zeros(2, dtype=np.int64), arrivals_per_s=np.zeros(1))


def test_decide_round_when_rates_are_given_shows_them_to_the_assignor() -> None:
    """Rates of arrival stand in the group, beside the rates that members say they have."""
    seen: list[object] = []

    def assign(group: GroupSnapshot, lags: Int64Array) -> Int32Array:
        assert lags.size == 2
        assert group.arrivals_per_s is not None
        seen.append(group.arrivals_per_s.tolist())
        seen.append([member.consumption_rate_per_s for member in group.members])
        return np.zeros(2, dtype=np.int32)

    decide_round(
        [
            MemberClaim(member_id="a", topics=("orders",)),
            MemberClaim(member_id="b", topics=("orders",), consumption_rate_per_s=30.0),
        ],
        TopicMetadata(resources=orders(0, 1)),
        Lags(
            resources=orders(1), values=np.zeros(1, dtype=np.int64), arrivals_per_s=np.array([7.0])
        ),
        assignor=FunctionAssignor(function=assign),
        policy=SimplePolicy(),
        context=context(),
    )
    assert seen == [[0, 7.0], [None, 30.0]]


def test_decide_round_when_lags_are_given_shows_them_to_the_assignor() -> None:
    """The assignor finds one figure per resource of the group."""
    seen: list[list[int]] = []

    def assign(group: GroupSnapshot, lags: Int64Array) -> Int32Array:
        seen.append(lags.tolist())
        return np.zeros(len(group.resources), dtype=np.int32)

    decide_round(
        [claim("a")],
        ORDERS_4,
        Lags.from_mapping({"orders": {2: 5}}),
        assignor=FunctionAssignor(function=assign),
        policy=SimplePolicy(),
        context=context(),
    )
    assert seen == [[0, 0, 5, 0]]


# --- a round, from bytes to bytes ----------------------------------------------------------------


def test_lead_when_nothing_changes_answers_the_complete_set_and_no_follow_up() -> None:
    """`assigned` is complete, never a delta, and `revoked` is null."""
    round_ = led(joined("a", {"orders": [0, 1]}), joined("b", {"orders": [2, 3]}))
    assert told(round_) == {
        "a": Assignment(assigned=orders(0, 1)),
        "b": Assignment(assigned=orders(2, 3)),
    }
    assert round_.records == (RoundLed(policy="simple", assignor="sticky", members=("a", "b")),)
    assert not round_.refused


def test_lead_when_some_keep_what_they_own_writes_what_an_encoder_would() -> None:
    """Bytes that stood in a subscription are sent back only where we would write the same."""
    entries = b"\x00\x00\x00\x01\x00\x06orders\x00\x00\x00\x02\x00\x00\x00\x03\x00\x00\x00\x02"
    foreign = b"\x00\x01\x00\x00\x00\x01\x00\x06orders\xff\xff\xff\xff" + entries
    members = [
        joined("a", {"orders": [0, 1]}),
        JoinedMember(member_id="b", group_instance_id=None, metadata=foreign),
        joined("c", {"orders": [4]}),
    ]
    metadata = TopicMetadata(resources=orders(*range(6)))
    for _ in range(2):
        round_ = led(*members, metadata=metadata)
        assert {name: told_one.assigned for name, told_one in told(round_).items()} == {
            "a": orders(0, 1),
            "b": orders(2, 3),
            "c": orders(4, 5),
        }
        for _, message in round_.assignments:
            read = decode_assignment(message)
            assert message == encode_assignment(read, read.version)


def test_member_assignments_when_claims_are_at_hand_gives_the_same() -> None:
    """Who holds just what it claims is told so with its own set."""
    claims = (claim("a", {"orders": [0, 1, 2]}), claim("b"), claim("c", {"orders": [3]}))
    decided = decided_by(claims=claims)
    answers = member_assignments(decided, claims)
    assert answers == member_assignments(decided)
    assert answers[2].assigned is claims[2].owned
    assert answers[0].revoked


def test_lead_when_one_gives_up_tells_all_that_a_round_follows() -> None:
    """Who revokes reads what; everybody else reads an empty list, not null."""
    round_ = led(joined("a", {"orders": [0, 1, 2, 3]}), joined("b"), joined("c", topics=("none",)))
    answers = told(round_)
    assert (len(answers["a"].assigned), answers["a"].revoked) == (
        2,
        orders(0, 1, 2, 3) - answers["a"].assigned,
    )
    nothing_yet = Assignment(assigned=EMPTY, revoked=EMPTY)
    assert (answers["b"], answers["c"]) == (nothing_yet, nothing_yet)


def test_lead_when_a_topic_is_gone_takes_it_back() -> None:
    """A claim on what the metadata lacks is revoked."""
    round_ = led(joined("a", {"orders": [0, 1, 2, 3], "gone": [0]}))
    assert told(round_) == {
        "a": Assignment(assigned=orders(0, 1, 2, 3), revoked=ResourceSet({"gone": [0]}))
    }


def test_lead_when_nobody_is_there_answers_nobody() -> None:
    """A round without members is no error."""
    assert led().assignments == ()


def test_lead_when_a_member_cannot_be_read_gives_it_nothing_and_goes_on() -> None:
    """The others keep theirs, the unreadable one is answered, and what it may hold is not given."""
    round_ = led(joined("a", {"orders": [0]}), unreadable("b"))
    answers = told(round_)
    assert answers["a"].assigned == orders(0)
    assert answers["b"].assigned == EMPTY
    assert not round_.refused
    assert [type(record) for record in round_.records] == [SubscriptionUnreadable, RoundLed]


@pytest.mark.parametrize(("generation", "granted"), [(4, EMPTY), (5, orders(1, 2, 3))])
def test_lead_when_its_own_sync_failed_gives_nothing_of_an_unreadable_member(
    generation: int, granted: ResourceSet
) -> None:
    """Only a leader that completed the round knows that the member was told to hold nothing."""
    request = read_members([joined("a", {"orders": [0]}), unreadable("b")])
    first, second = [
        lead(
            request,
            ORDERS_4,
            NO_LAGS,
            assignor=StickyAssignor(),
            policy=SimplePolicy(),
            context=context(state, generation=completed),
        )
        for state, completed in (
            (None, 4),
            (PolicyState(generation=4, members=("a", "b"), silent=("b",)), generation),
        )
    ]
    assert first.state.silent == second.state.silent == ("b",)
    assert told(first)["a"] == Assignment(assigned=orders(0), revoked=EMPTY)
    assert told(second)["a"].assigned == orders(0) | granted
    assert told(second)["b"].assigned == EMPTY


def test_lead_when_members_come_in_another_order_answers_the_same() -> None:
    """The order of JoinGroup's list decides nothing."""
    members = [joined("b", {"orders": [3]}), joined("a"), joined("c", {"orders": [0, 3]})]
    assert led(*members).assignments == led(*reversed(members)).assignments


def test_decide_round_when_resources_move_records_what_and_why() -> None:
    """The record of the round says what was granted, revoked, contested and waited for."""
    decided = decide_round(
        [
            claim("a", {"orders": [0, 3]}),
            claim("b", {"orders": [1, 3]}),
            claim("c", {"orders": [1]}, generation=0),
        ],
        ORDERS_4,
        NO_LAGS,
        assignor=FunctionAssignor(
            function=lambda group, lags: np.array([1, 1, 0, 0], dtype=np.int32)
        ),
        policy=SimplePolicy(),
        context=context(),
    )
    (record,) = decided.records
    assert isinstance(record, RoundLed)
    assert (record.granted, record.revoked, record.contested, record.follow_up) == (
        orders(2),
        orders(0, 1, 3),
        orders(3),
        True,
    )


# --- what goes wrong -----------------------------------------------------------------------------


def decided_by(
    *,
    assignor: FunctionAssignor | None = None,
    policy: Policy | None = None,
    state: PolicyState | None = None,
    claims: tuple[MemberClaim, ...] = (claim("a", {"orders": [0, 1]}), claim("b")),
) -> DecidedRound:
    """A round of `a`, which owns two of four partitions, and the new member `b`."""
    return decide_round(
        claims,
        ORDERS_4,
        NO_LAGS,
        assignor=assignor or StickyAssignor(),
        policy=policy or SimplePolicy(),
        context=context(state),
    )


def refusal_of(decided: DecidedRound) -> tuple[str, ...]:
    """Why a round was refused; it then moved nothing at all."""
    plan = plan_that_moves_nothing(decided.group)
    assert decided.refused
    assert decided.plan.assigned.tolist() == plan.assigned.tolist()
    refusal, record = decided.records
    assert isinstance(refusal, RoundRefused)
    assert isinstance(record, RoundLed)
    assert record.granted == EMPTY
    return refusal.violations


def raising(*_: object) -> Int32Array:
    """A user's function that fails, over two lines."""
    raise ZeroDivisionError("no\nluck")


def failing_plan(*_: object) -> RoundPlan:
    """A user's function that fails, as a policy."""
    raise KeyError("b")


def test_decide_round_when_the_assignor_raises_moves_nothing() -> None:
    """The round is answered, and the record says in one line who failed and how."""
    decided = decided_by(assignor=FunctionAssignor(function=raising))
    assert refusal_of(decided) == ("assignor mine: ZeroDivisionError: no luck",)
    assert member_assignments(decided) == (
        Assignment(assigned=orders(0, 1)),
        Assignment(assigned=EMPTY),
    )


@pytest.mark.parametrize(
    "function",
    [
        lambda group, lags: None,
        lambda group, lags: [0, 0, 0, 0],
        lambda group, lags: np.zeros(3, dtype=np.int32),
        lambda group, lags: np.zeros(4, dtype=np.float64),
        lambda group, lags: np.full(4, 2, dtype=np.int32),
        lambda group, lags: np.full(4, -2, dtype=np.int32),
        lambda group, lags: np.full(4, NOBODY, dtype=np.int32),
        lambda group, lags: np.full(4, 1, dtype=np.int32),
    ],
    ids=["none", "list", "shape", "dtype", "no-member", "below", "nobody", "unsubscribed"],
)
def test_decide_round_when_the_target_breaks_the_contract_moves_nothing(
    function: Callable[[GroupSnapshot, Int64Array], Int32Array],
) -> None:
    """A target that is no target is blamed on the assignor by name."""
    stranger = MemberClaim(member_id="b", topics=("payments",))
    decided = decided_by(
        assignor=FunctionAssignor(function=function), claims=(claim("a"), stranger)
    )
    (reason,) = refusal_of(decided)
    assert reason.startswith("assignor mine: ")


@pytest.mark.parametrize(
    "stage", [failing_plan, lambda group, target: None], ids=["raises", "none"]
)
def test_decide_round_when_the_policy_fails_moves_nothing(
    stage: Callable[[GroupSnapshot, Int32Array], RoundPlan],
) -> None:
    """A policy that raises or gives no plan is blamed by name."""
    (reason,) = refusal_of(decided_by(policy=FunctionPolicy(function=stage)))
    assert reason.startswith("policy mine: ")


def test_decide_round_when_the_policy_makes_a_second_owner_moves_nothing() -> None:
    """A plan that grants what somebody still owns is never sent (design, section 5)."""

    def everything_at_once(group: GroupSnapshot, target: Int32Array) -> RoundPlan:
        plan = plan_that_moves_nothing(group)
        return attrs.evolve(
            plan, target=target, assigned=np.ones(4, dtype=np.int32), follow_up=True
        )

    violations = refusal_of(decided_by(policy=FunctionPolicy(function=everything_at_once)))
    assert len(violations) >= 1


@pytest.mark.parametrize("timeout_ms", [-1, 2**31], ids=["negative", "beyond-int32"])
def test_decide_round_when_the_delay_fits_no_message_moves_nothing(timeout_ms: int) -> None:
    """A delay that cannot be encoded would fail the round after it was decided."""

    def delayed(group: GroupSnapshot, target: Int32Array) -> RoundPlan:
        plan = plan_that_moves_nothing(group)
        return attrs.evolve(plan, scheduled_rebalance_timeout_ms=timeout_ms)

    reasons = refusal_of(decided_by(policy=FunctionPolicy(function=delayed)))
    assert f"scheduled rebalance timeout of {timeout_ms} ms" in "; ".join(reasons)


def test_decide_round_when_user_code_writes_into_the_group_refuses_it() -> None:
    """The arrays are read-only: what the safety check compares with cannot be changed."""

    def meddle(group: GroupSnapshot, lags: Int64Array) -> Int32Array:
        group.claim_members[:] = 1
        return group.owner

    (reason,) = refusal_of(decided_by(assignor=FunctionAssignor(function=meddle)))
    assert reason == "assignor mine: ValueError: assignment destination is read-only"


def test_decide_round_when_refused_keeps_a_running_delay_running() -> None:
    """A round that decides nothing does not end the delay that members wait for."""
    claims = (
        attrs.evolve(claim("a", {"orders": [0]}), remaining_delay_ms=0),
        attrs.evolve(claim("b", {"orders": [1]}), remaining_delay_ms=900),
        attrs.evolve(claim("c"), remaining_delay_ms=400),
    )
    decided = decided_by(assignor=FunctionAssignor(function=raising), claims=claims)
    assert {a.scheduled_rebalance_timeout_ms for a in member_assignments(decided)} == {400}


@pytest.mark.parametrize(
    ("known", "told"),
    [
        ([(0, NO_LOSS), (300, NO_LOSS)], (300, NO_LOSS)),
        ([(0, 5_000), (300, NO_LOSS)], (300, 5_000)),
        ([(0, 200), (300, None)], (200, None)),
        ([(None, 200), (0, 0)], (200, None)),
        ([(0, 0), (0, NO_LOSS)], (0, None)),
    ],
)
def test_decide_round_when_refused_tells_pauses_and_waits_apart(
    known: list[tuple[int | None, int | None]], told: tuple[int, int | None]
) -> None:
    """As the members know them: what is due first, and the wait beside it where that is later."""
    claims = tuple(
        attrs.evolve(
            claim(name, {"orders": [place]}), remaining_delay_ms=delay_ms, remaining_loss_ms=loss_ms
        )
        for place, (name, (delay_ms, loss_ms)) in enumerate(zip("ab", known, strict=True))
    )
    decided = decided_by(assignor=FunctionAssignor(function=raising), claims=claims)
    assert {
        (answer.scheduled_rebalance_timeout_ms, answer.loss_timeout_ms)
        for answer in member_assignments(decided)
    } == {told}


@pytest.mark.parametrize(
    ("timeout_ms", "loss_ms", "told_ms"),
    [
        (900, None, None),
        (900, NO_LOSS, NO_LOSS),
        (900, 901, 901),
        (900, 900, None),
        (900, 5, None),
        (0, NO_LOSS, None),
        (0, 700, None),
    ],
)
def test_loss_timeout_of_a_plan_is_told_where_it_says_more_than_the_timeout(
    timeout_ms: int, loss_ms: int | None, told_ms: int | None
) -> None:
    """A policy of a user may change one without the other: no member gets what cannot be said."""
    decided = decided_by()
    plan = attrs.evolve(
        decided.plan, scheduled_rebalance_timeout_ms=timeout_ms, loss_timeout_ms=loss_ms
    )
    answers = member_assignments(attrs.evolve(decided, plan=plan))
    assert {answer.loss_timeout_ms for answer in answers} == {told_ms}
    assert all(decode_assignment(encode_assignment(answer)) == answer for answer in answers)


def test_decide_round_when_refused_and_revoking_sends_no_delay() -> None:
    """A delay is only ever sent in a round in which nobody revokes."""
    claims = (
        attrs.evolve(claim("a", {"orders": [0], "gone": [1]}), remaining_delay_ms=900),
        claim("b", {"orders": [1]}),
    )
    decided = decided_by(assignor=FunctionAssignor(function=raising), claims=claims)
    assert member_assignments(decided) == (
        Assignment(assigned=orders(0), revoked=ResourceSet({"gone": [1]})),
        Assignment(assigned=orders(1), revoked=EMPTY),
    )


def test_decide_round_when_refused_brings_the_memory_up_to_date() -> None:
    """What was known stays known; who was silent is said anew, as it holds its own again.

    Who came and who went since the last round that was decided is still to be decided upon.
    """
    before = PolicyState(generation=0, members=("x",), known=orders(3), silent=("a",))
    decided = decided_by(
        assignor=FunctionAssignor(function=raising),
        state=before,
        claims=(
            claim("a", {"orders": [0]}),
            MemberClaim(member_id="b", topics=(), readable=False),
        ),
    )
    assert decided.state == PolicyState(
        generation=1, members=("x",), known=orders(0, 3), silent=("b",)
    )


def test_fallback_round_without_metadata_takes_every_claim_for_real() -> None:
    """A look-up that failed revokes nothing: rightful owners keep all that they claim."""
    request = read_members(
        [joined("a", {"orders": [0, 1]}), joined("b", {"orders": [1]}, generation=2), joined("c")]
    )
    round_ = fallback_round(
        request,
        None,
        assignor=StickyAssignor(),
        policy=SimplePolicy(),
        context=context(),
        reason="metadata: no answer within 5000 ms",
    )
    assert told(round_) == {
        "a": Assignment(assigned=orders(0), revoked=orders(1)),
        "b": Assignment(assigned=orders(1), revoked=EMPTY),
        "c": Assignment(assigned=EMPTY, revoked=EMPTY),
    }
    assert round_.records[0] == RoundRefused(violations=("metadata: no answer within 5000 ms",))
    assert round_.refused


def test_fallback_round_without_metadata_forgets_nothing() -> None:
    """What was owned before and is claimed by nobody now is still known in the next round."""
    before = PolicyState(
        generation=0, members=("a",), known=orders(0, 1), granted=orders(2), released=orders(1)
    )
    round_ = fallback_round(
        read_members([joined("a", {"orders": [0]})]),
        None,
        assignor=StickyAssignor(),
        policy=SimplePolicy(),
        context=context(before),
        reason="metadata: no answer within 5000 ms",
    )
    assert round_.state == PolicyState(
        generation=1, members=("a",), known=orders(0, 1), released=orders(1)
    )
    assert told(round_) == {"a": Assignment(assigned=orders(0))}


def test_fallback_round_with_metadata_takes_back_what_is_gone() -> None:
    """What does not exist any more is nobody's, whoever decides the round."""
    round_ = fallback_round(
        read_members([joined("a", {"orders": [0, 9]}), unreadable("b")]),
        ORDERS_4,
        assignor=StickyAssignor(),
        policy=SimplePolicy(),
        context=context(),
        reason="assignor: no answer within 5000 ms",
    )
    assert told(round_) == {
        "a": Assignment(assigned=orders(0), revoked=orders(9)),
        "b": Assignment(assigned=EMPTY, revoked=EMPTY),
    }
    assert [type(record) for record in round_.records] == [
        SubscriptionUnreadable,
        RoundRefused,
        RoundLed,
    ]


def test_lead_when_a_stop_is_slow_tells_its_claimant_only() -> None:
    """The others read null, also those that gain something; who is slow reads what to stop."""
    first = led(joined("a", {"orders": [0, 1, 2, 3]}), joined("b"))
    (stops,) = [answer.revoked for answer in told(first).values() if answer.revoked]
    done, slow = (ResourceSet.from_pairs([stop]) for stop in stops)
    claims = orders(0, 1, 2, 3) - done
    members = (joined("a", claims.to_dict()), joined("b"))
    second = led(*members, state=first.state, generation=2)
    assert told(second) == {
        "a": Assignment(assigned=claims - slow, revoked=slow),
        "b": Assignment(assigned=done),
    }
    assert not second.decided.plan.follow_up
    unheard = led(*members, state=first.state, generation=1)
    assert told(unheard)["b"] == Assignment(assigned=done, revoked=EMPTY)


def test_decide_round_when_refused_remembers_who_is_missed_and_what_was_told() -> None:
    """A round that decides nothing ends nobody's wait, and a stale claim is still being stopped."""
    before = led(joined("a", {"orders": [0]}), joined("b", {"orders": [1]})).state
    decided = decided_by(
        assignor=FunctionAssignor(function=raising),
        state=before,
        claims=(claim("a", {"orders": [0]}), claim("c", {"orders": [0]}, generation=0)),
    )
    assert (decided.state.members, decided.state.holdings) == (("a", "b"), before.holdings)
    assert decided.state.stopping.resources == orders(0)
