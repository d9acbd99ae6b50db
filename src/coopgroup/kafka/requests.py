"""Requests to the group coordinator and their answers, as plain values.

Rules of this file: it is the only one that builds or reads kafka-python's messages, and none of
them leaves it. A request says what to ask, never in which version: the connection negotiates
that, and a field that the negotiated version lacks is left out where that does no harm (a reason)
and refused where it would (a group instance id, without which a static member would silently
become a dynamic one).

The answers carry error codes as the broker sent them. What a code means to a member is decided by
the table of the member's state machine.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any, Final, TypeAlias, assert_never

from attrs import frozen
from kafka.protocol.consumer import group as wire
from kafka.protocol.metadata import find_coordinator as wire_coordinator

__all__ = [
    "Answer",
    "Coordinator",
    "FindCoordinatorAnswer",
    "FindCoordinatorRequest",
    "GroupRequest",
    "HeartbeatAnswer",
    "HeartbeatRequest",
    "JoinGroupAnswer",
    "JoinGroupRequest",
    "JoinedMember",
    "LeaveGroupAnswer",
    "LeaveGroupRequest",
    "OffsetCommitAnswer",
    "OffsetCommitRequest",
    "SyncGroupAnswer",
    "SyncGroupRequest",
    "build_message",
    "read_answer",
]

GROUP_KEY_TYPE: Final = 0
# OffsetCommit v10 names topics by id only (KIP-848 clean-up); a classic member knows names.
OFFSET_COMMIT_VERSION_MAX: Final = 9
# First versions with a group instance id (KIP-345).
STATIC_JOIN_VERSION: Final = 5
STATIC_SYNC_VERSION: Final = 3
STATIC_HEARTBEAT_VERSION: Final = 3
STATIC_LEAVE_VERSION: Final = 3
STATIC_COMMIT_VERSION: Final = 7
# kafka-python's messages have no types of their own.
WireMessage: TypeAlias = Any


@frozen(kw_only=True)
class Coordinator:
    """Where the group coordinator of a group lives.

    Attributes:
        node_id: id of the broker.
        host: name or address that the broker advertises to this listener.
        port: its TCP port.
    """

    node_id: int
    host: str
    port: int


@frozen(kw_only=True)
class FindCoordinatorRequest:
    """Which broker coordinates a group? Any broker can answer."""

    group_id: str


@frozen(kw_only=True)
class JoinGroupRequest:
    """Join or rejoin a group; the answer comes when the whole group has joined.

    Attributes:
        group_id: the group.
        member_id: id given by the coordinator, empty on the first join (which KIP-394 answers
            with 79 and the id to use).
        group_instance_id: id of a static member (KIP-345), or None.
        session_timeout_ms: the coordinator drops a member that is silent for so long.
        rebalance_timeout_ms: how long the coordinator waits for members to rejoin.
        protocol_type: "consumer" for topic partitions.
        protocols: (protocol name, subscription bytes), most wanted first.
        reason: why the member joins, for the broker's log (KIP-800); sent from v8 on.
    """

    group_id: str
    member_id: str
    group_instance_id: str | None
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    reason: str


@frozen(kw_only=True)
class SyncGroupRequest:
    """Hand in (leader) or ask for (all) the assignment of a generation.

    Attributes:
        group_id: the group.
        generation: the generation of the join that went before.
        member_id: the member's id.
        group_instance_id: id of a static member, or None.
        protocol_type: as in the join.
        protocol_name: the protocol that the coordinator chose.
        assignments: (member id, assignment bytes) from the leader, empty from all others.
    """

    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str
    protocol_name: str
    assignments: tuple[tuple[str, bytes], ...]


@frozen(kw_only=True)
class HeartbeatRequest:
    """Say that the member lives, and learn whether the group is rebalancing (27)."""

    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None


@frozen(kw_only=True)
class LeaveGroupRequest:
    """Leave the group at once instead of at the end of the session."""

    group_id: str
    member_id: str
    group_instance_id: str | None
    reason: str


@frozen(kw_only=True)
class OffsetCommitRequest:
    """Commit offsets under the fence of a generation.

    Attributes:
        group_id: the group.
        generation: the member's generation.
        member_id: the member's id.
        group_instance_id: id of a static member, or None.
        offsets: (topic, partition, offset, leader epoch or -1, metadata); the offset is that of
            the next record to read.
    """

    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None
    offsets: tuple[tuple[str, int, int, int, str], ...]


@frozen(kw_only=True)
class FindCoordinatorAnswer:
    """Answer to a look-up.

    Attributes:
        error_code: 0, or why there is no coordinator now.
        error_message: the broker's words, empty if it has none.
        coordinator: None unless the error code is 0.
    """

    error_code: int
    error_message: str
    coordinator: Coordinator | None


@frozen(kw_only=True)
class JoinedMember:
    """One member as the leader sees it: its subscription is still bytes."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@frozen(kw_only=True)
class JoinGroupAnswer:
    """Answer to a join.

    Attributes:
        error_code: 0, or why the member is not in.
        generation: the new generation, -1 with an error.
        protocol_name: the protocol that all members have in common, empty with an error.
        leader_id: member id of the leader.
        member_id: the id to use from now on; with error 79 the id for the second join.
        members: all members, given to the leader only.
        skip_assignment: the leader must not assign: the group keeps what the coordinator stores
            (KIP-814, v9: a static leader came back). False from older brokers.
    """

    error_code: int
    generation: int
    protocol_name: str
    leader_id: str
    member_id: str
    members: tuple[JoinedMember, ...]
    skip_assignment: bool


@frozen(kw_only=True)
class SyncGroupAnswer:
    """Answer to a sync; the assignment is empty with an error."""

    error_code: int
    assignment: bytes


@frozen(kw_only=True)
class HeartbeatAnswer:
    """Answer to a heartbeat."""

    error_code: int


@frozen(kw_only=True)
class LeaveGroupAnswer:
    """Answer to a leave: the code of the request, or else the member's own."""

    error_code: int


@frozen(kw_only=True)
class OffsetCommitAnswer:
    """Answer to a commit: (topic, partition, error code) in ascending order."""

    codes: tuple[tuple[str, int, int], ...]


GroupRequest: TypeAlias = (
    FindCoordinatorRequest
    | JoinGroupRequest
    | SyncGroupRequest
    | HeartbeatRequest
    | LeaveGroupRequest
    | OffsetCommitRequest
)
Answer: TypeAlias = (
    FindCoordinatorAnswer
    | JoinGroupAnswer
    | SyncGroupAnswer
    | HeartbeatAnswer
    | LeaveGroupAnswer
    | OffsetCommitAnswer
)


def build_message(request: GroupRequest) -> WireMessage:
    """Return kafka-python's message for a request, without a version.

    Its bounds of the version are set, so that negotiation fails rather than drops a group
    instance id (kafka-python leaves out fields that a version lacks).
    """
    match request:
        case FindCoordinatorRequest():
            return wire_coordinator.FindCoordinatorRequest(
                key=request.group_id,
                key_type=GROUP_KEY_TYPE,
                coordinator_keys=[request.group_id],
            )
        case JoinGroupRequest():
            return _build_join(request)
        case SyncGroupRequest():
            return _build_sync(request)
        case HeartbeatRequest():
            return wire.HeartbeatRequest(
                group_id=request.group_id,
                generation_id=request.generation,
                member_id=request.member_id,
                group_instance_id=request.group_instance_id,
                min_version=_first(request, STATIC_HEARTBEAT_VERSION),
            )
        case LeaveGroupRequest():
            return _build_leave(request)
        case OffsetCommitRequest():
            return _build_commit(request)
        case _:
            assert_never(request)


def read_answer(request: GroupRequest, response: WireMessage) -> Answer:
    """Return the answer that kafka-python's response to a request holds."""
    match request:
        case FindCoordinatorRequest():
            return _read_coordinator(response)
        case JoinGroupRequest():
            return _read_join(response)
        case SyncGroupRequest():
            return SyncGroupAnswer(
                error_code=response.error_code, assignment=bytes(response.assignment or b"")
            )
        case HeartbeatRequest():
            return HeartbeatAnswer(error_code=response.error_code)
        case LeaveGroupRequest():
            codes = [response.error_code, *(member.error_code for member in response.members)]
            return LeaveGroupAnswer(error_code=next(filter(None, codes), 0))
        case OffsetCommitRequest():
            return OffsetCommitAnswer(
                codes=tuple(
                    sorted(
                        (topic.name, partition.partition_index, partition.error_code)
                        for topic in response.topics
                        for partition in topic.partitions
                    )
                )
            )
        case _:
            assert_never(request)


def _first(
    request: JoinGroupRequest
    | SyncGroupRequest
    | HeartbeatRequest
    | LeaveGroupRequest
    | OffsetCommitRequest,
    static_version: int,
) -> int:
    """Return the first version that can carry the request."""
    return 0 if request.group_instance_id is None else static_version


def _build_join(request: JoinGroupRequest) -> WireMessage:
    protocol = wire.JoinGroupRequest.JoinGroupRequestProtocol
    return wire.JoinGroupRequest(
        group_id=request.group_id,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocols=[protocol(name=name, metadata=metadata) for name, metadata in request.protocols],
        reason=request.reason or None,
        min_version=_first(request, STATIC_JOIN_VERSION),
    )


def _build_sync(request: SyncGroupRequest) -> WireMessage:
    assignment = wire.SyncGroupRequest.SyncGroupRequestAssignment
    return wire.SyncGroupRequest(
        group_id=request.group_id,
        generation_id=request.generation,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments=[
            assignment(member_id=member_id, assignment=encoded)
            for member_id, encoded in request.assignments
        ],
        min_version=_first(request, STATIC_SYNC_VERSION),
    )


def _build_leave(request: LeaveGroupRequest) -> WireMessage:
    member = wire.LeaveGroupRequest.MemberIdentity(
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        reason=request.reason or None,
    )
    return wire.LeaveGroupRequest(
        group_id=request.group_id,
        member_id=request.member_id,  # v0 to v2
        members=[member],  # from v3 on
        min_version=_first(request, STATIC_LEAVE_VERSION),
    )


def _build_commit(request: OffsetCommitRequest) -> WireMessage:
    topic = wire.OffsetCommitRequest.OffsetCommitRequestTopic
    partition = topic.OffsetCommitRequestPartition
    return wire.OffsetCommitRequest(
        group_id=request.group_id,
        generation_id_or_member_epoch=request.generation,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        topics=[
            topic(
                name=name,
                partitions=[
                    partition(
                        partition_index=index,
                        committed_offset=offset,
                        committed_leader_epoch=leader_epoch,
                        committed_metadata=metadata,
                    )
                    for _, index, offset, leader_epoch, metadata in offsets
                ],
            )
            for name, offsets in groupby(sorted(request.offsets), key=lambda offset: offset[0])
        ],
        min_version=_first(request, STATIC_COMMIT_VERSION),
        max_version=OFFSET_COMMIT_VERSION_MAX,
    )


def _read_coordinator(response: WireMessage) -> FindCoordinatorAnswer:
    # v4 (KIP-699) answers a list, one for each key asked.
    found = response.coordinators[0] if response.coordinators else response
    if found.error_code:
        return FindCoordinatorAnswer(
            error_code=found.error_code, error_message=found.error_message or "", coordinator=None
        )
    return FindCoordinatorAnswer(
        error_code=0,
        error_message="",
        coordinator=Coordinator(node_id=found.node_id, host=found.host, port=found.port),
    )


def _read_join(response: WireMessage) -> JoinGroupAnswer:
    return JoinGroupAnswer(
        error_code=response.error_code,
        generation=response.generation_id,
        protocol_name=response.protocol_name or "",
        leader_id=response.leader,
        member_id=response.member_id,
        members=tuple(
            JoinedMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=bytes(member.metadata or b""),
            )
            for member in response.members
        ),
        skip_assignment=bool(response.skip_assignment),
    )
