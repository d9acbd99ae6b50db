"""The order in which Kafka's range and round-robin assignors go through members."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from coopgroup.core.assignors.pools import Pool
    from coopgroup.core.model.group import GroupMember, GroupSnapshot
    from coopgroup.core.model.resource_set import Int32Array, Int64Array

__all__ = ["members_in_order", "seats_of"]


def members_in_order(group: GroupSnapshot) -> Int32Array:
    """Return static members by instance id, then dynamic members by member id.

    A static member keeps its instance id when it restarts with another member id (KIP-345), so its
    position does not change.

    Returns:
        int32 (M,): member numbers.
    """
    members = group.members
    order = sorted(range(len(members)), key=lambda number: _sort_key(members[number]))
    return np.array(order, dtype=np.int32)


def seats_of(pool: Pool, order: Int32Array) -> Int64Array:
    """Return the positions of a pool's S subscribers in the member order: int64 (S,)."""
    subscribes = np.zeros(order.size, dtype=np.bool_)
    subscribes[pool.subscribers] = True
    return np.flatnonzero(subscribes[order])


def _sort_key(member: GroupMember) -> tuple[bool, str, str]:
    return member.instance_id is None, member.instance_id or "", member.member_id
