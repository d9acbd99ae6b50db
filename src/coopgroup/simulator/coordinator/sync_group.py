"""SyncGroup (`classicGroupSync`).

Version notes: as v5: protocol type and name are compared with the group's.
"""

from __future__ import annotations

from coopgroup.core.member import ErrorCode
from coopgroup.core.model.group_api import SyncGroupAnswer, SyncGroupRequest
from coopgroup.simulator.coordinator.answers import sync_refusal
from coopgroup.simulator.coordinator.state import ClassicGroup, GroupState, Token

__all__ = ["sync_group"]


def sync_group(group: ClassicGroup, token: Token, request: SyncGroupRequest) -> bool:
    """Process a sync; return whether the log must be written, because it has the assignments."""
    code = _refused_code(group, request)
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


def _refused_code(group: ClassicGroup, request: SyncGroupRequest) -> int:
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
