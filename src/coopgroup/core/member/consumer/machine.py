"""`step`: the state machine of a member of KIP-848.

A step has the four parts of a classic one, in the same order: handle the event, handle passed
deadlines, give up stopped resources, send the requests that are due. Two differences:

- The protocol has no rounds. A request for a round sends a heartbeat now.
- A revocation is given up as a whole. The coordinator releases no partition before the member has
  given up all of them, so an earlier heartbeat would change nothing.

Events that belong to a leader or to warm-ups have no effect: the broker assigns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from coopgroup.core.member.consumer.answers import CONSUMER, lose, take_outcome
from coopgroup.core.member.consumer.bell import heed_ring, ring_if_due
from coopgroup.core.member.consumer.changes import beat_now, set_beat
from coopgroup.core.member.consumer.requests import send_what_is_due
from coopgroup.core.member.consumer.transitions import MOVES
from coopgroup.core.member.error_actions import RequestKind
from coopgroup.core.member.events import (
    Answered,
    ApplicationStalled,
    BellRang,
    CommitRequested,
    Event,
    LeaveRequested,
    LossHandled,
    RejoinRequested,
    RequestFailed,
    RevocationCompleted,
    SessionTimeoutFound,
    SubscriptionChanged,
)
from coopgroup.core.member.member import Member, lease_is_over
from coopgroup.core.member.parts import NO_REVOCATION, Identity, Round
from coopgroup.core.member.revocation import give_up_committed, note_stopped
from coopgroup.core.member.transitions import AT_WORK, MemberState, Trigger
from coopgroup.core.member.turn import Turn
from coopgroup.core.telemetry.causes import Cause
from coopgroup.errors import ConfigurationError

if TYPE_CHECKING:
    from coopgroup.core.member.config import MemberConfig
    from coopgroup.core.member.effects import Effect, KeptIdentity


_BY_BROKER: Final = Round(by_broker=True)


def new_member(config: MemberConfig, kept: KeptIdentity | None = None) -> Member:
    """Return a member that has not subscribed yet.

    Args:
        config: its settings.
        kept: its identity from an earlier process that has ended, or None. Ignored unless the
            settings say that identities are stored, and in the classic protocol's form.

    Raises:
        ConfigurationError: no `own_id` is given: two processes could have one member id.
    """
    if not config.own_id:
        raise ConfigurationError("own_id", config.own_id, "a text of its own per process")
    proves = config.keeps_identity and config.instance_id is None
    is_known = kept is not None and kept.protocol == CONSUMER
    return Member(
        config=config,
        moves=MOVES,
        identity=Identity(kept=kept if proves and is_known else None),
        round=_BY_BROKER,
    )


def step(member: Member, event: Event, *, now_ms: int) -> tuple[Member, tuple[Effect, ...]]:
    """Take one event; see `coopgroup.core.member.machines.step`."""
    turn = Turn(member=member, now_ms=now_ms)
    _take(turn, event)
    _meet_deadlines(turn)
    _acknowledge(turn, member)
    send_what_is_due(turn)
    ring_if_due(turn)
    if not turn.member.round.by_broker:  # a loss forgets the round
        turn.set(round=_BY_BROKER)
    return turn.member, tuple(turn.effects)


def _take(turn: Turn, event: Event) -> None:
    match event:
        case Answered() | RequestFailed():
            take_outcome(turn, event)
        case BellRang() | SessionTimeoutFound():
            _hear(turn, event)
        case SubscriptionChanged():
            _subscribe(turn, event)
        case LeaveRequested():
            _leave(turn, event)
        case RejoinRequested() if turn.member.state in AT_WORK:
            beat_now(turn)
        case ApplicationStalled() if turn.member.state in AT_WORK:
            lose(turn, Cause.NOT_POLLED, keep_id=False, stalled=True)
        case RevocationCompleted():
            note_stopped(turn, event.resources)
        case LossHandled() if turn.member.state is MemberState.LOSING:
            turn.move(Trigger.LOSS_HANDLED, Cause.LOSS_HANDLED)
        case CommitRequested():
            turn.request_commit(event)
        case _:  # time, or an event of a leader or of warm-ups
            pass


# --- requests of the application -------------------------------------------------------------


def _subscribe(turn: Turn, event: SubscriptionChanged) -> None:
    member = turn.member
    kept = member.identity.kept
    if event.topics == member.next_join.topics and member.state in AT_WORK:
        return
    turn.move(Trigger.SUBSCRIBED, Cause.SUBSCRIPTION_CHANGED)
    turn.set(next_join=attrs.evolve(member.next_join, topics=event.topics))
    if member.state is MemberState.UNSUBSCRIBED and kept is not None:
        turn.set(member_id=kept.member_id)
    if member.state in AT_WORK:
        beat_now(turn)


def _leave(turn: Turn, event: LeaveRequested) -> None:
    """Leave the group, unless the member keeps its place silently.

    A process with a stored identity returns under its id, so the coordinator is told nothing. A
    static member tells that it leaves for now: the coordinator refuses its static id otherwise.
    A leave that does not arrive is sent before the next join, if the application subscribes again.
    """
    before = turn.member
    turn.move(Trigger.LEAVE, event.reason)
    turn.set(next_join=attrs.evolve(before.next_join, topics=()))
    if event.for_good:
        turn.end_identity()
    if turn.member.state is not MemberState.LEAVING:
        return
    silent = turn.member.identity.kept is not None
    turn.give_up_membership()
    turn.forget(RequestKind.LEAVE_GROUP)  # of an earlier id
    set_beat(turn, leaves_for_good=event.for_good)
    leaves = before.member_id and not silent
    if leaves:
        set_beat(turn, left_behind=(before.member_id, *before.beat.left_behind))
    if not leaves or before.coordinator is None:
        turn.leave_group_behind()


def _hear(turn: Turn, event: BellRang | SessionTimeoutFound) -> None:
    """Heed a ring, or use the group's session timeout; a shorter one also shortens the lease."""
    if isinstance(event, BellRang):
        heed_ring(turn)
        return
    config, lease, timeout_ms = turn.member.config, turn.member.lease, event.session_timeout_ms
    shorter_ms = max(0, config.session_timeout_ms - timeout_ms)
    turn.set(
        config=attrs.evolve(config, session_timeout_ms=timeout_ms),
        lease=attrs.evolve(lease, until_ms=lease.until_ms - shorter_ms),
    )


# --- the meaning of time ---------------------------------------------------------------------


def _meet_deadlines(turn: Turn) -> None:
    member = turn.member
    if lease_is_over(member, turn.now_ms):
        expired = turn.now_ms >= member.lease.until_ms
        lose(turn, Cause.LEASE_EXPIRED if expired else Cause.REBALANCE_TIMEOUT, keep_id=True)
    turn.time_out_commits()


def _acknowledge(turn: Turn, before: Member) -> None:
    """Give up stopped partitions whose commits have ended; tell it when none is left to stop."""
    if not give_up_committed(turn, before):
        return
    member = turn.member
    names = set(member.owned.names)
    set_beat(turn, ids={name: one for name, one in member.beat.ids.items() if name in names})
    if member.state is MemberState.REVOKING and not member.revocation.is_under_way:
        turn.set(revocation=NO_REVOCATION)
        turn.move(Trigger.REVOKED, Cause.REVOKED)
        set_beat(turn, acknowledges=True)
        beat_now(turn)
