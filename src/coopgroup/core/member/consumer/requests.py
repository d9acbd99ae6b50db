"""The requests that a member of KIP-848 has to send, derived from its state.

The rule is that of the classic member: no field remembers that a request must be sent, so a lost
request is simply wanted again.

Joins, heartbeats and leaves take one connection. On two connections a leave can overtake a join.
The coordinator would then keep a member without a process until its session ends. Commits have the
other connection, so that a slow heartbeat delays no commit.

A heartbeat is full if its content has changed since the last answer, or if that answer was lost. It
has the topics, the owned partitions and the time-out. All other heartbeats are short: a member of
1,000 partitions would send 4 kB each time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coopgroup.core.member.commits import take_batch
from coopgroup.core.member.consumer.beat import Told
from coopgroup.core.member.consumer.bell import count_heeded, own_ms
from coopgroup.core.member.consumer.changes import set_beat
from coopgroup.core.member.effects import Lane, Send
from coopgroup.core.member.error_actions import RequestKind
from coopgroup.core.member.member import Outstanding
from coopgroup.core.member.transitions import AT_WORK, MemberState
from coopgroup.core.model.group import NO_GENERATION
from coopgroup.core.model.group_api import (
    JOINS,
    LEAVES,
    LEAVES_FOR_NOW,
    ConsumerBeatRequest,
    FindCoordinatorRequest,
    GroupRequest,
    OffsetCommitRequest,
    TopicPartitions,
)

if TYPE_CHECKING:
    from coopgroup.core.member.member import Member
    from coopgroup.core.member.turn import Turn

_OWNING: Final = frozenset({MemberState.STABLE, MemberState.REVOKING})
_LEAVING_BEHIND: Final = AT_WORK | {MemberState.LOSING}


def wanted(member: Member) -> list[tuple[RequestKind, int]]:
    """Return the requests that the member wants on their way, each with its start time."""
    state, waiting = member.state, member.outstanding
    if member.coordinator is None:
        if state in AT_WORK and RequestKind.FIND_COORDINATOR not in waiting:
            return [(RequestKind.FIND_COORDINATOR, member.back_off.until_ms)]
        return []
    found = []
    if RequestKind.LEAVE_GROUP not in waiting:  # before a join with the next id
        if state is MemberState.LEAVING:
            found.append((RequestKind.LEAVE_GROUP, 0))
        elif member.beat.left_behind and state in _LEAVING_BEHIND:
            found.append((RequestKind.LEAVE_GROUP, _after_back_off(member, 0)))
    # A join without topics would convert a classic group for nothing.
    is_member = member.generation != NO_GENERATION or bool(member.next_join.topics)
    if state in AT_WORK and is_member and RequestKind.CONSUMER_BEAT not in waiting:
        found.append((RequestKind.CONSUMER_BEAT, _beat_at_ms(member)))
    if RequestKind.OFFSET_COMMIT not in waiting and _may_commit(member):
        found.append((RequestKind.OFFSET_COMMIT, member.commits.back_off.until_ms))
    return found


def next_deadline_ms(member: Member) -> int | None:
    """Return when the host must give `Woken` at the latest, in ms; None for never."""
    times = [at_ms for _, at_ms in wanted(member)]
    if member.owned:
        times.append(member.lost_at_ms)
    own = (member.rings.ring_at_ms, member.beat.rings_at_ms, member.commits.due_at_ms)
    times += [at_ms for at_ms in own if at_ms is not None]
    return min(times, default=None)


def send_what_is_due(turn: Turn) -> None:
    """Send every wanted request whose time has come."""
    for kind, at_ms in wanted(turn.member):
        if at_ms <= turn.now_ms:
            _begin_request(turn, kind)


def _beat_at_ms(member: Member) -> int:
    at_ms = 0
    if member.generation != NO_GENERATION:
        at_ms = min((member.heartbeat_at_ms, *member.beat.looks[:1]))
    return _after_back_off(member, at_ms)


def _after_back_off(member: Member, at_ms: int) -> int:
    return max(at_ms, member.back_off.until_ms) if member.back_off.attempts else at_ms


def _may_commit(member: Member) -> bool:
    return bool(member.commits.queue) and member.state in _OWNING


def _begin_request(turn: Turn, kind: RequestKind) -> None:
    request = _request(turn, kind)
    if request is None:
        return
    member = turn.member
    coordinator = member.coordinator
    joins_in_order = kind in {RequestKind.CONSUMER_BEAT, RequestKind.LEAVE_GROUP}
    request_id = member.next_request_id
    outstanding = Outstanding(
        request_id=request_id,
        sent_at_ms=turn.now_ms,
        node_id=-1 if coordinator is None else coordinator.node_id,
        generation=member.generation,
    )
    turn.set(next_request_id=request_id + 1, outstanding={**member.outstanding, kind: outstanding})
    turn.emit(
        Send(
            request_id=request_id,
            lane=Lane.JOIN if joins_in_order else Lane.COMMIT,
            coordinator=coordinator,
            request=request,
            timeout_ms=_timeout_ms(member, kind),
        )
    )


def _timeout_ms(member: Member, kind: RequestKind) -> int:
    config = member.config
    if kind is RequestKind.CONSUMER_BEAT:
        # A heartbeat must be answered while there is time for two more tries.
        return min(config.request_timeout_ms, max(1, config.session_timeout_ms // 3))
    if kind is RequestKind.OFFSET_COMMIT:
        # A frozen coordinator may serve a timed-out commit after newer commits. So the next commit
        # waits until the lease, and with it the membership, has ended.
        fenced_ms = config.session_timeout_ms + member.beat.interval_ms
        return max(config.request_timeout_ms, fenced_ms)
    return config.request_timeout_ms


def _request(turn: Turn, kind: RequestKind) -> GroupRequest | None:
    match kind:
        case RequestKind.FIND_COORDINATOR:
            return FindCoordinatorRequest(group_id=turn.member.config.group_id)
        case RequestKind.OFFSET_COMMIT:
            return _commit_request(turn)
        case RequestKind.LEAVE_GROUP:
            return _leave_request(turn)
        case _:
            return _beat_request(turn)


def _beat_request(turn: Turn) -> ConsumerBeatRequest:
    if turn.member.generation == NO_GENERATION:
        _prepare_join(turn)
    member, beat, config = turn.member, turn.member.beat, turn.member.config
    content = Told(topics=member.next_join.topics, owned=member.owned)
    is_full = beat.told != content
    if beat.is_rung:
        count_heeded(turn)
    set_beat(
        turn,
        sending=content,
        looks=tuple(at_ms for at_ms in beat.looks if at_ms > turn.now_ms),
        was_rung=beat.is_rung,
        is_rung=False,
        was_own=beat.is_own,
        is_own=False,
        acknowledged=beat.acknowledges,
        acknowledges=False,
    )
    # A ring reaches all members in the same moment. With the same pause after it, all later
    # heartbeats of the group would reach the broker in the same moment, too.
    is_early = beat.is_rung or member.heartbeat_at_ms > turn.now_ms
    early_ms = own_ms(member, beat.interval_ms // 2) if is_early else 0
    turn.set(heartbeat_at_ms=turn.now_ms + beat.interval_ms - early_ms)
    joins = member.generation == NO_GENERATION
    return ConsumerBeatRequest(
        group_id=config.group_id,
        member_id=member.member_id,
        epoch=JOINS if joins else member.generation,
        group_instance_id=config.instance_id,
        rack=config.rack if joins else None,
        topics=content.topics if is_full else None,
        owned=_by_topic_id(member) if is_full else None,
        rebalance_timeout_ms=config.rebalance_timeout_ms if is_full else None,
        assignor=config.remote_assignor if is_full else None,
    )


def _prepare_join(turn: Turn) -> None:
    """Forget what an earlier membership told, and take an id.

    The id comes from the member and not from the coordinator (KIP-1082): after a lost answer the
    same id joins again. A fenced member takes a new one, so an old commit that arrives late cannot
    pass as one of the new membership.
    """
    member = turn.member
    turn.set(beat=member.beat.fresh())
    if not member.member_id:
        number = member.beat.memberships
        own_id = member.config.own_id
        turn.set(member_id=f"{own_id}-{number}" if number else own_id)
        set_beat(turn, memberships=number + 1)


def _by_topic_id(member: Member) -> TopicPartitions:
    ids = member.beat.ids
    return tuple(
        sorted((ids[name], tuple(indices.tolist())) for name, indices in member.owned.items())
    )


def _leave_request(turn: Turn) -> ConsumerBeatRequest:
    beat, config = turn.member.beat, turn.member.config
    keeps_place = config.instance_id is not None and not beat.leaves_for_good
    return ConsumerBeatRequest(
        group_id=config.group_id,
        member_id=beat.left_behind[0],
        epoch=LEAVES_FOR_NOW if keeps_place else LEAVES,
        group_instance_id=config.instance_id,
    )


def _commit_request(turn: Turn) -> OffsetCommitRequest | None:
    member, config = turn.member, turn.member.config
    commits, offsets, finished = take_batch(member.commits, member.owned)
    turn.set(commits=commits)
    turn.finish_commits(finished)
    if not offsets:
        return None
    return OffsetCommitRequest(
        group_id=config.group_id,
        generation=member.generation,
        member_id=member.member_id,
        group_instance_id=config.instance_id,
        offsets=offsets,
    )
