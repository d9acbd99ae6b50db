"""Deal partitions by lag to members that already carry a load."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from coopgroup.core.model.resource_set import Int64Array


def deal_by_count(lags: Int64Array, room: Int64Array, loads: Int64Array) -> Int64Array:
    """Deal n partitions to S members, to the member with the most room, then with the least lag.

    Partitions are dealt in order of decreasing lag; equal lags in order of their positions.

    Args:
        lags: int64 (n,).
        room: int64 (S,): how many more partitions each member may take; at least n in total.
        loads: int64 (S,): present lag of each member.

    Returns:
        int64 (n,): column of the member that takes each partition.
    """
    order = np.argsort(-lags, kind="stable")
    columns = np.empty_like(lags)
    room, loads = room.copy(), loads.copy()
    position = 0
    while position < lags.size:
        widest = int(room.max())
        takers = np.flatnonzero(room == widest)
        left = lags.size - position
        if takers.size == 1:  # the only taker until its room equals that of the next member
            next_widest = int(room[room < widest].max(initial=0))
            taken = min(widest - next_widest, left)
        else:
            takers = takers[np.argsort(loads[takers], kind="stable")][:left]
            taken = takers.size
        some = order[position : position + taken]
        columns[some] = takers
        np.add.at(loads, columns[some], lags[some])
        room[takers] -= taken // takers.size
        position += taken
    return columns
