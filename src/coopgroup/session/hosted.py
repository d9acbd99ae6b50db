"""A member and its memory as a leader: the value that a host steps through time.

A leader's memory is valid only while its own round stands. If another member may have led since,
the memory is dropped.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Final, TypeAlias

import attrs
from attrs import frozen

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
from coopgroup.member.events import RejoinRequested, RoundDecided, Woken
from coopgroup.member.turn import Turn
from coopgroup.model.claims import NO_GENERATION
from coopgroup.model.replacing import replaced
from coopgroup.policies.balance import is_at_rest
from coopgroup.policies.base import RoundContext
from coopgroup.session.balancing import CheckLags, LagsChecked, LagWatch, next_watch
from coopgroup.session.deciding import LeadRound, RoundLed

if TYPE_CHECKING:
    from coopgroup.policies.state import PolicyState

__all__ = [
    "OwedRound",
    "Session",
    "SessionEffect",
    "SessionEvent",
    "backing_off",
    "fail",
    "next_round_in_ms",
    "session_deadline_ms",
    "step",
]


@frozen(kw_only=True)
class OwedRound:
    """A round that an earlier process of this member would have started as leader.

    Attributes:
        member_id: member id of that process.
        generation: the last round that it led; in another generation the policy has decided anew.
        at_ms: when to start it, on the present host's monotonic clock.
    """

    member_id: str
    generation: int
    at_ms: int


# The event that leads from each waiting state to a state in which a member can fail.
_BEFORE_FAILURE: Final = types.MappingProxyType(
    {
        MemberState.UNSUBSCRIBED: Trigger.SUBSCRIBED,
        MemberState.LOSING: Trigger.LOSS_HANDLED,
    }
)
SessionEvent: TypeAlias = MemberEvent | RoundLed | LagsChecked
_OF_LEADERS: Final = (RoundLed, LagsChecked)
SessionEffect: TypeAlias = (
    Send
    | CancelJoin
    | LeadRound
    | CheckLags
    | GrantResources
    | RevokeResources
    | LoseResources
    | KeepIdentity
    | FinishCommit
    | FailMember
    | Report
)


@frozen(kw_only=True, slots=False)  # for `replaced`
class Session:
    """A member and its memory as a leader.

    Attributes:
        member: the member.
        policy_state: the policy's state from the last round, None if this member did not lead it.
        led_generation: generation of the round of `policy_state`, or None.
        asked_for_ms: the policy's deadline for which a round was already started, or None.
        owed: round left by an earlier process, or None. Its `policy_state` is gone.
        watch: memory of lag checks since that round, None without checks.
        asks_balance: whether it started a round because of uneven lags, and has not led it yet.
    """

    member: Member
    policy_state: PolicyState | None = None
    led_generation: int | None = None
    asked_for_ms: int | None = None
    owed: OwedRound | None = None
    watch: LagWatch | None = None
    asks_balance: bool = False

    @property
    def is_blank(self) -> bool:
        """Whether there is no memory, as in most members; all deadlines are then the member's."""
        return self.policy_state is None and self.led_generation is None and self.owed is None


def step(
    session: Session, event: SessionEvent, *, now_ms: int
) -> tuple[Session, tuple[SessionEffect, ...]]:
    """Process one event; see `coopgroup.member.step`.

    Raises:
        LocalProtocolError: the event is not legal now; nothing has changed.
    """
    if session.is_blank and not isinstance(event, _OF_LEADERS):
        member, effects = step_member(session.member, event, now_ms=now_ms)
        session = Session(member=member)
        return session, tuple([_translated(session, effect, now_ms) for effect in effects])
    before: tuple[SessionEffect, ...] = ()
    if isinstance(event, RoundLed):
        if _leads(session.member, event.number):  # otherwise the round ended before it was decided
            before = tuple(Report(record=record) for record in event.led.records)
            session = _with_memory(session, event, now_ms)
        event = RoundDecided(number=event.number, assignments=event.led.assignments)
    elif isinstance(event, LagsChecked):
        session, event, before = _judged(session, event)
    session, effects = _stepped(session, event, now_ms)
    due_ms = _policy_deadline_ms(session)
    if due_ms is not None and now_ms >= due_ms:
        asks = RejoinRequested(reason="a deadline of the policy has come")
        session, more = _stepped(replaced(session, asked_for_ms=due_ms), asks, now_ms)
        effects = (*effects, *more)
    translated = tuple(_translated(session, effect, now_ms) for effect in effects)
    session, looks = _looked(session, now_ms)
    return session, (*before, *translated, *looks)


def fail(
    session: Session, message: str, *, now_ms: int
) -> tuple[Session, tuple[SessionEffect, ...]]:
    """End the membership because of an error inside this process.

    The member becomes FAILED, all its resources are lost, and the application gets the error. The
    application may leave and subscribe again. A leaving member is out of the group afterwards, and
    a failed one stays failed.

    Args:
        session: session before the failed step.
        message: the error, for the application.
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
            # The failed event may have been an answer, so no request counts as on its way.
            turn.forget(*RequestKind)
    session = Session(member=turn.member)
    return session, tuple(_translated(session, effect, now_ms) for effect in turn.effects)


def session_deadline_ms(session: Session) -> int | None:
    """Return when the host must give `Woken` at the latest, in ms; None for never."""
    if session.is_blank:
        return next_deadline_ms(session.member)
    deadlines = (
        next_deadline_ms(session.member),
        _policy_deadline_ms(session),
        _look_deadline_ms(session),
    )
    return min((at_ms for at_ms in deadlines if at_ms is not None), default=None)


def next_round_in_ms(session: Session, *, now_ms: int) -> int | None:
    """Return the time until this leader starts a round that only it knows of; None for never."""
    due_ms = _policy_deadline_ms(session)
    return None if due_ms is None else max(0, due_ms - now_ms)


def backing_off(session: Session) -> bool:
    """Return whether the next deadline is a retry, which the host randomises."""
    return session.member.attempts > 0


def _stepped(
    session: Session, event: MemberEvent, now_ms: int
) -> tuple[Session, tuple[MemberEffect, ...]]:
    member, effects = step_member(session.member, event, now_ms=now_ms)
    return _remember(replaced(session, member=member)), effects


def _policy_deadline_ms(session: Session) -> int | None:
    """Return when the policy wants the next round even if nothing happens, in ms; None for never.

    Valid only while this member's own round stands; another leader has its own deadline. The round
    is started once; the policy can ask again in that round.
    """
    state, member, owed = session.policy_state, session.member, session.owed
    if member.state not in {MemberState.STABLE, MemberState.REVOKING}:
        return None
    due_ms = None
    if state is not None and _own_round_stands(session):
        due_ms = state.next_round_ms
    elif owed is not None and _stands_there(member, owed):
        due_ms = owed.at_ms
    return None if due_ms == session.asked_for_ms else due_ms


def _own_round_stands(session: Session) -> bool:
    member = session.member
    return member.leads and session.led_generation == member.claim_generation


def _stands_there(member: Member, owed: OwedRound) -> bool:
    return (member.member_id, member.claim_generation) == (owed.member_id, owed.generation)


def _leads(member: Member, number: int) -> bool:
    return member.state is MemberState.LEADING and member.duty_number == number


def _with_memory(session: Session, event: RoundLed, now_ms: int) -> Session:
    return replaced(
        session,
        policy_state=event.led.state,
        led_generation=event.generation,
        watch=next_watch(session.watch, event.watch, now_ms),
        asks_balance=False,
    )


def _remember(session: Session) -> Session:
    """Drop a leader's memory after another member has led a round, or may have led one.

    This member may not have completed that round: its own sync can fail, and it may lead the next
    round. Any member may have led the generations that it missed.
    """
    member, led = session.member, session.led_generation
    if led is None or member.generation in {NO_GENERATION, led}:
        return session
    if member.leads and member.generation == led + 1:
        return session
    return replaced(
        session,
        policy_state=None,
        led_generation=None,
        asked_for_ms=None,
        watch=None,
        asks_balance=False,
    )


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
            balance=session.asks_balance,
            protocol=session.member.protocol_chosen,
        ),
    )


# --- looks at the lags ---------------------------------------------------------------------------


def _look_deadline_ms(session: Session) -> int | None:
    """Return when the next lag check is due, in ms; None while this member does not check.

    Only the leader checks, while its own round stands and no round is under way.
    """
    watch, member = session.watch, session.member
    if watch is None or session.asks_balance or member.state is not MemberState.STABLE:
        return None
    return watch.due_ms if _own_round_stands(session) else None


def _looked(session: Session, now_ms: int) -> tuple[Session, tuple[CheckLags, ...]]:
    """Request a due check; while a resource waits or moves, postpone it and restart counting."""
    due_ms = _look_deadline_ms(session)
    watch, state = session.watch, session.policy_state
    if watch is None or state is None or due_ms is None or now_ms < due_ms:
        return session, ()
    at_rest = is_at_rest(state, now_ms)
    watch = attrs.evolve(
        watch,
        due_ms=now_ms + watch.rule.interval_ms,
        number=watch.number + 1,
        looks=watch.looks if at_rest else (),
    )
    session = replaced(session, watch=watch)
    return session, (CheckLags(number=watch.number, watch=watch),) if at_rest else ()


def _judged(
    session: Session, event: LagsChecked
) -> tuple[Session, MemberEvent, tuple[SessionEffect, ...]]:
    """Process the result of a check, unless it is void; return the resulting event."""
    watch = session.watch
    if watch is None or event.number != watch.number or _look_deadline_ms(session) is None:
        return session, Woken(), ()
    session = replaced(session, watch=attrs.evolve(watch, looks=event.looks, lags=event.lags))
    if event.request is None:
        return session, Woken(), ()
    session = replaced(session, asks_balance=True)
    return session, RejoinRequested(reason="lags are uneven"), (Report(record=event.request),)
