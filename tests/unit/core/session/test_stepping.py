"""Steps of a session: a member and its duty as a leader."""

from typing import Any

import attrs
import pytest

from coopgroup.assignors import StickyAssignor
from coopgroup.core.leader import read_members
from coopgroup.core.leader.rounds import lead_round, needs_round
from coopgroup.core.member import (
    ErrorCode,
    KeptIdentity,
    MemberState,
    RequestKind,
    new_member,
    next_deadline_ms,
)
from coopgroup.core.member.effects import FailMember, Report
from coopgroup.core.member.events import (
    LeaveRequested,
    LossHandled,
    RejoinRequested,
    SubscriptionChanged,
    Woken,
)
from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.core.model.choices import MemberChoices
from coopgroup.core.model.group_api import JoinedMember
from coopgroup.core.protocol.digests import resources_digest
from coopgroup.core.session import (
    LookOver,
    OwedRound,
    Session,
    backing_off,
    fail,
    new_session,
    next_round_in_ms,
    session_deadline_ms,
    with_rate,
)
from coopgroup.errors import one_line
from coopgroup.policies import SimplePolicy, Warmup
from coopgroup.protocol import (
    Subscription,
    UserData,
    decode_assignment,
    encode_subscription,
    encode_user_data,
)
from coopgroup.telemetry import PolicyOrAssignorDiffers, RoundDecided, RoundRefused
from tests.support.driven_session import THREE, TOPICS, DrivenSession
from tests.support.members import EVERY_STATE, KEEPING, joined, joining, rejoining, stable

NOW_MS = 10_000


def leading() -> DrivenSession:
    """Return a session that leads its first round."""
    return DrivenSession.of(joining()).lead()


def led_again(*, follow_up: bool = True) -> DrivenSession:
    """Return a session that led generation 2; its next join is pending if a follow-up comes."""
    driven = DrivenSession.of(rejoining()).lead(2)
    return driven.give(driven.led()).sync(follow_up=follow_up)


def has_joined(driven: DrivenSession) -> bool:
    return "JoinGroupRequest" in driven.sent()


# --- its rounds, and its memory of them -------------------------------------------------------


def test_leader_decides_its_round_and_remembers_it() -> None:
    driven = leading()
    duty, led = driven.duty(), driven.led()
    assert (duty.generation, duty.context.leader_id, duty.context.state) == (1, "m", None)
    driven.give(led)
    assert driven.member.state is MemberState.SYNCING
    (message,) = driven.member.round.decided
    assert message[0] == "m"
    assert decode_assignment(message[1]).assigned == THREE
    assert isinstance(driven.found(Report)[0].record, RoundDecided)
    assert (driven.session.policy_state, driven.session.led_generation) == (led.decision.state, 1)


def test_leader_without_metadata_keeps_the_warm_ups() -> None:
    """Regression: the warm-up was cancelled, and the partition then moved to a cold member."""
    warm = ResourceSet({"T": [0]})
    contents = {
        "m": Subscription(topics=("T",), user_data=encode_user_data(UserData(warm=warm))),
        "n": Subscription(topics=("T",), owned=THREE, generation=1),
    }
    members = tuple(
        JoinedMember(member_id=name, group_instance_id=None, metadata=encode_subscription(content))
        for name, content in contents.items()
    )
    led = lead_round(
        attrs.evolve(leading().duty(), members=members),
        read_members(members),
        None,
        None,
        assignor=StickyAssignor(),
        policy=SimplePolicy(warmup=Warmup()),
    )
    assert led.decision.refused
    assert decode_assignment(dict(led.decision.assignments)["m"], skips_rest=True).warmups == warm


def test_refused_round_says_why_it_was_refused_and_not_what_failed_then() -> None:
    memory: Any = object()
    duty = leading().duty()
    context = attrs.evolve(duty.context, state=memory)
    content = encode_subscription(Subscription(topics=("T",)))
    members = (JoinedMember(member_id="m", group_instance_id=None, metadata=content),)
    led = lead_round(
        attrs.evolve(duty, members=members, context=context),
        read_members(members),
        None,
        None,
        assignor=StickyAssignor(),
        policy=SimplePolicy(),
        failure="no metadata within 5 s",
    )
    refused = [one for one in led.decision.records if isinstance(one, RoundRefused)]
    assert [one.violations for one in refused] == [("no metadata within 5 s",)]


def test_leader_when_it_leads_again_gets_its_memory_back() -> None:
    driven = led_again()
    context = driven.lead(3).duty().context
    assert context.state is driven.session.policy_state is not None
    assert context.generation == 2


def test_memory_when_another_member_led_a_round_is_forgotten() -> None:
    """The memory describes an older group."""
    driven = led_again()
    remembered = driven.session.policy_state
    assert remembered is not None
    driven.join(3).sync(THREE)
    assert (driven.session.policy_state, driven.session.led_generation) == (None, None)


@pytest.mark.parametrize("generation", [3, 2, 1])
def test_memory_when_this_members_sync_of_anothers_round_fails_is_forgotten(
    generation: int,
) -> None:
    """The member was a follower in the last round, and leads the next one.

    A lower generation means that the coordinator created the group anew, or has an older log. So
    the generation may also be the same as that of the own round.
    """
    driven = led_again().join(generation)
    driven.refuse(RequestKind.SYNC_GROUP, ErrorCode.REBALANCE_IN_PROGRESS)
    context = driven.lead(generation + 1).duty().context
    assert (context.state, context.generation) == (None, 2)


@pytest.mark.parametrize(("generation", "remembers"), [(3, True), (4, False)])
def test_memory_when_a_round_was_missed_is_forgotten(generation: int, remembers: bool) -> None:
    """A leader that was out of the group cannot know who led meanwhile."""
    driven = led_again(follow_up=False)
    state = driven.session.policy_state
    driven.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID).give(LossHandled()).lead(generation)
    assert driven.duty().context.state is (state if remembers else None)


def test_memory_when_the_leader_returns_into_its_own_round_is_kept() -> None:
    """KIP-814: a static leader gets its own assignment back."""
    driven = led_again()
    state = driven.session.policy_state
    driven.answer(RequestKind.JOIN_GROUP, joined(2, leads=True, skip=True))
    assert (driven.session.policy_state, driven.session.led_generation) == (state, 2)


def test_decision_when_its_round_is_over_is_dropped() -> None:
    driven = leading()
    late = driven.led()
    before = driven.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID).session
    assert (driven.give(late).session, driven.effects) == (before, ())


def test_round_when_the_metadata_is_unknown_moves_nothing() -> None:
    led = DrivenSession.of(rejoining()).lead(2).led(None).decision
    assert led.refused
    assert RoundRefused(violations=("the metadata could not be looked up",)) in led.records
    assert [decode_assignment(message).assigned.to_dict() for _, message in led.assignments] == [
        {"T": [0, 1]}
    ]


# --- failures ---------------------------------------------------------------------------------


def _fail_from_every_state_ends_the_membership(state: MemberState) -> None:
    driven = DrivenSession.of(EVERY_STATE[state]())
    before = driven.member
    driven.session, driven.effects = fail(driven.session, "a bug", now_ms=NOW_MS)  # type: ignore[assignment]
    after = driven.session.member
    if state is MemberState.FAILED:
        assert (after, driven.effects) == (before, ())
        return
    assert (after.outstanding, after.owned, after.member_id) == ({}, EMPTY, "")
    assert driven.lost() == ([before.owned] if before.owned else [])
    if state is MemberState.LEAVING:
        assert (after.state, driven.found(FailMember)) == (MemberState.UNSUBSCRIBED, [])
        return
    assert after.state is MemberState.FAILED
    failed = FailMember(code=ErrorCode.UNKNOWN_SERVER_ERROR, message="a bug")
    assert driven.found(FailMember) == [failed]


def test_fail_from_every_state_ends_the_membership(subtests: pytest.Subtests) -> None:
    for state in EVERY_STATE:
        with subtests.test(state=state):
            _fail_from_every_state_ends_the_membership(state)


def test_fail_is_over_when_the_application_subscribes_anew() -> None:
    driven = DrivenSession.of(joining())
    driven.session, _ = fail(driven.session, "a bug", now_ms=NOW_MS)
    driven.give(LeaveRequested(reason="anew")).give(SubscriptionChanged(topics=("T",)))
    assert driven.member.state is MemberState.JOINING
    assert driven.sent() != []


def test_one_line_when_an_exception_cannot_be_told_names_it() -> None:
    """Users may write their own exceptions."""

    class MuteError(Exception):
        def __str__(self) -> str:
            raise ValueError("no words")

    assert one_line(MuteError()) == "MuteError: …"
    assert one_line(ValueError("two\n  lines")) == "ValueError: two lines"


def test_backing_off_after_a_failure() -> None:
    """A host adds jitter to retries."""
    driven = joining().refuse(RequestKind.JOIN_GROUP, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert backing_off(Session(member=driven.member))


# --- a policy that wants a round at a time ------------------------------------------------------

DUE_MS = NOW_MS + 700


def with_deadline(due_ms: int | None = DUE_MS) -> DrivenSession:
    """Return a session whose round is complete, and whose policy wants the next at `due_ms`."""
    return decided_with_deadline(leading(), due_ms)


def decided_with_deadline(driven: DrivenSession, due_ms: int | None) -> DrivenSession:
    led = driven.led()
    state = attrs.evolve(led.decision.state, next_round_ms=due_ms)
    decision = attrs.evolve(led.decision, state=state)
    return driven.give(attrs.evolve(led, decision=decision)).sync(THREE)


def test_deadline_of_the_policy_asks_for_one_round() -> None:
    """The round announced no delay, so only the leader knows the deadline."""
    driven = with_deadline()
    assert session_deadline_ms(driven.session) == DUE_MS
    before = driven.session
    driven.wait(699)
    assert (driven.session, driven.effects) == (before, ())
    driven.wait(1)
    assert (driven.member.state, driven.sent()) == (MemberState.JOINING, ["JoinGroupRequest"])
    assert driven.sent_join().reason == "a deadline of the policy has come"


def test_deadline_of_the_policy_when_the_round_that_came_says_the_same_is_not_met_twice() -> None:
    driven = with_deadline().wait(700)
    driven.answer(RequestKind.JOIN_GROUP, joined(2, leads=True))
    decided_with_deadline(driven, DUE_MS).give(Woken())
    assert (driven.member.state, driven.sent()) == (MemberState.STABLE, [])
    deadline_ms = session_deadline_ms(driven.session)
    assert deadline_ms is not None
    assert deadline_ms > DUE_MS


@pytest.mark.parametrize(
    "code", [ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NO_ANSWER]
)
def test_deadline_of_the_policy_counts_only_while_its_round_stands(code: ErrorCode) -> None:
    driven = with_deadline()
    if code is ErrorCode.NO_ANSWER:
        driven.give(LeaveRequested(reason="closed"))
    else:
        driven.change(member=attrs.evolve(driven.member, heartbeat_at_ms=NOW_MS + 1))
        driven.heartbeat(code)
    assert session_deadline_ms(driven.session) == next_deadline_ms(driven.member)
    driven.wait(DUE_MS - driven.now_ms)
    assert "a deadline of the policy has come" not in str(driven.effects)


def test_deadline_of_the_policy_when_another_led_since_is_forgotten() -> None:
    """The member was a follower in the current round."""
    driven = with_deadline(NOW_MS + 9_000).heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    driven.join(2).sync(THREE)
    assert session_deadline_ms(driven.session) == next_deadline_ms(driven.member)


def test_time_until_the_round_that_the_policy_wants() -> None:
    """The next life of a leader must be told this time."""
    driven = with_deadline()
    assert next_round_in_ms(driven.session, now_ms=NOW_MS) == 700
    assert next_round_in_ms(driven.session, now_ms=DUE_MS + 1) == 0
    for none in (with_deadline(None), driven.wait(700)):
        assert next_round_in_ms(none.session, now_ms=NOW_MS) is None


@pytest.mark.parametrize(
    ("member_id", "generation", "asks"), [("m", 1, True), ("m", 2, False), ("other", 1, False)]
)
def test_round_that_an_earlier_life_owes_is_asked_for_where_it_stood(
    member_id: str, generation: int, asks: bool
) -> None:
    driven = DrivenSession.of(stable(THREE))
    assert (driven.member.member_id, driven.member.claim_generation) == ("m", 1)
    owed = OwedRound(member_id=member_id, generation=generation, at_ms=DUE_MS)
    driven.change(owed=owed)
    assert next_round_in_ms(driven.session, now_ms=NOW_MS) == (700 if asks else None)
    assert has_joined(driven.wait(700)) is asks
    assert not has_joined(driven.wait(1))


@pytest.mark.parametrize(("led", "in_ms"), [(True, 700), (True, None), (False, 700)])
def test_session_of_the_next_process_knows_what_the_last_one_led(
    led: bool, in_ms: int | None
) -> None:
    kept = KeptIdentity(member_id="m", generation=4, topics=("T",))
    session = new_session(KEEPING, kept, led=led, next_round_in_ms=in_ms, now_ms=NOW_MS)
    assert session.member.identity.kept == kept
    assert session.leads_as == (("m", 4) if led else None)
    wanted = OwedRound(member_id="m", generation=4, at_ms=DUE_MS)
    assert session.owed == (wanted if led and in_ms is not None else None)
    blank = new_session(KEEPING, None, led=led, next_round_in_ms=in_ms)
    assert blank == Session(member=new_member(KEEPING))


# --- refused rounds -----------------------------------------------------------------------------


def refused(refusals: int = 0) -> DrivenSession:
    """Return the session after a round without metadata, which moves nothing, and its sync."""
    driven = leading()
    led = driven.led(None)
    return driven.change(refusals=refusals).give(led).sync()


@pytest.mark.parametrize(
    ("refusals", "wait_ms"), [(0, 1_000), (1, 2_000), (4, 16_000), (5, 30_000), (50, 30_000)]
)
def test_refused_round_is_tried_again_later_and_later(refusals: int, wait_ms: int) -> None:
    """Each try is a rebalance of the whole group."""
    assert next_round_in_ms(refused(refusals).session, now_ms=NOW_MS) == wait_ms


def test_refused_round_is_tried_again_once() -> None:
    driven = refused()
    driven.change(member=attrs.evolve(driven.member, heartbeat_at_ms=10**9))
    assert session_deadline_ms(driven.session) == NOW_MS + 1_000
    assert driven.wait(999).sent() == []
    assert driven.wait(1).sent() == ["JoinGroupRequest"]
    assert driven.session.retry_at_ms is None


def test_round_that_moves_something_ends_the_count_of_refusals() -> None:
    driven = leading()
    led = driven.led()
    driven.change(refusals=3).give(led)
    assert (driven.session.refusals, driven.session.retry_at_ms) == (0, None)


def test_refused_round_when_another_member_leads_since_is_not_tried_again() -> None:
    driven = refused(4).heartbeat(ErrorCode.REBALANCE_IN_PROGRESS).join(2).sync(THREE)
    assert (driven.session.refusals, driven.session.retry_at_ms) == (0, None)
    assert next_round_in_ms(driven.session, now_ms=NOW_MS) is None


# --- a leader that came back --------------------------------------------------------------------


def test_leader_of_a_round_that_it_did_not_decide_looks_at_the_topics_when_it_is_assigned() -> None:
    """KIP-814: the coordinator keeps the round of a static member that returns in time."""
    driven = DrivenSession.of(joining()).lead(skip=True)
    assert driven.session.leads
    (look,) = driven.sync(THREE).duties(LookOver)
    assert [one.member_id for one in look.members] == ["m"]
    shared_digest = driven.member.last_assignment.shared_digest
    assert (look.shared_digest, look.has_digests) == (shared_digest, True)
    assert driven.session.leads
    assert driven.give(Woken()).duties(LookOver) == []


def test_leader_of_a_round_that_it_did_not_decide_is_none_in_the_next_generation() -> None:
    """A coordinator that takes over from an older log counts to the same generation again."""
    driven = DrivenSession.of(joining()).lead(skip=True).sync(THREE)
    for generation in (2, 1):
        driven.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS).join(generation).sync(THREE)
        assert (driven.member.member_id, driven.member.generation) == ("m", generation)
        assert (driven.session.leads, driven.session.leads_as) == (False, None)


# --- a leader whose process came back ----------------------------------------------------------

FOUND = ResourceSet({"orders": [0, 1]})


@pytest.mark.parametrize(
    ("digest", "has_digests", "needs"),
    [
        (resources_digest(FOUND), True, False),
        (resources_digest(EMPTY), True, True),
        (None, True, True),
        (None, False, False),
    ],
    ids=["all is as it was", "partitions appeared", "not known", "never known to other clients"],
)
def test_topics_that_changed_meanwhile_need_a_round(
    digest: int | None, *, has_digests: bool, needs: bool
) -> None:
    look = LookOver(members=(), shared_digest=digest, has_digests=has_digests)
    assert needs_round(look, FOUND, read_members(()), SimplePolicy()) is needs


@pytest.mark.parametrize("policy", [SimplePolicy(), SimplePolicy(warmup=Warmup())])
@pytest.mark.parametrize("warm", [None, EMPTY])
def test_warm_ups_of_a_leader_that_returned_need_a_round(
    policy: SimplePolicy, warm: ResourceSet | None
) -> None:
    """Only its earlier process knew when they time out."""
    look = LookOver(members=(), shared_digest=resources_digest(FOUND), has_digests=True)
    data = encode_user_data(UserData(warm=warm))
    metadata = encode_subscription(Subscription(topics=("orders",), user_data=data))
    joined_ = JoinedMember(member_id="m", group_instance_id=None, metadata=metadata)
    needs = policy.warmup is not None and warm is not None
    assert needs_round(look, FOUND, read_members((joined_,)), policy) is needs


# --- a measured consumption rate ----------------------------------------------------------------


def test_rate_when_measured_is_told_by_the_next_join() -> None:
    driven = DrivenSession.of(stable())
    driven.session = with_rate(with_rate(driven.session, 7.5), 1_234.5)
    driven.give(RejoinRequested(reason="a test"))
    assert driven.user_data().consumption_rate_per_s == 1_234.5
    assert driven.member.next_join.consumption_rate_per_s == 1_234.5


def test_rate_when_it_is_the_same_changes_nothing() -> None:
    session = Session(member=stable().member)
    assert with_rate(session, None) is session
    told = with_rate(session, 3.0)
    assert with_rate(told, 3.0) is told
    assert attrs.evolve(told, member=session.member) == session


# --- members with another policy or assignor --------------------------------------------------


def differences_told(driven: DrivenSession, *policies: str) -> list[str]:
    """Let the session decide its round with members of these policies; return the new warnings."""
    told = {"m": "simple", **{f"n{number}": one for number, one in enumerate(policies)}}
    members = tuple(
        JoinedMember(
            member_id=name,
            group_instance_id=None,
            metadata=encode_subscription(
                Subscription(
                    topics=("T",),
                    user_data=encode_user_data(
                        UserData(choices=MemberChoices(policy=policy, assignor="sticky"))
                    ),
                )
            ),
        )
        for name, policy in told.items()
    )
    duty = attrs.evolve(driven.duty(), members=members)
    request = read_members(members)
    driven.give(
        lead_round(duty, request, TOPICS, None, assignor=driven.assignor, policy=driven.policy)
    )
    records = [effect.record for effect in driven.found(Report)]
    return [one.difference for one in records if isinstance(one, PolicyOrAssignorDiffers)]


def test_leader_tells_each_difference_once_until_it_is_gone() -> None:
    """Each restarted member of a rolling change has another member id."""
    driven, told = leading(), []
    for generation, policies in enumerate(
        [("deferred",), ("deferred", "deferred"), ("deferred", "mine"), (), ("deferred",)], start=1
    ):
        if generation > 1:
            driven.sync(follow_up=True)
            driven.lead(generation)
        told.append(differences_told(driven, *policies))
    deferred, mine = "policy deferred instead of simple", "policy mine instead of simple"
    assert told == [[deferred], [], [mine], [], [deferred]]
