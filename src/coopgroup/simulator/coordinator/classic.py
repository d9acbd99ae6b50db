"""Requests and rounds of a classic group, as `GroupMetadataManager` of Kafka 4.x processes them.

Version notes: JoinGroup as v9, SyncGroup as v5 (protocol type and name are compared with the
group's), Heartbeat as v4, LeaveGroup as v5 with one member per request, OffsetCommit as v9. A
dynamic member needs an id before it may join (KIP-394). A static leader that returned must skip
the assignment (KIP-814). A reason is ignored (KIP-800).
"""

from __future__ import annotations

from typing import Final

import attrs

from coopgroup.core.member import ErrorCode
from coopgroup.core.model.group_api import (
    HeartbeatAnswer,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupAnswer,
    LeaveGroupRequest,
    OffsetCommitRequest,
    SyncGroupAnswer,
    SyncGroupRequest,
)
from coopgroup.simulator.coordinator.answers import join_refusal, joined, refusal, sync_refusal
from coopgroup.simulator.coordinator.state import (
    NEW_MEMBER_JOIN_TIMEOUT_MS,
    ClassicGroup,
    GroupState,
    Seat,
    Token,
)


def join_group(
    group: ClassicGroup, token: Token, request: JoinGroupRequest, client_id: str
) -> bool:
    """Process a join; return whether the log must be written for a static member's new id."""
    code = _session_code(group, request)
    if not code and not request.member_id:
        group.exists = True  # a first join creates the group, even if it is refused
    code = code or _join_code(group, request)
    if code:
        is_failure = code == ErrorCode.UNKNOWN_SERVER_ERROR
        group.answer(token, join_refusal(code, "" if is_failure else request.member_id))
        return False
    if not request.member_id:
        return _join_unknown(group, token, request, client_id)
    if request.member_id in group.pending:
        del group.pending[request.member_id]
        _add(group, token, request, request.member_id)
        return False
    _join_known(group, token, request)
    return False


def _session_code(group: ClassicGroup, request: JoinGroupRequest) -> int:
    settings = group.settings
    session_ms = request.session_timeout_ms
    if settings.session_timeout_min_ms <= session_ms <= settings.session_timeout_max_ms:
        return 0
    return ErrorCode.INVALID_SESSION_TIMEOUT


def _join_code(group: ClassicGroup, request: JoinGroupRequest) -> int:
    if request.member_id and not group.exists:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if not group.supports(request.protocol_type, request.protocols):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if not request.member_id:
        return 0
    if request.member_id in group.pending:
        # Static members never get an id in advance; a broker fails on one that has one.
        is_static = request.group_instance_id is not None
        return ErrorCode.UNKNOWN_SERVER_ERROR if is_static else 0
    return group.identity_code(request.member_id, request.group_instance_id)


def _join_unknown(
    group: ClassicGroup, token: Token, request: JoinGroupRequest, client_id: str
) -> bool:
    instance_id = request.group_instance_id
    member_id = group.new_member_id(client_id if instance_id is None else instance_id)
    if instance_id is None:
        group.expect(member_id, request.session_timeout_ms)
        group.answer(token, join_refusal(ErrorCode.MEMBER_ID_REQUIRED, member_id))
        return False
    before = group.static_ids.get(instance_id)
    if before is None:
        _add(group, token, request, member_id)
        return False
    return _replace(group, token, request, group.seats[before], member_id)


def _add(group: ClassicGroup, token: Token, request: JoinGroupRequest, member_id: str) -> None:
    if group.state is GroupState.EMPTY:
        group.protocol_type = request.protocol_type
    if group.state is GroupState.PREPARING and group.is_initial:
        group.newcomer = True
    group.seat(
        Seat(
            member_id=member_id,
            instance_id=request.group_instance_id,
            session_ms=request.session_timeout_ms,
            rebalance_ms=request.rebalance_timeout_ms,
            protocols=request.protocols,
            expires_at_ms=group.now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS,
            join=token,
        )
    )
    prepare_or_complete(group)


def _join_known(group: ClassicGroup, token: Token, request: JoinGroupRequest) -> None:
    seat = group.seats[request.member_id]
    changed = seat.protocols != request.protocols
    leads = group.state is GroupState.STABLE and seat.member_id == group.leader_id
    if group.state is GroupState.PREPARING or changed or leads:
        _update(group, token, request, seat)
        prepare_or_complete(group)
    else:
        # The first answer may have been lost: send this generation again.
        group.answer(token, joined(group, seat))


def _update(group: ClassicGroup, token: Token, request: JoinGroupRequest, seat: Seat) -> None:
    group.change_protocols(seat, request.protocols)
    seat.session_ms = request.session_timeout_ms
    seat.rebalance_ms = request.rebalance_timeout_ms
    group.wait_in_join(seat, token)


def _replace(
    group: ClassicGroup, token: Token, request: JoinGroupRequest, before: Seat, member_id: str
) -> bool:
    """Replace a returned static member (KIP-345)."""
    led = group.leader_id == before.member_id
    waiting = group.take_join(before)
    if waiting is not None:
        refused = join_refusal(ErrorCode.FENCED_INSTANCE_ID, before.member_id)
        group.answer(waiting, refused)
    if before.sync is not None:
        group.answer(before.sync, sync_refusal(ErrorCode.FENCED_INSTANCE_ID))
    group.unseat(before.member_id)
    seat = attrs.evolve(before, member_id=member_id, sync=None, is_new=False)
    seat.expires_at_ms = group.now_ms + seat.session_ms
    group.seat(seat)
    if led:
        group.leader_id = member_id
    _update(group, token, request, seat)
    if group.state is GroupState.STABLE and group.select_protocol() == group.protocol_name:
        group.take_join(seat)
        group.answer(token, joined(group, seat, skip_assignment=led))
        return True
    if group.state is GroupState.COMPLETING:
        # The leader may know only the old id, and the new one would get no assignment.
        prepare_round(group)
    else:
        prepare_or_complete(group)
    return False


def sync_group(group: ClassicGroup, token: Token, request: SyncGroupRequest) -> bool:
    """Process a sync; return whether the log must be written, because it has the assignments."""
    code = _sync_code(group, request)
    if code:
        group.answer(token, sync_refusal(code))
        return False
    seat = group.seats[request.member_id]
    group.unsynced.pop(seat.member_id, None)
    if not group.unsynced:
        group.sync_ends_at_ms = None
    if group.state is GroupState.STABLE:
        # This does not renew the session: only a sync that waited does.
        group.answer(token, SyncGroupAnswer(error_code=0, assignment=seat.assignment))
        return False
    seat.sync = token
    if seat.member_id != group.leader_id:
        return False
    _spread(group, dict(request.assignments))
    return True


def _sync_code(group: ClassicGroup, request: SyncGroupRequest) -> int:
    code = group.fence_code(request.member_id, request.group_instance_id, request.generation)
    if code:
        return code
    if request.protocol_type != group.protocol_type or request.protocol_name != group.protocol_name:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is GroupState.PREPARING:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return 0


def _spread(group: ClassicGroup, given: dict[str, bytes]) -> None:
    group.state = GroupState.STABLE
    group.led_by[group.generation] = group.leader_id
    for seat in group.seats.values():
        seat.assignment = given.get(seat.member_id, b"")
        if seat.sync is not None:
            answer = SyncGroupAnswer(error_code=0, assignment=seat.assignment)
            group.answer(seat.sync, answer)
            seat.sync = None
            group.touch(seat)


_ALIVE: Final = HeartbeatAnswer(error_code=0)
_REJOIN: Final = HeartbeatAnswer(error_code=int(ErrorCode.REBALANCE_IN_PROGRESS))


def heartbeat(group: ClassicGroup, token: Token, request: HeartbeatRequest) -> None:
    """Renew the member's session, and report whether a round is being prepared."""
    code = group.fence_code(request.member_id, request.group_instance_id, request.generation)
    if code:
        group.answer(token, HeartbeatAnswer(error_code=int(code)))
        return
    group.touch(group.seats[request.member_id])
    group.answer(token, _REJOIN if group.state is GroupState.PREPARING else _ALIVE)


def leave_group(group: ClassicGroup, token: Token, request: LeaveGroupRequest) -> None:
    """Remove a member, or release an unused id."""
    code = _drop(group, request.member_id, request.group_instance_id)
    group.answer(token, LeaveGroupAnswer(error_code=int(code)))
    if not code and group.state is not GroupState.EMPTY:
        prepare_or_complete(group)


def _drop(group: ClassicGroup, member_id: str, instance_id: str | None) -> int:
    if not member_id:
        # An administrator removes a static member by its instance id alone (KIP-345).
        known = group.static_ids.get(instance_id or "")
        if known is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        remove_member(group, known)
        return 0
    if group.pending.pop(member_id, None) is not None:
        return 0
    code = group.identity_code(member_id, instance_id)
    if not code:
        remove_member(group, member_id)
    return code


def offset_commit(group: ClassicGroup, token: Token, request: OffsetCommitRequest) -> bool:
    """Return whether a commit is valid; the host of the group stores the offsets."""
    code = _commit_code(group, request)
    group.answer(token, refusal(request, int(code)))
    if code:
        return False
    group.exists = True
    seat = group.seats.get(request.member_id)
    if seat is not None:  # in Stable and PreparingRebalance a commit renews the session
        group.touch(seat)
    return True


def _commit_code(group: ClassicGroup, request: OffsetCommitRequest) -> int:
    if request.generation < 0 and group.state is GroupState.EMPTY:
        # A consumer with manual assignment, or a tool: the broker does not check its identity.
        return 0
    if not group.exists:
        return ErrorCode.GROUP_ID_NOT_FOUND  # before v9: ILLEGAL_GENERATION
    member_id, instance_id = request.member_id, request.group_instance_id
    code = group.fence_code(member_id, instance_id, request.generation)
    if not code and group.state is GroupState.COMPLETING:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return code


def prepare_or_complete(group: ClassicGroup) -> None:
    """Begin a round, or complete the present one if all members have joined."""
    if group.state is not GroupState.PREPARING:
        prepare_round(group)
    elif not group.is_initial and group.has_all_joined:
        complete_round(group)


def prepare_round(group: ClassicGroup) -> None:
    """Begin a round: members that wait in a sync must join again."""
    if group.state is GroupState.COMPLETING:
        for seat in group.seats.values():
            seat.assignment = b""
            if seat.sync is not None:
                group.answer(seat.sync, sync_refusal(ErrorCode.REBALANCE_IN_PROGRESS))
                seat.sync = None
                group.touch(seat)
    group.unsynced = {}
    group.sync_ends_at_ms = None
    group.is_initial = group.state is GroupState.EMPTY
    group.state = GroupState.PREPARING
    if group.is_initial:
        delay_ms = group.settings.initial_rebalance_delay_ms
        group.newcomer = False
        group.initial_left_ms = max(group.rebalance_ms - delay_ms, 0)
        group.round_ends_at_ms = group.now_ms + delay_ms
    elif group.has_all_joined:
        complete_round(group)
    else:
        group.round_ends_at_ms = group.now_ms + group.rebalance_ms


def end_round_in_time(group: ClassicGroup) -> None:
    """End the time to join; the first round of a group is extended while new members come."""
    if group.is_initial and group.newcomer and group.initial_left_ms:
        delay_ms = min(group.settings.initial_rebalance_delay_ms, group.initial_left_ms)
        group.newcomer = False
        group.initial_left_ms = max(group.initial_left_ms - delay_ms, 0)
        group.round_ends_at_ms = group.now_ms + delay_ms
        return
    complete_round(group)


def complete_round(group: ClassicGroup) -> None:
    """End the join phase: remove members that have not rejoined, except static ones."""
    group.round_ends_at_ms = None
    for seat in tuple(group.seats.values()):
        if seat.join is None and seat.instance_id is None:
            group.unseat(seat.member_id)
    if group.seats and not group.joins:
        group.round_ends_at_ms = group.now_ms + group.rebalance_ms
        return
    group.generation += 1
    group.is_initial = False
    group.unsynced = {}
    if not group.seats:
        group.state, group.leader_id, group.protocol_name = GroupState.EMPTY, "", ""
        return
    if group.seats[group.leader_id].join is None:
        group.leader_id = next(s.member_id for s in group.seats.values() if s.join is not None)
    group.protocol_name = group.select_protocol()
    group.state = GroupState.COMPLETING
    group.sync_ends_at_ms = group.now_ms + group.rebalance_ms
    for seat in group.seats.values():
        token = group.take_join(seat)
        if token is not None:
            group.answer(token, joined(group, seat))
        seat.is_new = False
        group.touch(seat)
        group.unsynced[seat.member_id] = None


def drop_unsynced(group: ClassicGroup) -> None:
    """End the time to sync: remove members that have not synced."""
    group.sync_ends_at_ms = None
    for member_id in tuple(group.unsynced):
        group.unseat(member_id)
    prepare_round(group)


def expire(group: ClassicGroup, member_id: str) -> None:
    """End a session, or the time to use a given id."""
    if group.pending.pop(member_id, None) is None:
        remove_member(group, member_id)
        if group.state is not GroupState.PREPARING:
            prepare_round(group)
            return
    if group.state is GroupState.PREPARING and group.has_all_joined:
        complete_round(group)


def remove_member(group: ClassicGroup, member_id: str) -> None:
    """Remove a member. Its join is refused; a waiting sync is never answered, as on a broker."""
    token = group.take_join(group.seats[member_id])
    if token is not None:
        group.answer(token, join_refusal(ErrorCode.UNKNOWN_MEMBER_ID, ""))
    group.unseat(member_id)
