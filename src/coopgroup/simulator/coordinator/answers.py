"""Answers of the group coordinator that several requests share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from coopgroup.core.member import ErrorCode
from coopgroup.core.model.group_api import (
    Answer,
    ConsumerBeatAnswer,
    ConsumerBeatRequest,
    Coordinator,
    FindCoordinatorAnswer,
    FindCoordinatorRequest,
    GroupRequest,
    HeartbeatAnswer,
    HeartbeatRequest,
    JoinedMember,
    JoinGroupAnswer,
    JoinGroupRequest,
    LeaveGroupAnswer,
    LeaveGroupRequest,
    OffsetCommitAnswer,
    OffsetCommitRequest,
    SyncGroupAnswer,
    SyncGroupRequest,
)
from coopgroup.simulator.coordinator.state import ClassicGroup, Seat

_ONLY_CODES: Final[dict[type, Callable[..., Answer]]] = {
    HeartbeatRequest: HeartbeatAnswer,
    LeaveGroupRequest: LeaveGroupAnswer,
    ConsumerBeatRequest: ConsumerBeatAnswer,
}


def refusal(request: GroupRequest, code: int) -> Answer:
    """Return the answer to a request that is refused with a code."""
    match request:
        case HeartbeatRequest() | LeaveGroupRequest() | ConsumerBeatRequest():
            return _ONLY_CODES[type(request)](error_code=code)
        case JoinGroupRequest():
            return join_refusal(code, request.member_id)
        case SyncGroupRequest():
            return sync_refusal(code)
        case FindCoordinatorRequest():
            return FindCoordinatorAnswer(error_code=code, error_message="", coordinator=None)
        case OffsetCommitRequest():
            codes = sorted([(row[0], row[1], code) for row in request.offsets])
            return OffsetCommitAnswer(codes=tuple(codes))


def join_refusal(code: int, member_id: str) -> JoinGroupAnswer:
    """Return a refused join; `member_id` is the id for the next try."""
    return JoinGroupAnswer(
        error_code=code,
        generation=-1,
        protocol_name="",
        leader_id="",
        member_id=member_id,
        members=(),
        skip_assignment=False,
    )


def sync_refusal(code: int) -> SyncGroupAnswer:
    """Return a refused sync."""
    return SyncGroupAnswer(error_code=code, assignment=b"")


def joined(group: ClassicGroup, seat: Seat, *, skip_assignment: bool = False) -> JoinGroupAnswer:
    """Return a successful join; the leader's answer has all members."""
    members: tuple[JoinedMember, ...] = ()
    if seat.member_id == group.leader_id:
        members = tuple(
            JoinedMember(
                member_id=one.member_id,
                group_instance_id=one.instance_id,
                metadata=one.metadata(group.protocol_name),
            )
            for one in group.seats.values()
        )
    return JoinGroupAnswer(
        error_code=0,
        generation=group.generation,
        protocol_name=group.protocol_name,
        leader_id=group.leader_id,
        member_id=seat.member_id,
        members=members,
        skip_assignment=skip_assignment,
    )


def find_coordinator(node_id: int, *, is_up: bool) -> FindCoordinatorAnswer:
    """Answer FindCoordinator, as any broker does; as v6 for one group."""
    if not is_up:
        return FindCoordinatorAnswer(
            error_code=int(ErrorCode.COORDINATOR_NOT_AVAILABLE), error_message="", coordinator=None
        )
    coordinator = Coordinator(node_id=node_id, host=f"broker-{node_id}", port=9092)
    return FindCoordinatorAnswer(error_code=0, error_message="", coordinator=coordinator)
