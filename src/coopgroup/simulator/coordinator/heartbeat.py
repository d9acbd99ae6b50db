"""Heartbeat (`classicGroupHeartbeat`). Version notes: as v4."""

from __future__ import annotations

from typing import Final

from coopgroup.core.member import ErrorCode
from coopgroup.core.model.group_api import HeartbeatAnswer, HeartbeatRequest
from coopgroup.simulator.coordinator.state import ClassicGroup, GroupState, Token

__all__ = ["heartbeat"]

_ALIVE: Final = HeartbeatAnswer(error_code=0)
_REJOIN: Final = HeartbeatAnswer(error_code=int(ErrorCode.REBALANCE_IN_PROGRESS))


def heartbeat(group: ClassicGroup, token: Token, request: HeartbeatRequest) -> None:
    """Renew the member's session, and report whether a round is being prepared."""
    code = group.fence_code(request.member_id, request.group_instance_id, request.generation)
    if code:
        group.answer(token, HeartbeatAnswer(error_code=int(code)))
        return
    group.touch(group.seats[request.member_id])
    group.answer(token, _REJOIN if group.state is GroupState.PREPARING else _ALIVE)
