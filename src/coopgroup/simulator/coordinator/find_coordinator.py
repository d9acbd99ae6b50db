"""FindCoordinator: any broker answers it. Version notes: as v6 for one group."""

from __future__ import annotations

from coopgroup.member import ErrorCode
from coopgroup.model.group_api import Coordinator, FindCoordinatorAnswer

__all__ = ["find_coordinator"]


def find_coordinator(node_id: int, *, is_up: bool) -> FindCoordinatorAnswer:
    """Return the location of the group coordinator.

    Args:
        node_id: broker that has the group.
        is_up: whether it has loaded the group.
    """
    if not is_up:
        return FindCoordinatorAnswer(
            error_code=int(ErrorCode.COORDINATOR_NOT_AVAILABLE), error_message="", coordinator=None
        )
    coordinator = Coordinator(node_id=node_id, host=f"broker-{node_id}", port=9092)
    return FindCoordinatorAnswer(error_code=0, error_message="", coordinator=coordinator)
