"""The meaning of an error code, or of an answer that is missing or cannot be read, for a member.

An error code does only what the table of error codes says (`error_actions`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

import attrs

from coopgroup.core.member.broker_assigns import join_classic_group
from coopgroup.core.member.effects import Report
from coopgroup.core.member.error_actions import Action, RequestKind, action_for, error_name
from coopgroup.core.member.identity import doubt_id, unless_forgotten
from coopgroup.core.member.parts import NO_DELAY
from coopgroup.core.member.revocation import make_way
from coopgroup.core.member.transitions import AT_WORK, SETTLED, MemberState, Trigger
from coopgroup.core.model.group import NO_GENERATION
from coopgroup.core.telemetry.causes import Cause, answered_with
from coopgroup.core.telemetry.records import AssignmentUnreadable, RequestRefused

if TYPE_CHECKING:
    from coopgroup.core.member.member import Outstanding
    from coopgroup.core.member.turn import Turn

# States without a join or sync on its way, so a heartbeat's answer decides.
_ALONE = SETTLED | {MemberState.RETURNING}
_QUIET = frozenset({MemberState.STABLE, MemberState.RETURNING})


def act_on_error(turn: Turn, kind: RequestKind, sent: Outstanding, code: int, message: str) -> None:
    """Apply the table's action for an error code of any request except a commit."""
    action = unless_forgotten(turn, action_for(kind, code))
    if kind is RequestKind.HEARTBEAT and _heartbeat_needs_nothing(turn, sent, action):
        return
    cause = answered_with(kind.value, error_name(code))
    if turn.member.state not in AT_WORK and kind is not RequestKind.LEAVE_GROUP:
        return  # a look-up of a membership that has ended
    if action is not Action.PROCEED:
        record = RequestRefused(request=kind.value, error=error_name(code), action=action.value)
        turn.emit(Report(record=record))
    match action:
        case Action.PROCEED:
            if turn.member.state is MemberState.LEAVING and kind is RequestKind.LEAVE_GROUP:
                turn.leave_group_behind()
        case Action.RETRY | Action.SEEK | Action.REJOIN | Action.REJOIN_LATER:
            _try_again(turn, kind, action, cause)
        case Action.LOSE | Action.LOSE_ID:
            turn.lose(cause, keep_id=action is Action.LOSE)
        case Action.YIELD:
            make_way(turn, code, cause)
        # The tables of these requests have no row with the last three of these actions.
        case Action.FAIL | Action.FENCED | Action.TAKE_ID | Action.AFTER_SYNC | Action.REFUSE:
            turn.fail(code, f"{cause}: {message}" if message else cause)
        case _:
            assert_never(action)


def _heartbeat_needs_nothing(turn: Turn, sent: Outstanding, action: Action) -> bool:
    """Use a heartbeat's answer as a proof about time; return True if no action remains.

    If a round completes while a heartbeat of the old generation is on its way, the answer is
    ILLEGAL_GENERATION. The answer to the join or sync that is on its way then decides.
    """
    member = turn.member
    if action is Action.REJOIN:
        # For a sync, this answer means the end of the round.
        joins = RequestKind.JOIN_GROUP in member.outstanding
        lease = member.lease.proven(
            until_ms=turn.session_until_ms(sent.sent_at_ms),
            round_open_at_ms=sent.sent_at_ms if joins else 0,
        )
        turn.set(lease=lease)
        if sent.generation == member.generation:
            if member.state in _QUIET:
                turn.rejoin(Cause.ROUND_BEGUN)
            elif member.state is MemberState.REVOKING:
                turn.rejoin_soon()
        return True
    if action is Action.RETRY:
        turn.set(heartbeat_at_ms=turn.now_ms + member.config.retry_backoff_ms)
        return True
    if join_classic_group(turn, sent, action):
        return True
    if action is not Action.LOSE:
        return False
    is_stale = sent.generation != member.generation
    if is_stale and member.in_generation and not member.lease.falls_back:
        # Its round ended on its way, so it proved nothing: ask again with the new generation.
        turn.set(heartbeat_at_ms=turn.now_ms)
    _try_other_generation(turn, sent)
    return is_stale or member.state not in _ALONE


def _try_other_generation(turn: Turn, sent: Outstanding) -> None:
    """Let the next heartbeat carry the generation that this heartbeat did not carry.

    The coordinator stores a generation when the leader's sync arrives. If the group moves before
    that, the new coordinator continues from the last stored generation and refuses heartbeats of
    the newer one. The joins may then wait for a dead member for a whole session. Without a
    heartbeat that is answered meanwhile, all members would lose their leases.
    """
    member = turn.member
    if member.claim_generation in {NO_GENERATION, member.generation}:
        return
    falls_back = sent.generation == member.generation
    turn.set(lease=attrs.evolve(member.lease, falls_back=falls_back))
    if falls_back:
        turn.set(heartbeat_at_ms=turn.now_ms)


def _try_again(turn: Turn, kind: RequestKind, action: Action, cause: str) -> None:
    if action is Action.SEEK:
        turn.set(coordinator=None)
        doubt_id(turn, kind)
    if action is not Action.REJOIN:
        turn.back_off()
    if kind is RequestKind.HEARTBEAT and turn.member.back_off.attempts == 1:
        # The coordinator moved: look it up immediately.
        turn.set(back_off=attrs.evolve(turn.member.back_off, until_ms=turn.now_ms))
    if kind in {RequestKind.JOIN_GROUP, RequestKind.SYNC_GROUP}:
        turn.rejoin(cause)


def refuse_assignment(turn: Turn, error: str) -> None:
    """Keep all owned resources, because the assignment cannot be read.

    The writer does not speak the protocol, so it gave the resources to no other member.
    """
    last = turn.member.last_assignment
    since_ms = turn.now_ms if last.unreadable_since_ms is None else last.unreadable_since_ms
    record = AssignmentUnreadable(protocol=turn.member.round.protocol, error=error)
    turn.emit(Report(record=record))
    turn.set(
        delay=NO_DELAY,
        last_assignment=attrs.evolve(last, unreadable_since_ms=since_ms, error=error),
    )
    turn.wait_for_revocations()
    stops = turn.member.revocation.is_under_way
    trigger = Trigger.ASSIGNED_WITH_REVOCATION if stops else Trigger.ASSIGNED
    turn.move(trigger, Cause.ASSIGNMENT_UNREADABLE)
