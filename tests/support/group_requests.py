"""Requests of a member in a group, for tests that play a member by hand."""

from __future__ import annotations

from typing import Final

from coopgroup.core.model.group_api import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    SyncGroupRequest,
)

SESSION_MS: Final = 600
REBALANCE_MS: Final = 1_500
PROTOCOLS: Final = (("coopgroup", b"subscription"),)


def join(
    member_id: str = "",
    *,
    group_id: str = "g",
    instance_id: str | None = None,
    protocols: tuple[tuple[str, bytes], ...] = PROTOCOLS,
    session_timeout_ms: int = SESSION_MS,
    rebalance_timeout_ms: int = REBALANCE_MS,
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group_id,
        member_id=member_id,
        group_instance_id=instance_id,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
        protocol_type="consumer",
        protocols=protocols,
        reason="",
    )


def sync(
    member_id: str,
    generation: int,
    assignments: tuple[tuple[str, bytes], ...] = (),
    *,
    group_id: str = "g",
    instance_id: str | None = None,
    protocol_name: str = "coopgroup",
) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=group_id,
        generation=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type="consumer",
        protocol_name=protocol_name,
        assignments=assignments,
    )


def heartbeat(
    member_id: str, generation: int, *, group_id: str = "g", instance_id: str | None = None
) -> HeartbeatRequest:
    return HeartbeatRequest(
        group_id=group_id, generation=generation, member_id=member_id, group_instance_id=instance_id
    )


def leave(member_id: str, *, instance_id: str | None = None) -> LeaveGroupRequest:
    return LeaveGroupRequest(
        group_id="g", member_id=member_id, group_instance_id=instance_id, reason=""
    )


def commit(
    member_id: str, generation: int, offset: int = 7, *, partition: int = 0
) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id="g",
        generation=generation,
        member_id=member_id,
        group_instance_id=None,
        offsets=(("T", partition, offset, -1, ""),),
    )
