"""The requests that a member has to send, derived from its state.

Rule of this file: no field remembers that a request must be sent. `wanted` looks at a member and
returns the requests that it wants on their way, with their start times. A lost request is simply
wanted again. The same list determines when the host must wake the member.

A request has three stations. Here the member builds it (`_begin_request`). The host's transport
chooses the connection and watches the deadline (`kafka.rpc.transport`). The channel writes it, and
finds its answer (`kafka.rpc.channel`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coopgroup.core.member.broker_assigns import looks_at_ms
from coopgroup.core.member.commits import take_batch
from coopgroup.core.member.effects import Lane, Send
from coopgroup.core.member.error_actions import OF_A_ROUND, RequestKind
from coopgroup.core.member.identity import report_of
from coopgroup.core.member.member import Outstanding
from coopgroup.core.member.parts import LastJoin
from coopgroup.core.member.protocols import joins_in_vain, offered_subscriptions
from coopgroup.core.member.transitions import AT_WORK, MemberState
from coopgroup.core.member.warming import told_warm
from coopgroup.core.model.group_api import (
    FindCoordinatorRequest,
    GroupRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    SyncGroupRequest,
)
from coopgroup.core.telemetry.causes import Cause

if TYPE_CHECKING:
    from coopgroup.core.member.config import MemberConfig
    from coopgroup.core.member.member import Member
    from coopgroup.core.member.turn import Turn

_COMMITTING: Final = frozenset({MemberState.JOINING, MemberState.STABLE, MemberState.REVOKING})
# The coordinator holds a join or sync up to the rebalance timeout. After this extra time its answer
# is no longer expected.
_ANSWER_SLACK_MS: Final = 5_000
# States that end with the answer to a request, which the member wants on its way until then.
_ENDED_BY: Final = {
    MemberState.JOINING: RequestKind.JOIN_GROUP,
    MemberState.SYNCING: RequestKind.SYNC_GROUP,
    MemberState.LEAVING: RequestKind.LEAVE_GROUP,
}


def wanted(member: Member) -> list[tuple[RequestKind, int]]:
    """Return the requests that the member wants on their way, each with its start time."""
    state, waiting = member.state, member.outstanding
    if member.coordinator is None:
        if state in AT_WORK and RequestKind.FIND_COORDINATOR not in waiting:
            return [(RequestKind.FIND_COORDINATOR, member.back_off.until_ms)]
        return []
    found = []
    # Before the join: after it a heartbeat or commit of the old generation is useless.
    if member.in_generation and RequestKind.HEARTBEAT not in waiting:
        found.append((RequestKind.HEARTBEAT, member.heartbeat_at_ms))
    if RequestKind.OFFSET_COMMIT not in waiting and _may_commit(member):
        found.append((RequestKind.OFFSET_COMMIT, member.commits.back_off.until_ms))
    kind = _ENDED_BY.get(state)
    if kind is None or kind in waiting:
        return found
    if kind is RequestKind.LEAVE_GROUP:
        found.append((kind, 0))
    elif kind is RequestKind.SYNC_GROUP or not joins_in_vain(member):
        found.append((kind, member.back_off.until_ms))
    return found


def next_deadline_ms(member: Member) -> int | None:
    """Return when the host must give `Woken` at the latest, in ms; None for never."""
    times = [at_ms for _, at_ms in wanted(member)]
    if member.owned:
        times.append(member.lost_at_ms)
    own = (member.wants_a_round_at_ms, looks_at_ms(member), member.rings.ring_at_ms)
    times += [at_ms for at_ms in (*own, member.commits.due_at_ms) if at_ms is not None]
    return min(times, default=None)


def send_what_is_due(turn: Turn) -> None:
    """Send every wanted request whose time has come."""
    member = turn.member
    if member.state is MemberState.JOINING and member.member_id and joins_in_vain(member):
        leave_at_once(turn, Cause.NOTHING_SUBSCRIBED)
        turn.lose(Cause.NOTHING_SUBSCRIBED, keep_id=False)
    for kind, at_ms in wanted(turn.member):
        if at_ms <= turn.now_ms:
            _begin_request(turn, kind)


def leave_at_once(turn: Turn, reason: str) -> None:
    """Tell the coordinator to continue without this member, and ignore the answer.

    A static member stays silent instead: its session timeout decides (KIP-345).
    """
    if turn.member.coordinator is None or not turn.member.member_id:
        return
    if turn.member.config.instance_id is None:
        turn.set(rejoin_reason=reason)
        _begin_request(turn, RequestKind.LEAVE_GROUP)
        turn.set(rejoin_reason="")


def _may_commit(member: Member) -> bool:
    return (
        bool(member.commits.queue)
        and not member.commits.await_sync
        and member.in_generation
        and member.state in _COMMITTING
    )


def _begin_request(turn: Turn, kind: RequestKind) -> None:
    """Build a request, note that it is on its way, and give it to the host."""
    lane = _lane(turn.member, kind)
    request = _request(turn, kind)
    if request is None:
        return
    member = turn.member
    coordinator = member.coordinator  # None for FindCoordinator only
    is_heartbeat = kind is RequestKind.HEARTBEAT
    request_id = member.next_request_id
    outstanding = Outstanding(
        request_id=request_id,
        sent_at_ms=turn.now_ms,
        node_id=-1 if coordinator is None else coordinator.node_id,
        generation=member.heartbeat_generation if is_heartbeat else member.generation,
    )
    turn.set(next_request_id=request_id + 1, outstanding={**member.outstanding, kind: outstanding})
    turn.emit(
        Send(
            request_id=request_id,
            lane=lane,
            coordinator=coordinator,
            request=request,
            timeout_ms=_timeout_ms(member.config, kind),
        )
    )


def _lane(member: Member, kind: RequestKind) -> Lane:
    if kind is RequestKind.HEARTBEAT:
        joins = not OF_A_ROUND.isdisjoint(member.outstanding)
        return Lane.COMMIT if joins else Lane.JOIN
    return Lane.JOIN if kind in OF_A_ROUND else Lane.COMMIT


def _timeout_ms(config: MemberConfig, kind: RequestKind) -> int:
    if kind in OF_A_ROUND:
        return config.rebalance_timeout_ms + _ANSWER_SLACK_MS
    if kind is RequestKind.HEARTBEAT:
        # A heartbeat must be answered while there is time for two more tries.
        return min(config.request_timeout_ms, max(1, config.session_timeout_ms // 3))
    if kind is RequestKind.OFFSET_COMMIT:
        # A frozen coordinator may serve a timed-out commit after newer commits. So the next commit
        # waits until the lease, and with it the generation, has ended. The lease counts from a
        # heartbeat, which may have been sent and answered shortly after this commit.
        fenced_ms = config.session_timeout_ms + config.heartbeat_interval_ms
        return max(config.request_timeout_ms, fenced_ms)
    return config.request_timeout_ms


def _request(turn: Turn, kind: RequestKind) -> GroupRequest | None:
    match kind:
        case RequestKind.HEARTBEAT:
            return _heartbeat_request(turn)
        case RequestKind.OFFSET_COMMIT:
            return _commit_request(turn)
        case RequestKind.FIND_COORDINATOR:
            return FindCoordinatorRequest(group_id=turn.member.config.group_id)
        case RequestKind.JOIN_GROUP:
            return _join_request(turn)
        case RequestKind.SYNC_GROUP:
            return _sync_request(turn.member)
        case _:  # LEAVE_GROUP; CONSUMER_BEAT belongs to the other protocol
            return _leave_request(turn.member)


def _join_request(turn: Turn) -> JoinGroupRequest:
    member, config = turn.member, turn.member.config
    offered = offered_subscriptions(member, turn.now_ms)
    join = LastJoin(
        topics=member.next_join.topics,
        hands_over=member.next_join.hands_over,
        protocols=tuple(name for name, _ in offered),
        catalogue_version=member.next_join.catalogue_version,
        report=report_of(member),
        sent_at_ms=turn.now_ms,
    )
    turn.set(
        rejoin_reason="",
        last_join=join,
        lease=member.lease.joining(turn.now_ms),
        revocation=member.revocation.joined(),
    )
    told_warm(turn)
    return JoinGroupRequest(
        group_id=config.group_id,
        member_id=member.member_id,
        group_instance_id=config.instance_id,
        session_timeout_ms=config.session_timeout_ms,
        rebalance_timeout_ms=config.rebalance_timeout_ms,
        protocol_type=config.protocol_type,
        protocols=offered,
        reason=member.rejoin_reason,
    )


def _sync_request(member: Member) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=member.config.group_id,
        generation=member.generation,
        member_id=member.member_id,
        group_instance_id=member.config.instance_id,
        protocol_type=member.config.protocol_type,
        protocol_name=member.round.protocol,
        assignments=member.round.decided,
    )


def _heartbeat_request(turn: Turn) -> HeartbeatRequest:
    member = turn.member
    turn.set(heartbeat_at_ms=turn.now_ms + member.heartbeat_pace_ms(turn.now_ms))
    return HeartbeatRequest(
        group_id=member.config.group_id,
        generation=member.heartbeat_generation,
        member_id=member.member_id,
        group_instance_id=member.config.instance_id,
    )


def _leave_request(member: Member) -> LeaveGroupRequest:
    return LeaveGroupRequest(
        group_id=member.config.group_id,
        member_id=member.member_id,
        group_instance_id=member.config.instance_id,
        reason=member.rejoin_reason,
    )


def _commit_request(turn: Turn) -> OffsetCommitRequest | None:
    commits, offsets, finished = take_batch(turn.member.commits, turn.member.owned)
    turn.set(commits=commits)
    turn.finish_commits(finished)
    if not offsets:
        return None
    return OffsetCommitRequest(
        group_id=turn.member.config.group_id,
        generation=turn.member.generation,
        member_id=turn.member.member_id,
        group_instance_id=turn.member.config.instance_id,
        offsets=offsets,
    )
