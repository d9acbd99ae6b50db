"""The meaning of an answer, or of its absence, for a member.

Two rules. An answer counts only while its request is on its way. A proof about time counts from the
SENDING of the request, because the coordinator may have acted at any moment after that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from coopgroup.core.member import commits as commit_queue
from coopgroup.core.member.assignment_check import acceptable, note_refusal, uncounted_topics
from coopgroup.core.member.broker_assigns import may_be_forgotten, note_writer, proven_by_broker
from coopgroup.core.member.commit_answers import take_commit_outcome
from coopgroup.core.member.effects import (
    CountPartitions,
    DecideRound,
    GrantResources,
    Report,
    RevokeResources,
)
from coopgroup.core.member.error_actions import (
    ErrorCode,
    RequestKind,
)
from coopgroup.core.member.events import Answered, RequestFailed
from coopgroup.core.member.identity import keep_identity
from coopgroup.core.member.parts import IdStanding, LastAssignment, Round
from coopgroup.core.member.protocols import read_assignment
from coopgroup.core.member.refusals import act_on_error, refuse_assignment
from coopgroup.core.member.retrying import take_outstanding
from coopgroup.core.member.transitions import SETTLED, MemberState, Trigger
from coopgroup.core.member.warming import take_warmups
from coopgroup.core.model import EMPTY
from coopgroup.core.model.group import NO_GENERATION
from coopgroup.core.model.group_api import (
    FindCoordinatorAnswer,
    HeartbeatAnswer,
    JoinGroupAnswer,
    OffsetCommitAnswer,
    SyncGroupAnswer,
)
from coopgroup.core.model.replacing import replaced
from coopgroup.core.protocol.digests import names_digest
from coopgroup.core.telemetry.causes import Cause
from coopgroup.core.telemetry.records import AssignmentReceived
from coopgroup.errors import DecodeError

if TYPE_CHECKING:
    from coopgroup.core.member.member import Outstanding
    from coopgroup.core.member.turn import Turn
    from coopgroup.core.protocol.values import Assignment


def take_outcome(turn: Turn, event: Answered | RequestFailed) -> None:
    """Handle the outcome of a request, if the member still waits for it."""
    found = take_outstanding(turn, event)
    if found is None:
        return
    kind, sent = found
    if kind is RequestKind.OFFSET_COMMIT:
        take_commit_outcome(turn, sent, event)
    elif isinstance(event, RequestFailed):
        act_on_error(turn, kind, sent, event.code, event.message)
    else:
        _take_answer(turn, kind, sent, event)


def _take_answer(turn: Turn, kind: RequestKind, sent: Outstanding, event: Answered) -> None:
    answer = event.answer
    match answer:
        case FindCoordinatorAnswer() if answer.coordinator is not None:
            _coordinator_found(turn, answer)
        case JoinGroupAnswer() if answer.error_code == ErrorCode.NONE:
            _joined(turn, sent, answer)
        case JoinGroupAnswer() if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            fresh = attrs.evolve(turn.member.lease, generation=NO_GENERATION)
            turn.set(member_id=answer.member_id, lease=fresh)
            turn.move(Trigger.MEMBER_ID_GIVEN, Cause.ID_GIVEN)
        case SyncGroupAnswer() if answer.error_code == ErrorCode.NONE:
            _sync_answered(turn, sent, answer, event)
        case HeartbeatAnswer() if answer.error_code == ErrorCode.NONE:
            _proves_peace(turn, sent)
            if turn.member.state is MemberState.RETURNING:
                turn.move(Trigger.KNOWN, Cause.GROUP_STANDS)
        case OffsetCommitAnswer():  # handled before
            pass
        case _:
            act_on_error(turn, kind, sent, answer.error_code, getattr(answer, "error_message", ""))


def _coordinator_found(turn: Turn, answer: FindCoordinatorAnswer) -> None:
    coordinator = answer.coordinator
    lease = attrs.evolve(turn.member.lease, may_restart=True)
    turn.set(coordinator=coordinator, heartbeat_at_ms=turn.now_ms, lease=lease)
    for kind in (RequestKind.JOIN_GROUP, RequestKind.SYNC_GROUP):
        sent = turn.member.outstanding.get(kind)
        if sent is not None and coordinator is not None and sent.node_id != coordinator.node_id:
            # The old coordinator will not answer, and the new coordinator does not know of it.
            turn.forget(kind)
            if turn.member.state is MemberState.SYNCING:
                turn.rejoin(Cause.COORDINATOR_MOVED)


def _proves_peace(turn: Turn, sent: Outstanding) -> None:
    """Handle a heartbeat's answer that no round has begun.

    Between join and sync the answer does not prove that the coordinator has stopped waiting for
    this member. The coordinator waits for its sync. After the rebalance timeout it drops the
    member, even if the member sends heartbeats.
    """
    member, sent_at_ms = turn.member, sent.sent_at_ms
    until_ms = turn.session_until_ms(sent_at_ms)
    if sent.generation == member.claim_generation:
        lease = member.lease.proven(until_ms=until_ms, settled_at_ms=sent_at_ms)
    elif RequestKind.SYNC_GROUP in member.outstanding:
        lease = member.lease.proven(until_ms=until_ms, round_open_at_ms=sent_at_ms)
    else:
        lease = member.lease.proven(until_ms=until_ms)
    turn.set(lease=lease)
    if member.state in SETTLED:
        # Only here: a coordinator that refuses every sync would otherwise be asked without a pause.
        turn.end_back_off()


def _joined(turn: Turn, sent: Outstanding, answer: JoinGroupAnswer) -> None:
    member = turn.member
    by_broker, joining_since_ms = not answer.leader_id, member.lease.joining_since_ms
    lease = proven_by_broker(turn, sent) if by_broker else member.lease
    if _was_left_out(turn, answer):
        turn.set(lease=lease.joined(answer.generation))
        turn.lose(Cause.MISSED_ROUND, keep_id=True)
        return
    # If the coordinator knows the member, perhaps no round began: the time to sync began long ago,
    # and the join did not renew the session. A member that has lost its generation cannot tell.
    is_same = answer.member_id == member.member_id and not by_broker
    known = is_same and lease.generation != NO_GENERATION
    is_late = known and _may_have_come_late(turn, answer)
    is_repeated = is_late or (
        known and (not member.in_generation or answer.generation <= lease.generation)
    )
    if is_late or (is_repeated and lease.round_open_at_ms >= sent.sent_at_ms):
        # A heartbeat met the round of this join before its end, so its time to sync began later.
        lease = lease.proven(until_ms=lease.until_ms, settled_at_ms=lease.round_open_at_ms)
    if not (is_repeated or by_broker):
        # The end of the joins restarts the session of each member. Count it now and not at the
        # sync: if rounds follow each other quickly, syncs are refused and each heartbeat meets a
        # new generation. A member that reaches the coordinator would lose its lease.
        ended_ms = lease.round_ended_after_ms
        lease = lease.proven(until_ms=turn.session_until_ms(ended_ms), settled_at_ms=ended_ms)
    if answer.member_id != member.member_id and member.identity.standing is IdStanding.STORED:
        turn.note_id(IdStanding.GIVEN)
    leads = answer.leader_id == answer.member_id and not answer.skip_assignment
    turn.set(
        member_id=answer.member_id,
        generation=answer.generation,
        round=Round(
            protocol=answer.protocol_name or member.config.protocol_name,
            leader_id=answer.leader_id,
            leads=leads,
            by_broker=by_broker,
            duty_number=sent.request_id if leads else 0,
        ),
        lease=lease.joined(answer.generation),
    )
    if is_repeated and not leads and not member.owned and answer.generation != member.generation:
        # It may have joined with the same bytes as before, so that no round began. Then its session
        # may be about to end. Without a heartbeat it would work on while the next round gives its
        # resources away.
        turn.set(heartbeat_at_ms=turn.now_ms)
        turn.move(Trigger.RETURN, Cause.JOINED_AS_KNOWN)
        return
    if not member.in_generation:
        # No heartbeat has kept this session alive. So the next heartbeat is due as if one had been
        # sent with the join.
        since_ms = turn.now_ms if joining_since_ms is None else joining_since_ms
        turn.set(heartbeat_at_ms=since_ms + member.config.heartbeat_interval_ms)
    elif turn.member.lease.until_ms < turn.now_ms + member.config.heartbeat_interval_ms:
        # The heartbeats of a process that returned had an older generation, and proved nothing
        # while its join waited. Without a new one the lease would end when the assignment comes.
        turn.forget(RequestKind.HEARTBEAT)
        turn.set(heartbeat_at_ms=turn.now_ms)
    if not leads:
        turn.move(Trigger.JOINED_AS_FOLLOWER, Cause.JOINED)
        return
    turn.move(Trigger.JOINED_AS_LEADER, Cause.JOINED)
    turn.emit(
        DecideRound(
            number=sent.request_id,
            generation=answer.generation,
            completed_generation=turn.member.claim_generation,
            member_id=answer.member_id,
            members=answer.members,
        )
    )


def _may_have_come_late(turn: Turn, answer: JoinGroupAnswer) -> bool:
    """Return whether the round may have ended before the join arrived.

    A static member keeps its place at the end of the time to rejoin. A later join with the same
    bytes as before begins no round, and does not renew the session.
    """
    member = turn.member
    timeout_ms = member.config.rebalance_timeout_ms
    return (
        member.config.instance_id is not None
        and answer.leader_id != answer.member_id
        and turn.now_ms >= member.lease.settled_at_ms + timeout_ms
    )


def _was_left_out(turn: Turn, answer: JoinGroupAnswer) -> bool:
    """Return whether a round may have given away the member's owned resources.

    The group coordinator drops members that are missing at the end of the time to rejoin, except
    static members. A static member keeps its place, and the leader reads its last join. That join
    claims no resource that the member got later. A coordinator that never heard of the last join
    counts from the last completed round.
    """
    member = turn.member
    if not answer.leader_id:
        return may_be_forgotten(turn)
    last = member.claim_generation if member.lease.may_restart else member.generation
    return (
        member.config.instance_id is not None
        and bool(member.owned)
        and turn.now_ms >= member.hold_until_ms
        and answer.generation > last + 1
    )


def _sync_answered(turn: Turn, sent: Outstanding, answer: SyncGroupAnswer, event: Answered) -> None:
    """Handle an assignment, or wait until the numbers of partitions are known."""
    member = turn.member
    is_first = member.claim_generation == NO_GENERATION
    try:
        read = read_assignment(member, answer.assignment, is_first=is_first)
    except DecodeError as error:
        _synced(turn, sent)
        refuse_assignment(turn, str(error))
        return
    assignment, by_broker = read
    found = event.partition_counts
    if found is not None:
        known = member.partition_counts
        more = {name: max(count, known.get(name, 0)) for name, count in found.items()}
        turn.set(partition_counts={**known, **more})
    elif not by_broker and (topics := uncounted_topics(member, assignment)):
        turn.set(outstanding={**member.outstanding, RequestKind.SYNC_GROUP: sent})
        turn.emit(CountPartitions(topics=topics, answered=event))
        return
    _synced(turn, sent)
    assignment, refused = acceptable(turn.member, assignment, found or ())
    is_new = assignment.assigned != member.owned or member.claim_generation != member.generation
    note_writer(turn, by_broker=by_broker, is_new=is_new)
    refusals = member.last_assignment.refusals + 1 if refused else 0
    _heed_digests(turn, assignment, refusals)
    if refused:
        note_refusal(turn, refused, is_first=is_first)
    _take_assignment(turn, assignment)


def _synced(turn: Turn, sent: Outstanding) -> None:
    member, lease, commits = turn.member, turn.member.lease, turn.member.commits
    # In a settled generation the coordinator answers a sync immediately, and does not restart the
    # session. Only the leader's sync settles the generation.
    leads = member.round.leads
    until_ms = turn.session_until_ms(sent.sent_at_ms) if leads else lease.until_ms
    # The sync may have waited long for the leader's. Heartbeats proved meanwhile that the round was
    # still open, so the time-outs of a later round had not begun.
    settled_at_ms = max(sent.sent_at_ms, lease.round_open_at_ms)
    if member.round.by_broker:  # the join proved more
        settled_at_ms = lease.settled_at_ms
    turn.set(
        claim_generation=member.generation,
        lease=lease.proven(until_ms=until_ms, settled_at_ms=settled_at_ms),
        commits=replaced(commits, await_sync=False),
        round=attrs.evolve(member.round, decided=()),
    )
    turn.note_id(IdStanding.STORED)
    turn.end_back_off()
    keep_identity(turn)


def _heed_digests(turn: Turn, assignment: Assignment, refusals: int) -> None:
    """Compare the leader's view of this member's subscription with the current one.

    They differ if a static member returned with another subscription. The group keeps the
    assignment for the old subscription, and begins no round for the new one (KIP-345).
    """
    last = LastAssignment(
        resources=assignment.assigned,
        shared_digest=assignment.shared_digest,
        catalogue_version=assignment.catalogue_version,
        by_broker=turn.member.round.by_broker,
        refusals=refusals,
    )
    turn.set(last_assignment=last)
    noted = assignment.topics_digest
    if noted is not None and noted != names_digest(turn.member.last_join.topics):
        turn.set(rejoin_reason=Cause.SUBSCRIPTION_CHANGED)


def _take_assignment(turn: Turn, assignment: Assignment) -> None:
    """Hold the assigned resources, stop the rest: `assigned` is complete, never a delta (Design I).

    A resource that is being stopped continues to stop, even if this round assigns it: the
    application is notified only once. If the resource is assigned again, the next round returns it.
    """
    member = turn.member
    owned, before = member.owned, member.revocation
    gained = assignment.assigned - owned
    stopping = owned - assignment.assigned - before.pending - before.stopped
    record = AssignmentReceived(
        leader=member.round.leads,
        gained=gained,
        kept=owned & assignment.assigned,
        revoked=stopping,
        follow_up=assignment.revoked is not None,
        rejoin_in_ms=assignment.rejoin_in_ms,
        protocol=member.round.protocol,
        session_timeout_ms=member.config.session_timeout_ms,
    )
    turn.emit(Report(record=record))
    # The leader could not read the claims. It will read the next join of a member that must stop as
    # a join without claims, so all resources must have stopped before it.
    yields = not stopping <= (assignment.revoked or EMPTY)
    commits, lapsed = commit_queue.lapse(member.commits, gained)
    turn.finish_commits(lapsed)
    turn.set(
        commits=commits,
        owned=owned | assignment.assigned,
        revocation=before.with_more(stopping, yields=yields),
        delay=member.delay.after(
            assignment, joined_at_ms=member.last_join.sent_at_ms, now_ms=turn.now_ms
        ),
    )
    if stopping:
        turn.emit(RevokeResources(resources=stopping))
    _settle(turn, assignment)
    if gained:
        turn.emit(GrantResources(resources=gained))
    take_warmups(turn, assignment, gained)
    soon_ms = turn.now_ms + turn.member.heartbeat_pace_ms(turn.now_ms)
    turn.set(heartbeat_at_ms=min(turn.member.heartbeat_at_ms, soon_ms))


def _settle(turn: Turn, assignment: Assignment) -> None:
    """Move on after a round: stop the remaining resources before a follow-up round.

    A member does not rejoin by itself if the same revocation is only repeated. The next
    round would be the same. If other members wait for it, a heartbeat reports their round.
    """
    member = turn.member
    if member.revocation.is_under_way:
        turn.move(Trigger.ASSIGNED_WITH_REVOCATION, Cause.ASSIGNED)
        if assignment.revoked is not None and not assignment.revoked:
            turn.rejoin_soon()
    elif assignment.revoked is None:
        turn.move(Trigger.ASSIGNED, Cause.ASSIGNED)
    else:
        turn.set(rejoin_reason=Cause.FOLLOW_UP)
        stops_first = member.config.eager and bool(member.owned)
        turn.move(
            Trigger.ASSIGNED if stops_first else Trigger.ASSIGNED_WITH_FOLLOW_UP, Cause.ASSIGNED
        )
