"""Requests to the group coordinator and their answers, as plain values.

A request never names an API version. An answer has the error codes that the coordinator sent; the
table of the member's state machine decides what a code means. The Kafka driver and the simulator
both use these values.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from attrs import frozen

JOINS: Final = 0
"""The epoch of a member of KIP-848 that joins."""

LEAVES: Final = -1
"""The epoch of a member of KIP-848 that leaves."""

LEAVES_FOR_NOW: Final = -2
"""The epoch of a static member of KIP-848 that leaves, and keeps its place for a session."""

TopicPartitions: TypeAlias = tuple[tuple[str, tuple[int, ...]], ...]
"""(topic id, partitions), ascending."""


@frozen(kw_only=True)
class Coordinator:
    """The broker that is the group coordinator of a group."""

    node_id: int
    host: str
    port: int


@frozen(kw_only=True)
class FindCoordinatorRequest:
    """Find the group coordinator of a group; any broker can answer."""

    group_id: str


@frozen(kw_only=True)
class JoinGroupRequest:
    """Join or rejoin a group; the answer comes after all members have joined.

    Attributes:
        member_id: id from the coordinator, empty in the first join. KIP-394 answers that join with
            error 79 and the id to use.
        session_timeout_ms: the coordinator removes a member after this time without a heartbeat.
        rebalance_timeout_ms: how long the coordinator waits for members to rejoin.
        protocols: (protocol name, subscription bytes), preferred first.
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
    """Send the assignments of a generation (leader) and receive one's own (all members).

    Attributes:
        assignments: (member id, assignment bytes) from the leader, empty from followers.
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
    """Renew the session, and learn from error 27 that the group is rebalancing."""

    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None


@frozen(kw_only=True)
class LeaveGroupRequest:
    """Leave the group now instead of when the session ends."""

    group_id: str
    member_id: str
    group_instance_id: str | None
    reason: str


@frozen(kw_only=True)
class OffsetCommitRequest:
    """Commit offsets, fenced by generation and member id.

    Attributes:
        offsets: (topic, partition, offset, leader epoch or -1, metadata); the offset is that of
            the next record to read.
    """

    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None
    offsets: tuple[tuple[str, int, int, int, str], ...]


@frozen(kw_only=True)
class ConsumerBeatRequest:
    """ConsumerGroupHeartbeat of KIP-848: join, renew the session, tell the owned partitions, leave.

    A field that is None has not changed since the last answered request.

    Attributes:
        epoch: the member's epoch; or `JOINS`, `LEAVES`, `LEAVES_FOR_NOW`.
        topics: subscribed names, ascending.
        owned: owned partitions. The member owns a revoked partition until a request that leaves it
            out. The coordinator then gives it away.
        rebalance_timeout_ms: the coordinator removes a member that must stop partitions, and owns
            them longer.
        assignor: the coordinator's assignor; None for its default.
    """

    group_id: str
    member_id: str
    epoch: int
    group_instance_id: str | None = None
    rack: str | None = None
    topics: tuple[str, ...] | None = None
    owned: TopicPartitions | None = None
    rebalance_timeout_ms: int | None = None
    assignor: str | None = None


@frozen(kw_only=True)
class FindCoordinatorAnswer:
    """Answer to a FindCoordinator request."""

    error_code: int
    error_message: str
    coordinator: Coordinator | None


@frozen(kw_only=True)
class JoinedMember:
    """One member in the answer to the leader; its subscription is not decoded yet."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@frozen(kw_only=True)
class JoinGroupAnswer:
    """Answer to a join.

    Attributes:
        generation: the new generation, -1 with an error.
        member_id: id to use from now on; with error 79 the id for the second join.
        skip_assignment: the leader must not assign; the group keeps the stored assignments
            (KIP-814, v9: a static leader returned). Older brokers do not send it: False.
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
    """Answer to a leave: the error code of the request, else that of the member."""

    error_code: int


@frozen(kw_only=True)
class OffsetCommitAnswer:
    """Answer to a commit: (topic, partition, error code) in ascending order."""

    codes: tuple[tuple[str, int, int], ...]


@frozen(kw_only=True)
class ConsumerBeatAnswer:
    """Answer to a ConsumerGroupHeartbeat.

    Attributes:
        epoch: the member's epoch from now on.
        interval_ms: the coordinator's heartbeat interval.
        assigned: everything that the member may own; None if it has not changed.
    """

    error_code: int
    error_message: str = ""
    epoch: int = -1
    interval_ms: int = 0
    assigned: TopicPartitions | None = None


GroupRequest: TypeAlias = (
    FindCoordinatorRequest
    | JoinGroupRequest
    | SyncGroupRequest
    | HeartbeatRequest
    | LeaveGroupRequest
    | OffsetCommitRequest
    | ConsumerBeatRequest
)
Answer: TypeAlias = (
    FindCoordinatorAnswer
    | JoinGroupAnswer
    | SyncGroupAnswer
    | HeartbeatAnswer
    | LeaveGroupAnswer
    | OffsetCommitAnswer
    | ConsumerBeatAnswer
)
