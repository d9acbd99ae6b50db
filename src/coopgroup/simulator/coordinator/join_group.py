"""JoinGroup (`classicGroupJoin`).

Version notes: as v9. A dynamic member needs an id before it may join (KIP-394, v4). A static leader
that returned must skip the assignment (KIP-814, v9). A reason is ignored (KIP-800, v8).
"""

from __future__ import annotations

import attrs

from coopgroup.core.member import ErrorCode
from coopgroup.core.model.group_api import JoinGroupRequest
from coopgroup.simulator.coordinator.answers import join_refusal, joined, sync_refusal
from coopgroup.simulator.coordinator.rounds import prepare_or_complete, prepare_round
from coopgroup.simulator.coordinator.state import (
    NEW_MEMBER_JOIN_TIMEOUT_MS,
    ClassicGroup,
    GroupState,
    Seat,
    Token,
)

__all__ = ["join_group"]


def join_group(
    group: ClassicGroup, token: Token, request: JoinGroupRequest, client_id: str
) -> bool:
    """Process a join; return whether the log must be written for a static member's new id."""
    code = _session_code(group, request)
    if not code and not request.member_id:
        group.exists = True  # a first join creates the group, even if it is refused
    code = code or _refused_code(group, request)
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


def _refused_code(group: ClassicGroup, request: JoinGroupRequest) -> int:
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
