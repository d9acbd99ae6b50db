"""`step`: a host steps a session, a member and its memory as a leader, through time.

A leader's memory is valid only while its own round stands. If another member may have led since,
the memory is dropped.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Final, TypeAlias

from coopgroup.core.member import (
    ErrorCode,
    MemberState,
    RequestKind,
    Trigger,
    events,
    next_deadline_ms,
)
from coopgroup.core.member import effects as member_effects
from coopgroup.core.member import step as step_member
from coopgroup.core.member.effects import (
    BeginWarmups,
    CancelJoin,
    CancelWarmups,
    CountPartitions,
    FailMember,
    FindSessionTimeout,
    FinishCommit,
    GrantResources,
    KeepIdentity,
    LoseResources,
    NameTopics,
    Report,
    RevokeResources,
    RingBell,
    Send,
)
from coopgroup.core.member.effects import Effect as MemberEffect
from coopgroup.core.member.events import Event as MemberEvent
from coopgroup.core.member.turn import Turn
from coopgroup.core.model.group import NO_GENERATION
from coopgroup.core.model.replacing import replaced
from coopgroup.core.session.balancing import (
    CheckLags,
    LagsChecked,
    due_check,
    look_deadline_ms,
    next_watch,
    with_result,
)
from coopgroup.core.session.deciding import DecideRound, DecisionMade, LeaderContext
from coopgroup.core.session.differences import told_once
from coopgroup.core.session.overdue import claims_deadline_ms, due_claims
from coopgroup.core.session.own_rounds import (
    LookOver,
    due_round,
    join_answer_of,
    look_over,
    policy_deadline_ms,
    retry_at_ms,
    retry_deadline_ms,
    with_answer,
)
from coopgroup.core.session.state import Session

if TYPE_CHECKING:
    from coopgroup.core.member import Member

# The event that leads from each waiting state to a state in which a member can fail.
_BEFORE_FAILURE: Final = types.MappingProxyType(
    {
        MemberState.UNSUBSCRIBED: Trigger.SUBSCRIBED,
        MemberState.LOSING: Trigger.LOSS_HANDLED,
    }
)
SessionEvent: TypeAlias = MemberEvent | DecisionMade | LagsChecked
SessionEffect: TypeAlias = (
    Send
    | CancelJoin
    | CountPartitions
    | NameTopics
    | FindSessionTimeout
    | DecideRound
    | CheckLags
    | LookOver
    | GrantResources
    | RevokeResources
    | LoseResources
    | BeginWarmups
    | CancelWarmups
    | KeepIdentity
    | FinishCommit
    | FailMember
    | RingBell
    | Report
)


def step(
    session: Session, event: SessionEvent, *, now_ms: int
) -> tuple[Session, tuple[SessionEffect, ...]]:
    """Process one event; see `coopgroup.core.member.step`.

    Raises:
        LocalProtocolError: the event is not legal now; nothing has changed.
    """
    answer = join_answer_of(event)
    before: tuple[SessionEffect, ...] = ()
    if isinstance(event, DecisionMade):
        if _leads(session.member, event.number):  # otherwise the round ended before it was decided
            session, before = told_once(session, event.decision.records)
            session = _with_memory(session, event, now_ms)
        event = events.AssignmentsDecided(
            number=event.number, assignments=event.decision.assignments
        )
    elif isinstance(event, LagsChecked):
        session, event, before = with_result(session, event)
    session, effects = _stepped(session, event, now_ms)
    if answer is not None:
        session = with_answer(session, answer)
        if answer.leader_id not in {"", answer.member_id}:
            session = _without_memory(session)  # perhaps in a generation that this member led, too
    session, reports, false_claim = due_claims(session, now_ms)
    session, request = due_round(session, now_ms)
    request = request or false_claim
    if request is not None:
        session, more = _stepped(session, request, now_ms)
        effects = (*effects, *more)
    translated = tuple(_translated(session, effect, now_ms) for effect in effects)
    session, checks = due_check(session, now_ms)
    session, looks = look_over(session)
    return session, (*before, *translated, *reports, *checks, *looks)


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
    deadlines = (
        next_deadline_ms(session.member),
        policy_deadline_ms(session),
        retry_deadline_ms(session),
        look_deadline_ms(session),
        claims_deadline_ms(session),
    )
    return min((at_ms for at_ms in deadlines if at_ms is not None), default=None)


def next_round_in_ms(session: Session, *, now_ms: int) -> int | None:
    """Return the time until this leader starts a round that only it knows of; None for never."""
    deadlines = (policy_deadline_ms(session), retry_deadline_ms(session))
    due_ms = min((at_ms for at_ms in deadlines if at_ms is not None), default=None)
    return None if due_ms is None else max(0, due_ms - now_ms)


def backing_off(session: Session) -> bool:
    """Return whether the next deadline is a retry, which the host randomises."""
    return session.member.back_off.attempts > 0


def _stepped(
    session: Session, event: MemberEvent, now_ms: int
) -> tuple[Session, tuple[MemberEffect, ...]]:
    member, effects = step_member(session.member, event, now_ms=now_ms)
    return _remember(replaced(session, member=member)), effects


def _leads(member: Member, number: int) -> bool:
    return member.state is MemberState.LEADING and member.round.duty_number == number


def _with_memory(session: Session, event: DecisionMade, now_ms: int) -> Session:
    refusals = session.refusals + 1 if event.decision.refused else 0
    return replaced(
        session,
        refusals=refusals,
        retry_at_ms=retry_at_ms(refusals, now_ms),
        policy_state=event.decision.state,
        led_generation=event.generation,
        watch=next_watch(session.watch, event.watch, now_ms),
        asks_balance=False,
    )


def _remember(session: Session) -> Session:
    """Drop a leader's memory after another member has led a round, or may have led one.

    This member may not have completed that round: its own sync can fail, and it may lead the next
    round. Any member may have led the generations that it missed. A coordinator that assigns
    (KIP-848) has moved what it likes. A coordinator that takes over from an older log repeats
    generations, so the generation alone does not tell the rounds apart.
    """
    member, led = session.member, session.led_generation
    undecided = session.leads_as
    if undecided is not None and member.generation not in {NO_GENERATION, undecided[1]}:
        session = replaced(session, leads_as=None)
    if led is None:
        return session
    if not member.round.by_broker:
        if member.generation in {NO_GENERATION, led}:
            return session
        if member.round.leads and member.generation == led + 1:
            return session
    return _without_memory(session)


def _without_memory(session: Session) -> Session:
    return replaced(
        session,
        policy_state=None,
        led_generation=None,
        asked_for_ms=None,
        refusals=0,
        retry_at_ms=None,
        watch=None,
        asks_balance=False,
        overdue_told_ms=None,
    )


def _translated(session: Session, effect: MemberEffect, now_ms: int) -> SessionEffect:
    if not isinstance(effect, member_effects.DecideRound):
        return effect
    return DecideRound(
        number=effect.number,
        generation=effect.generation,
        members=effect.members,
        context=LeaderContext(
            leader_id=effect.member_id,
            generation=effect.completed_generation,
            now_ms=now_ms,
            state=session.policy_state,
            balance=session.asks_balance,
            protocol=session.member.round.protocol,
            after_broker=session.member.last_assignment.by_broker,
            round_generation=effect.generation,
            rebalance_timeout_ms=session.member.config.rebalance_timeout_ms,
        ),
    )
