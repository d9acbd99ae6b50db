"""A member in a group whose broker assigns, because it has members of KIP-848.

The group coordinator makes a consumer group of a classic group when a member with
`group.protocol=consumer` joins it, and a classic group again when the last such member has left.
Meanwhile it answers a JoinGroup immediately, without a leader. SyncGroup then returns Kafka's own
assignment. A heartbeat is answered with REBALANCE_IN_PROGRESS while the member has to join: to give
something up, to learn a new epoch, or to take what is free. The generation is the member's epoch,
and stays the same until the member has stopped what its assignment lacks.

From Kafka 4.3 on, the broker makes no new target within `group.consumer.assignment.interval.ms`
(1 s, KIP-1263) of the last one. Afterwards only a request of a member of KIP-848, or a JoinGroup,
makes it. A Heartbeat neither makes it nor tells that it is due. Without a JoinGroup, partitions of
a member that left would wait for another request. In a group without members of KIP-848
(`group.consumer.migration.policy` forbids the downgrade) none would come. So the member joins again
by itself: once after each change, and rarely later.

So the member behaves as in a round of Kafka's cooperative protocol. This file has the differences.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from coopgroup.core.member.effects import Report
from coopgroup.core.member.error_actions import Action
from coopgroup.core.member.parts import NO_DELAY
from coopgroup.core.member.transitions import SETTLED, MemberState
from coopgroup.core.telemetry.causes import Cause
from coopgroup.core.telemetry.records import AssigningMoved

if TYPE_CHECKING:
    from coopgroup.core.member.member import Member, Outstanding
    from coopgroup.core.member.parts import Lease
    from coopgroup.core.member.turn import Turn

_LOOK_SOON_MS: Final = 1_200
_LOOK_LATER_MS: Final = 30_000
_BROKER_ASSIGNS: Final = (
    "members with group.protocol=consumer are in the group, so the broker assigns; "
    "policy and assignor rest (coopgroup group migrate --check names these members)"
)
_LEADER_ASSIGNS: Final = "the last member with group.protocol=consumer left; the policy is back"


def proven_by_broker(turn: Turn, sent: Outstanding) -> Lease:
    """Return the lease after such a join, which restarts the session even if the epoch stays."""
    sent_at_ms = sent.sent_at_ms
    until_ms = turn.session_until_ms(sent_at_ms)
    return turn.member.lease.proven(until_ms=until_ms, settled_at_ms=sent_at_ms)


def may_be_forgotten(turn: Turn) -> bool:
    """Return whether the coordinator may have given away what the joining member owns.

    It accepts the join of a member that it has dropped as that of a new one, under the same id.
    """
    member = turn.member
    return bool(member.owned) and turn.now_ms >= member.hold_until_ms


def note_writer(turn: Turn, *, by_broker: bool, is_new: bool) -> None:
    """Note who wrote the assignment, and report it if that has changed.

    Args:
        turn: the step under way.
        by_broker: whether the group coordinator did.
        is_new: whether the assignment or the generation differs from the last one.
    """
    member, look_at_ms = turn.member, None
    if by_broker and is_new:
        look_at_ms = turn.now_ms + _LOOK_SOON_MS
    elif by_broker:  # a target that the join has caused comes a moment later
        look_at_ms = turn.now_ms + _LOOK_LATER_MS
        soon_ms = turn.now_ms + member.config.window_heartbeat_interval_ms
        turn.set(heartbeat_at_ms=min(member.heartbeat_at_ms, soon_ms))
    # after a sync without a join, only the bytes tell who wrote them
    turn.set(round=attrs.evolve(member.round, by_broker=by_broker, look_at_ms=look_at_ms))
    if by_broker is not member.last_assignment.by_broker:
        meaning = _BROKER_ASSIGNS if by_broker else _LEADER_ASSIGNS
        turn.emit(Report(record=AssigningMoved(to_broker=by_broker, meaning=meaning)))
    if by_broker:
        turn.set(delay=NO_DELAY)  # delays are the policy's


def looks_at_ms(member: Member) -> int | None:
    """Return when the member asks for another assignment by itself, in ms; None for never."""
    return member.round.look_at_ms if member.state is MemberState.STABLE else None


def look_reason(turn: Turn) -> str:
    """Return why the member joins to ask for an assignment; "" if it is not due."""
    at_ms = looks_at_ms(turn.member)
    if at_ms is None or turn.now_ms < at_ms:
        return ""
    return Cause.BROKER_ASKED if turn.member.round.by_broker else Cause.ASSIGNMENT_REFUSED


def join_classic_group(turn: Turn, sent: Outstanding, action: Action) -> bool:
    """Join the group that is classic again, if the answer to a heartbeat tells so.

    The epoch of the group becomes its generation, and a round begins. A member whose epoch was
    older is refused with ILLEGAL_GENERATION, but it is still in the group with its claims.

    Returns:
        Whether the answer means this.
    """
    member = turn.member
    means_this = (
        action is Action.LOSE
        and member.round.by_broker
        and sent.generation == member.generation
        and member.state in SETTLED
    )
    if means_this and member.state is MemberState.STABLE:
        turn.rejoin(Cause.BROKER_NO_LONGER_ASSIGNS)
    elif means_this:
        turn.rejoin_soon()
    return means_this
