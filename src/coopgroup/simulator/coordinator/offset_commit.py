"""OffsetCommit of a group member (`commitOffset`, `validateOffsetCommit`). Version notes: as v9."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coopgroup.member import ErrorCode
from coopgroup.simulator.coordinator.answers import refusal
from coopgroup.simulator.coordinator.state import GroupState

if TYPE_CHECKING:
    from coopgroup.model.group_api import OffsetCommitRequest
    from coopgroup.simulator.coordinator.state import ClassicGroup, Token

__all__ = ["offset_commit"]

_NO_GENERATION: Final = -1


def offset_commit(group: ClassicGroup, token: Token, request: OffsetCommitRequest) -> bool:
    """Check the fence of a commit.

    Returns:
        Whether it is accepted; the host of the group keeps the offsets.
    """
    code = _refused_code(group, request)
    group.answer(token, refusal(request, int(code)))
    if code:
        return False
    seat = group.seats.get(request.member_id)
    if seat is not None:  # in Stable and PreparingRebalance a commit keeps the session alive
        group.touch(seat)
    return True


def _refused_code(group: ClassicGroup, request: OffsetCommitRequest) -> int:
    anonymous = not request.member_id and request.group_instance_id is None
    if request.generation == _NO_GENERATION and anonymous:
        # A consumer that assigns itself its partitions; the group must not be in use by members.
        empty = group.state is GroupState.EMPTY
        return 0 if empty else ErrorCode.UNKNOWN_MEMBER_ID
    if not group.exists:
        return ErrorCode.ILLEGAL_GENERATION
    member_id, instance_id = request.member_id, request.group_instance_id
    code = group.fence_code(member_id, instance_id, request.generation)
    if not code and group.state is GroupState.COMPLETING:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return code
