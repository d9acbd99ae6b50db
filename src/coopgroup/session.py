"""`Session`: one member and its duty as a leader, still without clock, thread or socket.

The Kafka driver hosts sessions, a simulator can; no host knows more of the group protocol
than this module says. The host's duties, in this order:

1. Give every event to `step` with the monotonic time, and carry out the effects in order.
2. Wake the session (`Woken`) at `session_deadline_ms`; while `backing_off`, a little later by
   chance, so that a group does not come back in lockstep.
3. Answer every `Send` with exactly one `Answered` or `RequestFailed`.
4. For `LeadRound`, where it delays nobody and with a time limit: `read_members`, look up metadata
   and lags, `lead_round`, and give `RoundLed`; when the limit is over, `lead_round` without
   metadata. Members that cannot be read are None; the round is answered all the same. After a
   round that was refused (`RoundLed.led.refused`) give `RejoinRequested` a while later: what it
   could not place has no owner until then.
5. Run `GrantResources`, `RevokeResources` and `LoseResources` on the application's thread in the
   order given. A revocation is complete when the callback has returned and the offsets are
   committed, or at least asked for; only then give `RevocationCompleted`, for the join that follows
   no longer claims the resources, and another member may have them at once. That join waits for
   every commit of the resources that was asked for before. A revocation may complete in parts:
   what is slow to stop then holds back nothing else. What was lost while it was being stopped
   must not be reported after `LossHandled`: it may have been granted and revoked anew. A stop
   has an end, which is for the host to see to: a member waits for it for ever, and the group with
   it. What is not stopped in time is lost for the application, and then reported as stopped.
6. Hand nothing out once `member.hold_until_ms` has passed, whatever the session has been told
   so far: after a pause of the process the clock knows it first.
7. Keep what `KeepIdentity` says where the next life of the process finds it and no other process
   does, and give it to `new_member` there. It need not be on disk before the next effect: what is
   older is refused by the group, and costs a join. Beside it, what `next_round_in_ms` says, for the
   `OwedRound` of the next life: nobody else would ask for that round.
8. When `step` raises anything but `LocalProtocolError`, which is a bug, end the membership with
   `fail`: a member that missed an event would wait for ever for what it takes to be on its way.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Final, TypeAlias, cast

import attrs
from attrs import frozen

from coopgroup.leader import (
    NO_LAGS,
    Lags,
    LedRound,
    RoundRequest,
    TopicMetadata,
    fallback_round,
    lead,
)
from coopgroup.member import (
    ErrorCode,
    Member,
    MemberState,
    RequestKind,
    Trigger,
    next_deadline_ms,
)
from coopgroup.member import step as step_member
from coopgroup.member.effects import (
    CancelJoin,
    DecideRound,
    FailMember,
    FinishCommit,
    GrantResources,
    KeepIdentity,
    LoseResources,
    Report,
    RevokeResources,
    Send,
)
from coopgroup.member.effects import Effect as MemberEffect
from coopgroup.member.events import Event as MemberEvent
from coopgroup.member.events import RejoinRequested, RoundDecided
from coopgroup.member.turn import Turn
from coopgroup.model import ResourceSet
from coopgroup.model.claims import NO_GENERATION
from coopgroup.policies.base import RoundContext
from coopgroup.policies.state import PolicyState

if TYPE_CHECKING:
    from coopgroup.assignors.base import Assignor
    from coopgroup.model.group_api import JoinedMember
    from coopgroup.policies.base import Policy

__all__ = [
    "LeadRound",
    "OwedRound",
    "RoundLed",
    "Session",
    "SessionEffect",
    "SessionEvent",
    "backing_off",
    "fail",
    "lead_round",
    "next_round_in_ms",
    "one_line",
    "session_deadline_ms",
    "step",
]


@frozen(kw_only=True)
class LeadRound:
    """Effect: decide a round, off the loop.

    Attributes:
        number: distinct number, which `lead_round` hands on to `RoundLed`. There may be two rounds
            of one generation: a coordinator that takes over from an older log counts on from there.
        generation: of the round.
        members: all members, subscriptions still encoded; `read_members` decodes them and says
            which topics to look up.
        context: circumstances of the round.
    """

    generation: int
    members: tuple[JoinedMember, ...]
    context: RoundContext
    number: int = 0


@frozen(kw_only=True)
class RoundLed:
    """Event: a round that this member leads is decided.

    Attributes:
        generation: of the round.
        led: the decision.
        number: of the `LeadRound`.
    """

    generation: int
    led: LedRound
    number: int = 0


@frozen(kw_only=True)
class OwedRound:
    """A round for which an earlier life of this process was to ask, as the leader.

    Attributes:
        member_id: of that life.
        generation: of the round that it led last; in another one the policy has spoken anew.
        at_ms: when to ask for it, on the host's monotonic clock of today.
    """

    member_id: str
    generation: int
    at_ms: int


# Only a member at work can fail: the way there from the states in which it waits.
_BEFORE_FAILURE: Final = types.MappingProxyType(
    {
        MemberState.UNSUBSCRIBED: Trigger.SUBSCRIBED,
        MemberState.LOSING: Trigger.LOSS_HANDLED,
    }
)
SessionEvent: TypeAlias = MemberEvent | RoundLed
SessionEffect: TypeAlias = (
    Send
    | CancelJoin
    | LeadRound
    | GrantResources
    | RevokeResources
    | LoseResources
    | KeepIdentity
    | FinishCommit
    | FailMember
    | Report
)


@frozen(kw_only=True)
class Session:
    """A member and what it remembers as a leader.

    Attributes:
        member: the member.
        policy_state: what the policy returned in the last round, None when this member did not
            lead it.
        led_generation: generation of the round in which `policy_state` was made, None for none.
        asked_for_ms: the policy's deadline for which a round was asked for already, None for none.
        owed: what an earlier life left to do, None for nothing. Its `policy_state` is gone.
    """

    member: Member
    policy_state: PolicyState | None = None
    led_generation: int | None = None
    asked_for_ms: int | None = None
    owed: OwedRound | None = None


def step(
    session: Session, event: SessionEvent, *, now_ms: int
) -> tuple[Session, tuple[SessionEffect, ...]]:
    """Take one event; see `coopgroup.member.step`.

    Raises:
        LocalProtocolError: the event is not legal now; nothing has changed.
    """
    before: tuple[SessionEffect, ...] = ()
    if isinstance(event, RoundLed):
        led, generation, number = event.led, event.generation, event.number
        event = RoundDecided(number=number, assignments=led.assignments)
        if _leads(session.member, number):  # else the round was over before it was decided
            before = tuple(Report(record=record) for record in led.records)
            session = attrs.evolve(session, policy_state=led.state, led_generation=generation)
    session, effects = _stepped(session, event, now_ms)
    due_ms = _policy_deadline_ms(session)
    if due_ms is not None and now_ms >= due_ms:
        asks = RejoinRequested(reason="a deadline of the policy has come")
        session, more = _stepped(attrs.evolve(session, asked_for_ms=due_ms), asks, now_ms)
        effects = (*effects, *more)
    return session, (*before, *(_translated(session, effect, now_ms) for effect in effects))


def fail(
    session: Session, message: str, *, now_ms: int
) -> tuple[Session, tuple[SessionEffect, ...]]:
    """End the membership because of an error inside this process.

    The member is FAILED then, whatever it held is lost, and the application gets the error; it may
    leave and subscribe anew. One that was leaving is out of the group, and one that had failed
    already stays as it is.

    Args:
        session: the session before the step that went wrong.
        message: what happened, for the application.
        now_ms: the host's monotonic clock, in ms.
    """
    turn = Turn(member=session.member, now_ms=now_ms)
    match session.member.state:
        case MemberState.FAILED:
            return session, ()
        case MemberState.LEAVING:
            turn.forget(*RequestKind)
            turn.leave_group_behind()
        case state:
            if state in _BEFORE_FAILURE:
                turn.move(_BEFORE_FAILURE[state], message)
            turn.fail(ErrorCode.UNKNOWN_SERVER_ERROR, message)
            # An answer may be what could not be taken: nothing counts as on its way any more.
            turn.forget(*RequestKind)
    session = Session(member=turn.member)
    return session, tuple(_translated(session, effect, now_ms) for effect in turn.effects)


def session_deadline_ms(session: Session) -> int | None:
    """When the host must give `Woken` at the latest, in ms; None for never."""
    deadlines = (next_deadline_ms(session.member), _policy_deadline_ms(session))
    return min((at_ms for at_ms in deadlines if at_ms is not None), default=None)


def next_round_in_ms(session: Session, *, now_ms: int) -> int | None:
    """How long until this leader asks for a round that nobody else knows of; None for never."""
    due_ms = _policy_deadline_ms(session)
    return None if due_ms is None else max(0, due_ms - now_ms)


def backing_off(session: Session) -> bool:
    """Whether the next deadline is that of another try, which the host spreads by chance."""
    return session.member.attempts > 0


def lead_round(
    duty: LeadRound,
    request: RoundRequest | None,
    metadata: TopicMetadata | None,
    lags: Lags | None,
    *,
    assignor: Assignor,
    policy: Policy,
    failure: str = "the metadata could not be looked up",
) -> RoundLed:
    """Decide a round, whatever assignor and policy are. Pure, and as slow as the assignor is.

    Args:
        duty: the effect.
        request: its members, decoded by `read_members`; None when that failed, and the round then
            tells nobody anything, which members take for "keep what you hold".
        metadata: what exists of the subscribed names; None when that is not known, and the round
            then moves nothing.
        lags: figures for assignors that need them, None for none.
        assignor: says where.
        policy: says when.
        failure: why there is no metadata, or no request, for the record.
    """
    if request is not None and metadata is not None:
        try:
            led = lead(
                request,
                metadata,
                NO_LAGS if lags is None else lags,
                assignor=assignor,
                policy=policy,
                context=duty.context,
            )
            state: object = led.state  # as a user's policy returned it
            if isinstance(state, PolicyState):
                return RoundLed(generation=duty.generation, led=led, number=duty.number)
            given = type(state).__name__
            failure = f"policy {_name(policy)}: expected a PolicyState, got a {given}"
        except Exception as error:  # noqa: BLE001 -- a round is always answered
            failure = one_line(error)
    led = _refused(duty, request, metadata, _name(assignor), _name(policy), failure)
    return RoundLed(generation=duty.generation, led=led, number=duty.number)


def one_line(error: BaseException) -> str:
    """What was raised, for a record."""
    try:
        said = " ".join(str(error).split())
    except Exception:  # noqa: BLE001 -- an exception of a user may fail to say what it is
        said = "…"
    return f"{type(error).__name__}: {said}"


def _refused(
    duty: LeadRound,
    request: RoundRequest | None,
    metadata: TopicMetadata | None,
    assignor: str,
    policy: str,
    reason: str,
) -> LedRound:
    """The round that moves nothing, from as much as can be used of what is known."""
    nobody = RoundRequest(claims=(), topics=())
    nothing = TopicMetadata(resources=ResourceSet())
    forgetful = attrs.evolve(duty.context, state=None)

    def answer(
        request: RoundRequest, metadata: TopicMetadata | None, context: RoundContext
    ) -> LedRound:
        return fallback_round(
            request,
            metadata,
            assignor=cast("Assignor", _Named(name=assignor)),
            policy=cast("Policy", _Named(name=policy)),
            context=context,
            reason=reason,
        )

    if request is not None:
        for known, context in ((metadata, duty.context), (None, forgetful)):
            try:
                return answer(request, known, context)
            except Exception:  # noqa: BLE001, S112 -- a memory that is none, say
                continue
    return answer(nobody, nothing, forgetful)


@frozen(kw_only=True)
class _Named:
    """Stands for an assignor or a policy where only the name counts, which it may lack."""

    name: str


def _name(plugin: object) -> str:
    try:
        name = getattr(plugin, "name", None)
    except Exception:  # noqa: BLE001 -- a property of a user
        name = None
    return name if isinstance(name, str) else type(plugin).__name__


def _stepped(
    session: Session, event: MemberEvent, now_ms: int
) -> tuple[Session, tuple[MemberEffect, ...]]:
    member, effects = step_member(session.member, event, now_ms=now_ms)
    session = Session(
        member=member,
        policy_state=session.policy_state,
        led_generation=session.led_generation,
        asked_for_ms=session.asked_for_ms,
        owed=session.owed,
    )
    return _remember(session), effects


def _policy_deadline_ms(session: Session) -> int | None:
    """When the policy wants the next round though nothing happens, in ms; None for never.

    Only where this member's own round stands: else whoever leads has a deadline of its own. A
    round is asked for once; a policy that wants more says so in the round that comes.
    """
    state, member, owed = session.policy_state, session.member, session.owed
    if member.state not in {MemberState.STABLE, MemberState.REVOKING}:
        return None
    due_ms = None
    if state is not None and member.leads and session.led_generation == member.claim_generation:
        due_ms = state.next_round_ms
    elif owed is not None and _stands_there(member, owed):
        due_ms = owed.at_ms
    return None if due_ms == session.asked_for_ms else due_ms


def _stands_there(member: Member, owed: OwedRound) -> bool:
    return (member.member_id, member.claim_generation) == (owed.member_id, owed.generation)


def _leads(member: Member, number: int) -> bool:
    return member.state is MemberState.LEADING and member.duty_number == number


def _remember(session: Session) -> Session:
    """Forget what was remembered as a leader once another member leads a round, or may have led.

    Not only when this member has completed that round: its own sync of it may fail, and it may
    lead the next one. Generations that it missed may have been led by anybody.
    """
    member, led = session.member, session.led_generation
    if led is None or member.generation in {NO_GENERATION, led}:
        return session
    if member.leads and member.generation == led + 1:
        return session
    return attrs.evolve(session, policy_state=None, led_generation=None, asked_for_ms=None)


def _translated(session: Session, effect: MemberEffect, now_ms: int) -> SessionEffect:
    if not isinstance(effect, DecideRound):
        return effect
    return LeadRound(
        number=effect.number,
        generation=effect.generation,
        members=effect.members,
        context=RoundContext(
            leader_id=effect.member_id,
            generation=effect.completed_generation,
            now_ms=now_ms,
            state=session.policy_state,
        ),
    )
