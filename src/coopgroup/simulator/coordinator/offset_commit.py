"""OffsetCommit of a group member (`commitOffset`, `validateOffsetCommit`). Version notes: as v9."""

from __future__ import annotations

from coopgroup.core.member import ErrorCode
from coopgroup.core.model.group_api import OffsetCommitRequest
from coopgroup.simulator.coordinator.answers import refusal
from coopgroup.simulator.coordinator.state import ClassicGroup, GroupState, Token

__all__ = ["offset_commit"]


def offset_commit(group: ClassicGroup, token: Token, request: OffsetCommitRequest) -> bool:
    """Return whether a commit is valid; the host of the group stores the offsets."""
    code = _refused_code(group, request)
    group.answer(token, refusal(request, int(code)))
    if code:
        return False
    group.exists = True
    seat = group.seats.get(request.member_id)
    if seat is not None:  # in Stable and PreparingRebalance a commit renews the session
        group.touch(seat)
    return True


def _refused_code(group: ClassicGroup, request: OffsetCommitRequest) -> int:
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
