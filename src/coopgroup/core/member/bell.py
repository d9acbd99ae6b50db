"""The bell: members tell each other that a round has begun, ahead of their heartbeats.

A member learns of a round with its next heartbeat, which may be seconds away. With a bell, the
member that started the round rings, and members that hear the ring send their heartbeat now. A ring
is only a hint. A lost ring costs the time until the next heartbeat, and a false ring costs one
heartbeat.

Rules of this file:

- A join rings only if it still waits after a short time. Otherwise no round has begun, or no other
  member was missing. A join that was sent because the member was told of a round does not ring.
- A member that left rings after the answer: a heartbeat sent earlier would learn nothing.
- If the broker assigns, no join waits. A join that brings a new epoch rings: it was the first one,
  or it told that the member has given something up. Members of KIP-848 would learn that with their
  next heartbeat, five seconds later.
- Two rings for a join that waits are at least 50 ms apart, and so are two heartbeats for rings that
  the member heard.
- Since its last round, a member sends at most eight such heartbeats at that pace, and one more for
  each heartbeat interval. It ignores further rings. So false rings cannot load the coordinator.

Without `MemberConfig.has_bell`, the functions are not called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from coopgroup.core.member.effects import RingBell
from coopgroup.core.member.error_actions import ErrorCode, RequestKind
from coopgroup.core.member.events import Answered, BellRang
from coopgroup.core.member.parts import BELL_PAUSE_MS
from coopgroup.core.member.transitions import MemberState
from coopgroup.core.model.group_api import (
    HeartbeatAnswer,
    JoinGroupAnswer,
    LeaveGroupAnswer,
    SyncGroupAnswer,
)

if TYPE_CHECKING:
    from coopgroup.core.member.events import Event
    from coopgroup.core.member.member import Member
    from coopgroup.core.member.parts import Rings
    from coopgroup.core.member.turn import Turn

# Waits of a join before its rings. The second and the third ring reach members that the first one
# reached before the join had reached the coordinator, or that were not listening yet.
_RING_AFTER_MS: Final = (10, 60, 260)
_IN_A_ROW_MAX: Final = 8
_HEEDING: Final = frozenset({MemberState.STABLE, MemberState.REVOKING})


def heed_bell(turn: Turn, event: Event) -> None:
    """Let the next heartbeat be due now if the member heard a ring; before requests are sent."""
    member, rings = turn.member, turn.member.rings
    if _ended_a_round(event):
        rings = attrs.evolve(rings, paid_until_ms=turn.now_ms)
    is_heard = rings.is_heard or isinstance(event, BellRang)
    if is_heard and member.state in _HEEDING:
        rings = _heeded(turn, rings)
        is_heard = False
    # The sync may have been answered before the round of the ring began. All other requests of a
    # round are still to be sent, and their answers tell it.
    is_heard = is_heard and member.state is MemberState.SYNCING
    if rings.is_heard is not is_heard:
        rings = attrs.evolve(rings, is_heard=is_heard)
    if rings is not member.rings and rings != member.rings:
        turn.set(rings=rings)


def _heeded(turn: Turn, rings: Rings) -> Rings:
    member = turn.member
    at_ms = max(turn.now_ms, rings.heed_at_ms)
    interval_ms = member.config.heartbeat_interval_ms
    paid_until_ms = max(at_ms, rings.paid_until_ms) + interval_ms
    if at_ms >= member.heartbeat_at_ms or paid_until_ms > at_ms + _IN_A_ROW_MAX * interval_ms:
        return rings
    turn.set(heartbeat_at_ms=at_ms)
    return attrs.evolve(rings, heed_at_ms=at_ms + BELL_PAUSE_MS, paid_until_ms=paid_until_ms)


def _ended_a_round(event: Event) -> bool:
    match event:
        case Answered(answer=SyncGroupAnswer(error_code=ErrorCode.NONE)):
            return True
        case _:
            return False


def ring_if_due(turn: Turn, before: Member, event: Event) -> None:
    """Ring for a join that waits, or for the end of a join or a leave; after requests are sent."""
    member, rings = turn.member, turn.member.rings
    if _has_new_epoch(turn, before, event):  # an earlier ring for this join told nothing yet
        rings = _rung(turn, attrs.evolve(rings, rung_at_ms=None))
    elif _has_left(before, event):
        rings = _rung(turn, rings)
    join = member.outstanding.get(RequestKind.JOIN_GROUP)
    if join is None or not (member.member_id or member.config.instance_id):
        # Without an id, the join only asks for one.
        if rings.ring_at_ms is not None:
            rings = attrs.evolve(rings, ring_at_ms=None)
    elif join.request_id >= before.next_request_id:
        at_ms = None if _tells_of_a_round(event) else turn.now_ms + _RING_AFTER_MS[0]
        rings = attrs.evolve(rings, ring_at_ms=at_ms)
    elif rings.ring_at_ms is not None and turn.now_ms >= rings.ring_at_ms:
        rings = _rung(turn, rings)
        more = [
            at_ms for after in _RING_AFTER_MS if (at_ms := join.sent_at_ms + after) > turn.now_ms
        ]
        at_ms = max(more[0], turn.now_ms + BELL_PAUSE_MS) if more else None
        rings = attrs.evolve(rings, ring_at_ms=at_ms)
    if rings is not member.rings and rings != member.rings:
        turn.set(rings=rings)


def _rung(turn: Turn, rings: Rings) -> Rings:
    if rings.rung_at_ms is not None and turn.now_ms < rings.rung_at_ms + BELL_PAUSE_MS:
        return rings
    turn.emit(RingBell())
    return attrs.evolve(rings, rung_at_ms=turn.now_ms)


def _has_left(before: Member, event: Event) -> bool:
    sent = before.outstanding.get(RequestKind.LEAVE_GROUP)
    return (
        sent is not None
        and isinstance(event, Answered)
        and event.request_id == sent.request_id
        and isinstance(event.answer, LeaveGroupAnswer)
        and event.answer.error_code == ErrorCode.NONE
    )


def _has_new_epoch(turn: Turn, before: Member, event: Event) -> bool:
    """Return whether the answer to a join has another epoch, and the broker assigns."""
    match event:
        case Answered(answer=JoinGroupAnswer(error_code=ErrorCode.NONE)):
            member = turn.member
            return member.round.by_broker and member.generation != before.generation
        case _:
            return False


def _tells_of_a_round(event: Event) -> bool:
    """Return whether an answer told the member of the round, as it tells the other members."""
    match event:
        case Answered(answer=HeartbeatAnswer(error_code=ErrorCode.REBALANCE_IN_PROGRESS)):
            return True
        case Answered(answer=SyncGroupAnswer(error_code=code)):
            return code in {ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS}
        case _:
            return False
