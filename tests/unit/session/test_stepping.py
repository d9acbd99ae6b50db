"""Steps of a session: a member and its duty as a leader."""

import attrs
import pytest

from coopgroup.assignors import StickyAssignor
from coopgroup.leader import TopicMetadata, read_members
from coopgroup.member import (
    ErrorCode,
    MemberState,
    RequestKind,
    new_member,
    next_deadline_ms,
)
from coopgroup.member.effects import FailMember, LoseResources, Send
from coopgroup.member.events import (
    Answered,
    LeaveRequested,
    LossHandled,
    SubscriptionChanged,
    Woken,
)
from coopgroup.model import EMPTY, ResourceSet
from coopgroup.model.group_api import (
    Answer,
    JoinedMember,
    JoinGroupAnswer,
    JoinGroupRequest,
    SyncGroupAnswer,
)
from coopgroup.policies import SimplePolicy, Warmup
from coopgroup.protocol import (
    Subscription,
    UserData,
    decode_assignment,
    encode_subscription,
    encode_user_data,
)
from coopgroup.session import (
    DecideRound,
    LookOver,
    OwedRound,
    RoundDecided,
    Session,
    SessionEffect,
    backing_off,
    fail,
    lead_round,
    next_round_in_ms,
    one_line,
    session_deadline_ms,
    step,
)
from coopgroup.telemetry import RoundDecided as RoundDecidedRecord
from coopgroup.telemetry import RoundRefused
from tests.support.members import (
    CONFIG,
    EVERY_STATE,
    DrivenMember,
    joined,
    joining,
    rejoining,
    stable,
    synced,
)

ORDERS = TopicMetadata(resources=ResourceSet({"T": range(3)}))
NOW_MS = 10_000


def answer_to_leader(driven: DrivenMember, generation: int) -> JoinGroupAnswer:
    """The join's answer with the member's own subscription."""
    request = driven.request(RequestKind.JOIN_GROUP).request
    assert isinstance(request, JoinGroupRequest)
    me = JoinedMember(member_id="m", group_instance_id=None, metadata=request.protocols[0][1])
    return attrs.evolve(joined(generation, leads=True), members=(me,))


def led_by(driven: DrivenMember, generation: int) -> tuple[Session, DecideRound]:
    """A session that leads, and its duty."""
    from_join = answer_to_leader(driven, generation)
    outstanding = driven.member.outstanding[RequestKind.JOIN_GROUP]
    return lead(Session(member=driven.member), outstanding.request_id, from_join)


def lead(session: Session, request_id: int, answer: JoinGroupAnswer) -> tuple[Session, DecideRound]:
    """Answer a session's join; the member is now the leader."""
    session, effects = step(session, Answered(request_id=request_id, answer=answer), now_ms=NOW_MS)
    (duty,) = (effect for effect in effects if isinstance(effect, DecideRound))
    return session, duty


def decide(duty: DecideRound, metadata: TopicMetadata | None = ORDERS) -> RoundDecided:
    request = read_members(duty.members)
    return lead_round(
        duty, request, metadata, None, assignor=StickyAssignor(), policy=SimplePolicy()
    )


def records(effects: tuple[SessionEffect, ...]) -> list[object]:
    return [getattr(effect, "record", None) for effect in effects if hasattr(effect, "record")]


def test_leader_decides_its_round_and_remembers_it() -> None:
    session, duty = led_by(joining(), 1)
    assert (duty.generation, duty.context.leader_id, duty.context.state) == (1, "m", None)
    led = decide(duty)
    session, effects = step(session, led, now_ms=NOW_MS)
    assert session.member.state is MemberState.SYNCING
    (message,) = session.member.round.decided
    assert message[0] == "m"
    assert decode_assignment(message[1]).assigned == ORDERS.resources
    assert isinstance(records(effects)[0], RoundDecidedRecord)
    assert (session.policy_state, session.led_generation) == (led.decision.state, 1)


def test_leader_without_metadata_keeps_the_warm_ups() -> None:
    """Regression: the warm-up was cancelled, and the partition then moved to a cold member."""
    warm = ResourceSet({"T": [0]})
    content = Subscription(topics=("T",), user_data=encode_user_data(UserData(warm=warm)))
    member = JoinedMember(
        member_id="m", group_instance_id=None, metadata=encode_subscription(content)
    )
    owner = Subscription(topics=("T",), owned=ORDERS.resources, generation=1)
    other = JoinedMember(member_id="n", group_instance_id=None, metadata=encode_subscription(owner))
    _, duty = led_by(joining(), 1)
    led = lead_round(
        attrs.evolve(duty, members=(member, other)),
        read_members((member, other)),
        None,
        None,
        assignor=StickyAssignor(),
        policy=SimplePolicy(warmup=Warmup()),
    )
    assert led.decision.refused
    assert decode_assignment(dict(led.decision.assignments)["m"], skips_rest=True).warmups == warm


def test_leader_when_it_leads_again_gets_its_memory_back() -> None:
    session, duty = led_by(rejoining(), 2)
    led = decide(duty)
    session, _ = step(session, led, now_ms=NOW_MS)
    driven = DrivenMember(member=session.member)
    driven.sync(ORDERS.resources, follow_up=True)
    session = attrs.evolve(session, member=driven.member)
    request_id = driven.member.outstanding[RequestKind.JOIN_GROUP].request_id
    _, again = lead(session, request_id, answer_to_leader(driven, 3))
    assert (again.context.state, again.context.generation) == (led.decision.state, 2)


def test_memory_when_another_member_led_a_round_is_forgotten() -> None:
    """The memory describes an older group."""
    session, duty = led_by(rejoining(), 2)
    session, _ = step(session, decide(duty), now_ms=NOW_MS)
    driven = DrivenMember(member=session.member).sync(follow_up=True).join(3)
    session = attrs.evolve(session, member=driven.member)
    assert session.policy_state is not None
    request_id = driven.member.outstanding[RequestKind.SYNC_GROUP].request_id
    answered = Answered(request_id=request_id, answer=synced(ORDERS.resources))
    session, _ = step(session, answered, now_ms=NOW_MS)
    assert (session.policy_state, session.led_generation) == (None, None)


@pytest.mark.parametrize("generation", [3, 1])
def test_memory_when_this_members_sync_of_anothers_round_fails_is_forgotten(
    generation: int,
) -> None:
    """The member was a follower in the last round, and leads the next one.

    A lower generation means that the coordinator created the group anew.
    """
    session, duty = led_by(rejoining(), 2)
    session, _ = step(session, decide(duty), now_ms=NOW_MS)
    driven = DrivenMember(member=session.member).sync(follow_up=True)
    session = attrs.evolve(session, member=driven.member)
    request_id = driven.member.outstanding[RequestKind.JOIN_GROUP].request_id
    follows = Answered(request_id=request_id, answer=joined(generation))
    session, _ = step(session, follows, now_ms=NOW_MS)
    driven = DrivenMember(member=session.member)
    begun_anew = SyncGroupAnswer(error_code=ErrorCode.REBALANCE_IN_PROGRESS, assignment=b"")
    driven.answer(RequestKind.SYNC_GROUP, begun_anew)
    session = attrs.evolve(session, member=driven.member)
    request_id = driven.member.outstanding[RequestKind.JOIN_GROUP].request_id
    _, again = lead(session, request_id, answer_to_leader(driven, generation + 1))
    assert (again.context.state, again.context.generation) == (None, 2)


@pytest.mark.parametrize(("generation", "remembers"), [(3, True), (4, False)])
def test_memory_when_a_round_was_missed_is_forgotten(generation: int, remembers: bool) -> None:
    """A leader that was out of the group cannot know who led meanwhile."""
    session, duty = led_by(rejoining(), 2)
    led = decide(duty)
    session, _ = step(session, led, now_ms=NOW_MS)
    driven = DrivenMember(member=session.member).sync()
    driven.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID).give(LossHandled())
    session = attrs.evolve(session, member=driven.member)
    request_id = driven.member.outstanding[RequestKind.JOIN_GROUP].request_id
    _, again = lead(session, request_id, answer_to_leader(driven, generation))
    assert again.context.state is (led.decision.state if remembers else None)


def test_memory_when_the_leader_returns_into_its_own_round_is_kept() -> None:
    """KIP-814: a static leader gets its own assignment back."""
    session, duty = led_by(rejoining(), 2)
    led = decide(duty)
    session, _ = step(session, led, now_ms=NOW_MS)
    driven = DrivenMember(member=session.member).sync(follow_up=True)
    session = attrs.evolve(session, member=driven.member)
    request_id = driven.member.outstanding[RequestKind.JOIN_GROUP].request_id
    returns = Answered(request_id=request_id, answer=joined(2, leads=True, skip=True))
    session, _ = step(session, returns, now_ms=NOW_MS)
    assert (session.policy_state, session.led_generation) == (led.decision.state, 2)


@pytest.mark.parametrize("state", EVERY_STATE)
def test_fail_from_every_state_ends_the_membership(state: MemberState) -> None:
    member = EVERY_STATE[state]().member
    session, effects = fail(Session(member=member), "a bug", now_ms=NOW_MS)
    heard = [one for one in effects if isinstance(one, FailMember)]
    lost = [one.resources for one in effects if isinstance(one, LoseResources)]
    if state is MemberState.FAILED:
        assert (session.member, effects) == (member, ())
        return
    assert session.member.outstanding == {}
    assert (session.member.owned, session.member.member_id) == (EMPTY, "")
    assert lost == ([member.owned] if member.owned else [])
    if state is MemberState.LEAVING:
        assert (session.member.state, heard) == (MemberState.UNSUBSCRIBED, [])
        return
    assert session.member.state is MemberState.FAILED
    assert heard == [FailMember(code=ErrorCode.UNKNOWN_SERVER_ERROR, message="a bug")]


def test_fail_is_over_when_the_application_subscribes_anew() -> None:
    session = Session(member=new_member(CONFIG))
    session, _ = step(session, SubscriptionChanged(topics=("T",)), now_ms=NOW_MS)
    session, _ = fail(session, "a bug", now_ms=NOW_MS)
    session, _ = step(session, LeaveRequested(reason="anew"), now_ms=NOW_MS)
    session, effects = step(session, SubscriptionChanged(topics=("T",)), now_ms=NOW_MS)
    assert session.member.state is MemberState.JOINING
    assert any(isinstance(one, Send) for one in effects)


def test_one_line_when_an_exception_cannot_be_told_names_it() -> None:
    """Users may write their own exceptions."""

    class MuteError(Exception):
        def __str__(self) -> str:
            raise ValueError("no words")

    assert one_line(MuteError()) == "MuteError: …"
    assert one_line(ValueError("two\n  lines")) == "ValueError: two lines"


def test_decision_when_its_round_is_over_is_dropped() -> None:
    session, duty = led_by(joining(), 1)
    led = decide(duty)
    driven = DrivenMember(member=session.member).heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    late, effects = step(Session(member=driven.member), led, now_ms=driven.now_ms)
    assert late == Session(member=driven.member)
    assert effects == ()


def test_round_when_the_metadata_is_unknown_moves_nothing() -> None:
    _, duty = led_by(rejoining(), 2)
    led = decide(duty, None).decision
    assert led.refused
    assert RoundRefused(violations=("the metadata could not be looked up",)) in led.records
    assert [decode_assignment(message).assigned.to_dict() for _, message in led.assignments] == [
        {"T": [0, 1]}
    ]


def test_backing_off_after_a_failure() -> None:
    """A host adds jitter to retries."""
    driven = joining().refuse(RequestKind.JOIN_GROUP, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert backing_off(Session(member=driven.member))


# --- a policy that wants a round at a time -----------------------------------------------------

DUE_MS = NOW_MS + 700


def with_deadline(due_ms: int | None) -> Session:
    """A session whose own round is in force; its policy wants the next round at `due_ms`."""
    return settled(*led_by(joining(), 1), due_ms=due_ms)


def settled(session: Session, duty: DecideRound, *, due_ms: int | None) -> Session:
    """Decide a round with such a policy, and let it complete."""
    led = decide(duty)
    state = attrs.evolve(led.decision.state, next_round_ms=due_ms)
    led = attrs.evolve(led, decision=attrs.evolve(led.decision, state=state))
    session, _ = step(session, led, now_ms=NOW_MS)
    request_id = session.member.outstanding[RequestKind.SYNC_GROUP].request_id
    answered = Answered(request_id=request_id, answer=synced(ORDERS.resources))
    session, _ = step(session, answered, now_ms=NOW_MS)
    return session


def sent(effects: tuple[SessionEffect, ...]) -> list[str]:
    return [type(one.request).__name__ for one in effects if isinstance(one, Send)]


def test_deadline_of_the_policy_asks_for_one_round() -> None:
    """The round announced no delay, so only the leader knows the deadline."""
    session = with_deadline(DUE_MS)
    assert session_deadline_ms(session) == DUE_MS
    early, effects = step(session, Woken(), now_ms=DUE_MS - 1)
    assert (early, effects) == (session, ())
    session, effects = step(session, Woken(), now_ms=DUE_MS)
    assert (session.member.state, sent(effects)) == (MemberState.JOINING, ["JoinGroupRequest"])
    (join,) = (one.request for one in effects if isinstance(one, Send))
    assert isinstance(join, JoinGroupRequest)
    assert join.reason == "a deadline of the policy has come"


def test_deadline_of_the_policy_when_the_round_that_came_says_the_same_is_not_met_twice() -> None:
    session, _ = step(with_deadline(DUE_MS), Woken(), now_ms=DUE_MS)
    request_id = session.member.outstanding[RequestKind.JOIN_GROUP].request_id
    session = settled(*lead(session, request_id, joined(2, leads=True)), due_ms=DUE_MS)
    session, effects = step(session, Woken(), now_ms=DUE_MS)
    assert (session.member.state, sent(effects)) == (MemberState.STABLE, [])
    deadline_ms = session_deadline_ms(session)
    assert deadline_ms is not None
    assert deadline_ms > DUE_MS


@pytest.mark.parametrize(
    "code", [ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NO_ANSWER]
)
def test_deadline_of_the_policy_counts_only_while_its_round_stands(code: ErrorCode) -> None:
    session = with_deadline(DUE_MS)
    driven = DrivenMember(member=session.member, now_ms=NOW_MS)
    if code is ErrorCode.NO_ANSWER:
        driven.give(LeaveRequested(reason="closed"))
    else:
        driven.now_ms = DUE_MS - 1
        config = attrs.evolve(CONFIG, heartbeat_interval_ms=100)
        driven.member = attrs.evolve(driven.member, config=config, heartbeat_at_ms=driven.now_ms)
        driven.heartbeat(code)
    session = attrs.evolve(session, member=driven.member)
    assert session_deadline_ms(session) == next_deadline_ms(driven.member)
    _, effects = step(session, Woken(), now_ms=DUE_MS)
    assert "a deadline of the policy has come" not in str(effects)


def test_deadline_of_the_policy_when_another_led_since_is_forgotten() -> None:
    """The member was a follower in the current round."""
    session = with_deadline(DUE_MS)
    driven = DrivenMember(member=session.member, now_ms=NOW_MS)
    driven.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS).join(2).sync(ORDERS.resources)
    session = attrs.evolve(session, member=driven.member)
    assert session_deadline_ms(session) == next_deadline_ms(driven.member)


def test_time_until_the_round_that_the_policy_wants() -> None:
    """The next life of a leader must be told this time."""
    session = with_deadline(DUE_MS)
    assert next_round_in_ms(session, now_ms=NOW_MS) == 700
    assert next_round_in_ms(session, now_ms=DUE_MS + 1) == 0
    asked, _ = step(session, Woken(), now_ms=DUE_MS)
    for none in (with_deadline(None), asked):
        assert next_round_in_ms(none, now_ms=NOW_MS) is None


@pytest.mark.parametrize(
    ("member_id", "generation", "asks"), [("m", 1, True), ("m", 2, False), ("other", 1, False)]
)
def test_round_that_an_earlier_life_owes_is_asked_for_where_it_stood(
    member_id: str, generation: int, asks: bool
) -> None:
    member = stable(ORDERS.resources).member
    assert (member.member_id, member.claim_generation) == ("m", 1)
    owed = OwedRound(member_id=member_id, generation=generation, at_ms=DUE_MS)
    session = Session(member=member, owed=owed)
    assert next_round_in_ms(session, now_ms=NOW_MS) == (700 if asks else None)
    session, effects = step(session, Woken(), now_ms=DUE_MS)
    assert ("JoinGroupRequest" in sent(effects)) is asks
    session, effects = step(session, Woken(), now_ms=DUE_MS + 1)
    assert "JoinGroupRequest" not in sent(effects)


def refused(session: Session, duty: DecideRound) -> Session:
    """Return the session after a round without metadata, which moves nothing, and its sync."""
    session, _ = step(session, decide(duty, None), now_ms=NOW_MS)
    driven = DrivenMember(member=session.member, now_ms=NOW_MS).sync()
    return attrs.evolve(session, member=driven.member)


@pytest.mark.parametrize(
    ("refusals", "wait_ms"), [(0, 1_000), (1, 2_000), (4, 16_000), (5, 30_000), (50, 30_000)]
)
def test_refused_round_is_tried_again_later_and_later(refusals: int, wait_ms: int) -> None:
    """Each try is a rebalance of the whole group."""
    session, duty = led_by(joining(), 1)
    session = refused(attrs.evolve(session, refusals=refusals), duty)
    assert next_round_in_ms(session, now_ms=NOW_MS) == wait_ms


def test_refused_round_is_tried_again_once() -> None:
    session, duty = led_by(joining(), 1)
    session = refused(session, duty)
    due_ms = NOW_MS + 1_000
    later = attrs.evolve(session.member, heartbeat_at_ms=10**9)
    session = attrs.evolve(session, member=later)
    assert session_deadline_ms(session) == due_ms
    early, effects = step(session, Woken(), now_ms=due_ms - 1)
    assert sent(effects) == []
    again, effects = step(early, Woken(), now_ms=due_ms)
    assert sent(effects) == ["JoinGroupRequest"]
    assert again.retry_at_ms is None


def test_round_that_moves_something_ends_the_count_of_refusals() -> None:
    session, duty = led_by(joining(), 1)
    session, _ = step(attrs.evolve(session, refusals=3), decide(duty), now_ms=NOW_MS)
    assert (session.refusals, session.retry_at_ms) == (0, None)


def test_refused_round_when_another_member_leads_since_is_not_tried_again() -> None:
    session, duty = led_by(joining(), 1)
    session = refused(session, duty)
    driven = DrivenMember(member=session.member, now_ms=NOW_MS)
    driven.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS).join(2)
    session = attrs.evolve(session, member=driven.member)
    request_id = driven.member.outstanding[RequestKind.SYNC_GROUP].request_id
    answered = Answered(request_id=request_id, answer=synced(ORDERS.resources))
    session, _ = step(session, answered, now_ms=NOW_MS)
    assert (session.refusals, session.retry_at_ms) == (0, None)
    assert next_round_in_ms(session, now_ms=NOW_MS) is None


def came_back(*, skip_assignment: bool) -> tuple[Session, int]:
    """Return a member whose join made it leader, and the number of its sync."""
    driven = joining()
    answer = attrs.evolve(answer_to_leader(driven, 1), skip_assignment=skip_assignment)
    request_id = driven.member.outstanding[RequestKind.JOIN_GROUP].request_id
    event = Answered(request_id=request_id, answer=answer)
    session, _ = step(Session(member=driven.member), event, now_ms=NOW_MS)
    sync = session.member.outstanding.get(RequestKind.SYNC_GROUP)
    return session, -1 if sync is None else sync.request_id


def test_leader_of_a_round_that_it_did_not_decide_looks_at_the_topics_when_it_is_assigned() -> None:
    """KIP-814: the coordinator keeps the round of a static member that returns in time."""
    session, sync_id = came_back(skip_assignment=True)
    assert session.leads
    answered = Answered(request_id=sync_id, answer=synced(ORDERS.resources))
    session, effects = step(session, answered, now_ms=NOW_MS)
    (look,) = (one for one in effects if isinstance(one, LookOver))
    assert [one.member_id for one in look.members] == ["m"]
    shared_digest = session.member.last_assignment.shared_digest
    assert (look.shared_digest, look.has_trailers) == (shared_digest, True)
    assert session.leads
    session, effects = step(session, Woken(), now_ms=NOW_MS)
    assert not any(isinstance(one, LookOver) for one in effects)


def test_leader_of_a_round_that_it_did_not_decide_is_none_in_the_next_generation() -> None:
    """A coordinator that takes over from an older log counts to the same generation again."""
    session, _ = came_back(skip_assignment=True)
    session = with_answer(session, RequestKind.SYNC_GROUP, synced(ORDERS.resources))
    for generation in (2, 1):
        driven = DrivenMember(member=session.member, now_ms=NOW_MS)
        driven.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
        session = attrs.evolve(session, member=driven.member)
        session = with_answer(session, RequestKind.JOIN_GROUP, joined(generation))
        session = with_answer(session, RequestKind.SYNC_GROUP, synced(ORDERS.resources))
        assert (session.member.member_id, session.member.generation) == ("m", generation)
        assert (session.leads, session.leads_as) == (False, None)


def with_answer(session: Session, kind: RequestKind, answer: Answer) -> Session:
    """Answer the session's pending request of a kind."""
    request_id = session.member.outstanding[kind].request_id
    session, _ = step(session, Answered(request_id=request_id, answer=answer), now_ms=NOW_MS)
    return session
