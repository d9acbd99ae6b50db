"""`step`: the state machine of a group member.

This file uses no clock, no socket and no randomness. The host passes events in order with the time,
and carries out the effects in order. A step has four parts, always in this order: handle the event,
handle passed deadlines, give up stopped resources, send the requests that are due.

Some events are dropped before the table is used, because they are normal: an answer to a request
that is no longer on its way, the decision of a round that is over, and an answer of the application
for which the member no longer waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

import attrs

from coopgroup.core.member.answers import take_outcome
from coopgroup.core.member.bell import heed_bell, ring_if_due
from coopgroup.core.member.broker_assigns import look_reason
from coopgroup.core.member.error_actions import RequestKind
from coopgroup.core.member.events import (
    Answered,
    ApplicationStalled,
    AssignmentsDecided,
    BellRang,
    CatalogueSeen,
    CommitRequested,
    Event,
    LeaveRequested,
    LossHandled,
    RejoinRequested,
    RequestFailed,
    RevocationCompleted,
    SessionTimeoutFound,
    StartsDeclined,
    SubscriptionChanged,
    WarmedUp,
    WarmSetDeclared,
    WarmupFailed,
    Woken,
)
from coopgroup.core.member.identity import come_back
from coopgroup.core.member.member import lease_is_over
from coopgroup.core.member.parts import NO_DELAY
from coopgroup.core.member.requests import leave_at_once, send_what_is_due
from coopgroup.core.member.revocation import give_up_stopped, take_stopped
from coopgroup.core.member.transitions import AT_WORK, MemberState, Trigger
from coopgroup.core.member.turn import Turn
from coopgroup.core.member.warming import forget_warmups, take_report, warm_reason
from coopgroup.core.telemetry.causes import Cause

if TYPE_CHECKING:
    from coopgroup.core.member.effects import Effect
    from coopgroup.core.member.member import Member


def step(member: Member, event: Event, *, now_ms: int) -> tuple[Member, tuple[Effect, ...]]:
    """Take one event; see `coopgroup.core.member.machines.step`."""
    turn = Turn(member=member, now_ms=now_ms)
    _take(turn, event)
    _meet_deadlines(turn)
    give_up_stopped(turn, member)
    if member.config.has_bell:
        heed_bell(turn, event)
        send_what_is_due(turn)
        ring_if_due(turn, member, event)
    else:
        send_what_is_due(turn)
    return turn.member, tuple(turn.effects)


def _take(turn: Turn, event: Event) -> None:
    match event:
        case Answered() | RequestFailed():
            take_outcome(turn, event)
        case AssignmentsDecided():
            if _is_current(turn.member, event):
                turn.set(round=attrs.evolve(turn.member.round, decided=event.assignments))
                turn.move(Trigger.ROUND_DECIDED, Cause.ROUND_DECIDED)
        case CatalogueSeen():
            turn.set(next_join=attrs.evolve(turn.member.next_join, catalogue_version=event.version))
        case StartsDeclined():
            if event.resources != turn.member.next_join.declined:
                next_join = attrs.evolve(turn.member.next_join, declined=event.resources)
                turn.set(next_join=next_join)
                if turn.member.state in AT_WORK:
                    turn.set(rejoin_reason=Cause.DECLINED_CHANGED)
        case Woken() | BellRang() | SessionTimeoutFound():
            pass
        case WarmSetDeclared() | WarmedUp() | WarmupFailed():
            take_report(turn, event)
        case _:
            _take_request(turn, event)


def _take_request(
    turn: Turn,
    event: SubscriptionChanged
    | RejoinRequested
    | LeaveRequested
    | ApplicationStalled
    | RevocationCompleted
    | LossHandled
    | CommitRequested,
) -> None:
    match event:
        case SubscriptionChanged():
            _subscribe(turn, event)
        case RejoinRequested():
            if turn.member.state in AT_WORK:
                turn.set(rejoin_reason=event.reason)
        case LeaveRequested():
            _leave(turn, event)
        case ApplicationStalled():
            _stall(turn)
        case RevocationCompleted():
            take_stopped(turn, event.resources)
        case LossHandled():
            if turn.member.state is MemberState.LOSING:
                turn.move(Trigger.LOSS_HANDLED, Cause.LOSS_HANDLED)
        case CommitRequested():
            turn.request_commit(event)
        case _:
            assert_never(event)


# --- what the application asks for -----------------------------------------------------------


def _subscribe(turn: Turn, event: SubscriptionChanged) -> None:
    before = turn.member.next_join
    is_same = (event.topics, event.hands_over) == (before.topics, before.hands_over)
    if is_same and turn.member.state in AT_WORK:
        return
    _set_topics(turn, event.topics, hands_over=event.hands_over)
    kept = turn.member.identity.kept
    if turn.member.state is MemberState.UNSUBSCRIBED and kept is not None:
        come_back(turn, kept)
        return
    if turn.member.state in AT_WORK:
        # A join on its way carries the old topics, so one more round must follow.
        turn.set(rejoin_reason=Cause.SUBSCRIPTION_CHANGED)
    if turn.member.config.eager and turn.member.state is MemberState.STABLE:
        return  # the round that is now wanted first stops all owned resources
    turn.move(Trigger.SUBSCRIBED, Cause.SUBSCRIPTION_CHANGED)


def _leave(turn: Turn, event: LeaveRequested) -> None:
    turn.move(Trigger.LEAVE, event.reason)
    forget_warmups(turn)
    if event.for_good:
        turn.end_identity()
    member = turn.member
    if turn.member.state is not MemberState.LEAVING:
        _set_topics(turn, ())
        turn.set(delay=NO_DELAY)
        return
    # KIP-345: a static member keeps its place until its session timeout. So does a member that can
    # return with a stored identity.
    silent = member.config.instance_id is not None or member.identity.kept is not None
    turn.give_up_membership()
    # the request of an earlier membership, which a stall ended
    turn.forget(RequestKind.LEAVE_GROUP)
    _set_topics(turn, ())
    turn.set(rejoin_reason=event.reason, delay=NO_DELAY)
    if silent or not member.member_id or member.coordinator is None:
        turn.leave_group_behind()


def _set_topics(turn: Turn, topics: tuple[str, ...], *, hands_over: bool = False) -> None:
    before = turn.member.next_join
    turn.set(next_join=attrs.evolve(before, topics=topics, hands_over=hands_over))


def _stall(turn: Turn) -> None:
    if turn.member.state in AT_WORK:
        leave_at_once(turn, Cause.NOT_POLLED)
        turn.lose(Cause.NOT_POLLED, keep_id=False, stalled=True)


def _is_current(member: Member, event: AssignmentsDecided) -> bool:
    return member.state is MemberState.LEADING and event.number == member.round.duty_number


# --- what time means -------------------------------------------------------------------------


def _meet_deadlines(turn: Turn) -> None:
    member = turn.member
    if lease_is_over(member, turn.now_ms):
        expired = turn.now_ms >= member.lease.until_ms
        turn.lose(Cause.LEASE_EXPIRED if expired else Cause.REBALANCE_TIMEOUT, keep_id=True)
    turn.time_out_commits()
    member = turn.member
    due = member.delay.rejoin_in_ms(turn.now_ms) == 0
    wanted = member.rejoin_reason or warm_reason(turn) or look_reason(turn)
    reason = Cause.SCHEDULED if due else wanted
    if reason and member.state is MemberState.STABLE:
        turn.rejoin(reason)
    if member.state is MemberState.REVOKING:
        if reason:
            turn.rejoin_soon()
        soon_ms = turn.member.revocation.join_at_ms
        if soon_ms is not None and turn.now_ms >= soon_ms:
            turn.rejoin(reason or Cause.MUST_NOT_HOLD_UP)
