"""The meaning of an answer, or of its absence, for a member.

Three rules. An answer counts only while its request is on its way. An error code does only what the
table of error codes says. A proof about time counts from the SENDING of the request, because the
coordinator may have acted at any moment after that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

import attrs

from coopgroup.errors import DecodeError
from coopgroup.member import commits as commit_queue
from coopgroup.member.commit_answers import sent_partitions, settle_commits
from coopgroup.member.effects import DecideRound, GrantResources, Report, RevokeResources
from coopgroup.member.error_actions import (
    Action,
    ErrorCode,
    RequestKind,
    action_for,
    error_name,
)
from coopgroup.member.events import Answered, RequestFailed
from coopgroup.member.identity import doubt_id, keep_identity, unless_forgotten
from coopgroup.member.member import IdStanding
from coopgroup.member.protocols import read_assignment
from coopgroup.member.revocation import make_way
from coopgroup.member.transitions import AT_WORK, SETTLED, MemberState, Trigger
from coopgroup.model import EMPTY, NO_LOSS
from coopgroup.model.claims import NO_GENERATION
from coopgroup.model.group_api import (
    Answer,
    FindCoordinatorAnswer,
    HeartbeatAnswer,
    JoinGroupAnswer,
    OffsetCommitAnswer,
    SyncGroupAnswer,
)
from coopgroup.protocol.notes import names_digest, note_of
from coopgroup.telemetry import AssignmentReceived, RequestRefused

if TYPE_CHECKING:
    from coopgroup.member.member import Outstanding
    from coopgroup.member.turn import Turn
    from coopgroup.protocol import Assignment

__all__ = ["take_outcome"]

# States without a join or sync on its way, so a heartbeat's answer decides.
_ALONE = SETTLED | {MemberState.RETURNING}
_QUIET = frozenset({MemberState.STABLE, MemberState.RETURNING})


def take_outcome(turn: Turn, event: Answered | RequestFailed) -> None:
    """Handle the outcome of a request, if the member still waits for it."""
    found = next(
        (
            (kind, sent)
            for kind, sent in turn.member.outstanding.items()
            if sent.request_id == event.request_id
        ),
        None,
    )
    if found is None:
        return  # stale: the member gave the request up before its answer came
    kind, sent = found
    kept = {other: one for other, one in turn.member.outstanding.items() if other is not kind}
    turn.set(outstanding=kept)
    if isinstance(event, RequestFailed):
        _take_failure(turn, kind, sent, event)
    else:
        _take_answer(turn, kind, sent, event.answer)


def _take_failure(turn: Turn, kind: RequestKind, sent: Outstanding, event: RequestFailed) -> None:
    if kind is RequestKind.OFFSET_COMMIT:
        settle_commits(turn, sent, dict.fromkeys(sent_partitions(turn), event.code), event.code)
        return
    _act(turn, kind, sent, event.code, event.message)


def _take_answer(turn: Turn, kind: RequestKind, sent: Outstanding, answer: Answer) -> None:
    match answer:
        case FindCoordinatorAnswer() if answer.coordinator is not None:
            _coordinator_found(turn, answer)
        case JoinGroupAnswer() if answer.error_code == ErrorCode.NONE:
            _joined(turn, sent, answer)
        case JoinGroupAnswer() if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            turn.set(member_id=answer.member_id)
            turn.move(Trigger.MEMBER_ID_GIVEN, "member id given")
        case SyncGroupAnswer() if answer.error_code == ErrorCode.NONE:
            _synced(turn, sent, answer)
        case HeartbeatAnswer() if answer.error_code == ErrorCode.NONE:
            _renew_lease(turn, sent.sent_at_ms)
            _proves_peace(turn, sent)
            if turn.member.state is MemberState.RETURNING:
                turn.move(Trigger.KNOWN, "the group still stands where it stood")
        case OffsetCommitAnswer():
            codes = {(topic, partition): code for topic, partition, code in answer.codes}
            settle_commits(turn, sent, codes, ErrorCode.UNKNOWN_SERVER_ERROR)
        case _:
            message = getattr(answer, "error_message", "")
            _act(turn, kind, sent, answer.error_code, message)


def _coordinator_found(turn: Turn, answer: FindCoordinatorAnswer) -> None:
    coordinator = answer.coordinator
    turn.set(coordinator=coordinator, heartbeat_at_ms=turn.now_ms)
    for kind in (RequestKind.JOIN_GROUP, RequestKind.SYNC_GROUP):
        sent = turn.member.outstanding.get(kind)
        if sent is not None and coordinator is not None and sent.node_id != coordinator.node_id:
            # The old coordinator will not answer, and the new coordinator does not know of it.
            turn.forget(kind)
            if turn.member.state is MemberState.SYNCING:
                turn.rejoin("coordinator moved")


def _proves_peace(turn: Turn, sent: Outstanding) -> None:
    """Handle a heartbeat's answer that no round has begun.

    Between join and sync the answer does not prove that the coordinator has stopped waiting for
    this member. The coordinator waits for its sync. After the rebalance timeout it drops the
    member, even if the member sends heartbeats.
    """
    member = turn.member
    if member.state in SETTLED:
        # Only here: a coordinator that refuses every sync would otherwise be asked without a pause.
        turn.set(attempts=0)
    if sent.generation == member.claim_generation:
        turn.set(settled_at_ms=max(member.settled_at_ms, sent.sent_at_ms))
    elif RequestKind.SYNC_GROUP in member.outstanding:
        turn.set(round_open_at_ms=max(member.round_open_at_ms, sent.sent_at_ms))


def _joined(turn: Turn, sent: Outstanding, answer: JoinGroupAnswer) -> None:
    member = turn.member
    since_ms = turn.now_ms if member.joining_since_ms is None else member.joining_since_ms
    if _was_left_out(turn, answer):
        turn.set(joining_since_ms=None)
        turn.lose("a round ended without its join", keep_id=True)
        return
    if answer.generation != member.generation:
        # With the same generation it is the same round again, and its time to sync began long ago.
        turn.set(settled_at_ms=member.round_ended_after_ms)
    if answer.member_id != member.member_id and member.id_standing is IdStanding.STORED:
        turn.set(id_standing=IdStanding.GIVEN)
    leads = answer.leader_id == answer.member_id and not answer.skip_assignment
    turn.set(
        member_id=answer.member_id,
        generation=answer.generation,
        protocol_chosen=answer.protocol_name or member.config.protocol_name,
        leads=leads,
        decided=(),
        joining_since_ms=None,
    )
    if not member.in_generation:
        # No heartbeat has kept this session alive. So the next heartbeat is due as if one had been
        # sent with the join.
        turn.set(heartbeat_at_ms=since_ms + member.config.heartbeat_interval_ms)
    if not leads:
        turn.move(Trigger.JOINED_AS_FOLLOWER, "joined")
        return
    turn.set(duty_number=sent.request_id)
    turn.move(Trigger.JOINED_AS_LEADER, "joined")
    turn.emit(
        DecideRound(
            number=sent.request_id,
            generation=answer.generation,
            completed_generation=turn.member.claim_generation,
            member_id=answer.member_id,
            members=answer.members,
        )
    )


def _was_left_out(turn: Turn, answer: JoinGroupAnswer) -> bool:
    """Return whether a round may have given away the member's owned resources.

    The group coordinator drops members that are missing at the end of the time to rejoin, except
    static members. A static member keeps its place, and the leader reads its last join. That join
    claims no resource that the member got later.
    """
    member = turn.member
    return (
        member.config.instance_id is not None
        and bool(member.owned)
        and turn.now_ms >= member.hold_until_ms
        and answer.generation > member.generation + 1
    )


def _synced(turn: Turn, sent: Outstanding, answer: SyncGroupAnswer) -> None:
    # In a settled generation the coordinator answers a sync immediately, and does not restart the
    # session. Only the leader's sync settles the generation. A follower's lease counts from the end
    # of the round.
    member = turn.member
    _renew_lease(turn, sent.sent_at_ms if member.leads else member.settled_at_ms)
    turn.set(
        claim_generation=member.generation,
        id_standing=IdStanding.STORED,
        # The sync may have waited long for the leader's. Heartbeats proved meanwhile that the
        # round was still open, so the time-outs of a later round had not begun.
        settled_at_ms=max(member.settled_at_ms, sent.sent_at_ms, member.round_open_at_ms),
        commits=attrs.evolve(turn.member.commits, await_sync=False),
        decided=(),
        attempts=0,
    )
    keep_identity(turn)
    try:
        is_first = member.claim_generation == NO_GENERATION
        assignment = read_assignment(turn.member, answer.assignment, is_first=is_first)
    except DecodeError as error:
        # The leader does not speak the protocol. No other member was given the owned resources.
        record = RequestRefused(
            request=RequestKind.SYNC_GROUP.value, error=str(error), action="keep what is held"
        )
        turn.emit(Report(record=record))
        turn.set(scheduled_rejoin_ms=None, loss_deadline_ms=None, rejoin_at_ms=None)
        stops = turn.member.revoking or turn.member.stopped
        trigger = Trigger.ASSIGNED_WITH_REVOCATION if stops else Trigger.ASSIGNED
        turn.move(trigger, "unreadable assignment")
        return
    _heed_note(turn, answer.assignment)
    _take_assignment(turn, assignment)


def _heed_note(turn: Turn, assignment: bytes) -> None:
    """Compare the leader's view of this member's subscription with the current one.

    They differ if a static member returned with another subscription. The group keeps the
    assignment for the old subscription, and begins no round for the new one (KIP-345).
    """
    note = note_of(assignment)
    turn.set(shared_digest=None if note is None else note.shared)
    if note is not None and note.topics != names_digest(turn.member.joined_topics):
        turn.set(rejoin_reason="subscription changed")


def _take_assignment(turn: Turn, assignment: Assignment) -> None:
    """Hold the assigned resources, stop the rest: `assigned` is complete, never a delta (Design I).

    A resource that is being stopped continues to stop, even if this round assigns it: the
    application is told only once. If the resource is assigned again, the next round returns it.
    """
    member = turn.member
    owned = member.owned
    gained = assignment.assigned - owned
    stopping = owned - assignment.assigned - member.revoking - member.stopped
    record = AssignmentReceived(
        leader=member.leads,
        gained=gained,
        kept=owned & assignment.assigned,
        revoked=stopping,
        follow_up=assignment.revoked is not None,
        scheduled_rebalance_timeout_ms=assignment.scheduled_rebalance_timeout_ms,
        protocol=member.protocol_chosen,
    )
    turn.emit(Report(record=record))
    commits, lapsed = commit_queue.lapse(member.commits, gained)
    scheduled_ms, loss_ms = _delays_ms(turn, assignment)
    turn.finish_commits(lapsed)
    turn.set(
        commits=commits,
        owned=owned | assignment.assigned,
        last_assigned=assignment.assigned,
        revoking=member.revoking | stopping,
        # The leader could not read the claims. It will read the next join of a member that must
        # stop as a join without claims, so all resources must have stopped before it.
        yields=not stopping <= (assignment.revoked or EMPTY),
        rejoin_at_ms=None,
        scheduled_rejoin_ms=scheduled_ms,
        loss_deadline_ms=loss_ms,
    )
    if stopping:
        turn.emit(RevokeResources(resources=stopping))
    _settle(turn, assignment)
    if gained:
        turn.emit(GrantResources(resources=gained))
    soon_ms = turn.now_ms + turn.member.heartbeat_pace_ms(turn.now_ms)
    turn.set(heartbeat_at_ms=min(turn.member.heartbeat_at_ms, soon_ms))


def _delays_ms(turn: Turn, assignment: Assignment) -> tuple[int | None, int | None]:
    """Return when the leader wants all members to rejoin, and when a wait for a loss ends, in ms.

    A round with a follow-up is not final and sets no delay, so a running delay continues. A delay
    that was over when the join was sent is dropped, because the join reported it. After a pause
    between moves only the wait for a loss remains.
    """
    member, now_ms = turn.member, turn.now_ms
    if assignment.scheduled_rebalance_timeout_ms > 0:
        scheduled_ms = now_ms + assignment.scheduled_rebalance_timeout_ms
        loss_ms = assignment.loss_timeout_ms
        if loss_ms is None:
            return scheduled_ms, scheduled_ms
        return scheduled_ms, None if loss_ms == NO_LOSS else now_ms + loss_ms
    if assignment.revoked is None:
        return None, None
    running_ms, waits_ms = (
        time_ms if time_ms is not None and time_ms > member.joined_at_ms else None
        for time_ms in (member.scheduled_rejoin_ms, member.loss_deadline_ms)
    )
    return waits_ms if running_ms is None else running_ms, waits_ms


def _settle(turn: Turn, assignment: Assignment) -> None:
    """Move on after a round: stop the remaining resources before a follow-up round.

    A member does not rejoin by itself if it is only told again to stop the same resources. The next
    round would be the same. If other members wait for it, a heartbeat reports their round.
    """
    member = turn.member
    if member.revoking or member.stopped:
        turn.move(Trigger.ASSIGNED_WITH_REVOCATION, "assigned")
        if assignment.revoked is not None and not assignment.revoked:
            turn.rejoin_soon()
    elif assignment.revoked is None:
        turn.move(Trigger.ASSIGNED, "assigned")
    else:
        turn.set(rejoin_reason="follow-up round")
        stops_first = member.config.eager and bool(member.owned)
        turn.move(Trigger.ASSIGNED if stops_first else Trigger.ASSIGNED_WITH_FOLLOW_UP, "assigned")


def _renew_lease(turn: Turn, proof_ms: int) -> None:
    """Extend the lease: the session lives `session.timeout.ms` from the SENDING of the request."""
    until = proof_ms + turn.member.config.session_timeout_ms
    turn.set(lease_until_ms=max(turn.member.lease_until_ms, until))


# --- what errors mean ------------------------------------------------------------------------


def _act(turn: Turn, kind: RequestKind, sent: Outstanding, code: int, message: str) -> None:
    """Apply the table's action for an error code of any request except a commit."""
    action = unless_forgotten(turn, action_for(kind, code))
    if kind is RequestKind.HEARTBEAT and _heartbeat_needs_nothing(turn, sent, action):
        return
    cause = f"{kind.value} answered {error_name(code)}"
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
        # The last three actions have no rows in the tables of these requests.
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
        _renew_lease(turn, sent.sent_at_ms)
        # For a sync, this answer means the end of the round.
        if RequestKind.JOIN_GROUP in member.outstanding:
            turn.set(round_open_at_ms=max(member.round_open_at_ms, sent.sent_at_ms))
        if sent.generation == member.generation:
            if member.state in _QUIET:
                turn.rejoin("a round has begun")
            elif member.state is MemberState.REVOKING:
                turn.rejoin_soon()
        return True
    if action is Action.RETRY:
        turn.set(heartbeat_at_ms=turn.now_ms + member.config.retry_backoff_ms)
        return True
    return action is Action.LOSE and (
        sent.generation != member.generation or member.state not in _ALONE
    )


def _try_again(turn: Turn, kind: RequestKind, action: Action, cause: str) -> None:
    if action is Action.SEEK:
        turn.set(coordinator=None)
        doubt_id(turn, kind)
    if action is not Action.REJOIN:
        turn.back_off()
    if kind is RequestKind.HEARTBEAT and turn.member.attempts == 1:
        turn.set(retry_at_ms=turn.now_ms)  # the coordinator moved: look it up immediately
    if kind in {RequestKind.JOIN_GROUP, RequestKind.SYNC_GROUP}:
        turn.rejoin(cause)
