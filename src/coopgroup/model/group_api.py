"""Requests to the group coordinator and their answers, as plain values.

Rules of this file: values only. A request says what to ask, never in which version; an answer
carries error codes as the coordinator sent them, and what a code means to a member is decided by
the table of the member's state machine. The Kafka driver and the simulator both speak these.
"""

from __future__ import annotations

from typing import TypeAlias

from attrs import frozen

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
]


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
