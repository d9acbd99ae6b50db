"""LeaveGroup (`classicGroupLeave`) of one member.

Version notes: as v5, with one member per request.
"""

from __future__ import annotations

from coopgroup.core.member import ErrorCode
from coopgroup.core.model.group_api import LeaveGroupAnswer, LeaveGroupRequest
from coopgroup.simulator.coordinator.rounds import prepare_or_complete, remove_member
from coopgroup.simulator.coordinator.state import ClassicGroup, GroupState, Token

__all__ = ["leave_group"]


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
