"""The quality of a target, for any contestant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from coopgroup.assignors.pools import Pool
from coopgroup.model import NOBODY
from tests.benchmarks.assigning.groups import Group, Int32Array, Int64Array, pools_of

__all__ = ["kept_most", "quality"]


def quality(group: Group, holder: Int32Array, lags: Int64Array) -> dict[str, Any]:
    """Measure how even a target is, and how much of it stays.

    Args:
        group: owners and subscriptions before the assignment.
        holder: int32 (R,): member of each partition in the target.
        lags: int64 (R,).

    Returns:
        `spread`: largest less smallest count of two members; for disjoint subscriptions, of two
        members with the same one. `lag_peak`: highest lag of a member, as a multiple of the mean.
        `kept`: how many partitions stay with their owner. `misplaced`: how many partitions have no
        holder, or a holder that does not subscribe; any other value than 0 is a bug. `far`: if
        racks are known, how many partitions are held in a rack without a replica.
    """
    members = len(group.members)
    held = holder != NOBODY
    counts = np.bincount(holder[held], minlength=members)
    loads = np.bincount(holder[held], weights=lags[held], minlength=members)
    found = {
        "spread": _spread(group, counts),
        "lag_peak": round(float(loads.max() / loads.mean()), 3),
        "kept": int(np.count_nonzero(held & (holder == group.owner))),
        "misplaced": _misplaced(group, holder),
    }
    if group.replica_racks.shape[1]:
        racks = group.member_racks[holder]
        found["far"] = int(np.count_nonzero((group.replica_racks != racks[:, None]).all(axis=1)))
    return found


def kept_most(group: Group) -> int | None:
    """Return the most partitions that a balanced target can keep; None if that takes a solver.

    Counting is enough if no member subscribes to partitions of two pools. Then each member keeps
    its owned partitions up to its quota, and the larger quotas go to the members that own more.
    """
    pools = pools_of(group)
    if not _are_disjoint(group, pools):
        return None
    most = 0
    for pool in pools:
        owned = np.bincount(group.owner[pool.resources] + 1, minlength=len(group.members) + 1)[1:]
        owned = owned[pool.subscribers]
        quota, larger = divmod(pool.resources.size, pool.subscribers.size)
        most += int(np.minimum(owned, quota).sum())
        most += min(larger, int(np.count_nonzero(owned > quota)))
    return most


def _spread(group: Group, counts: Int64Array) -> int:
    pools = pools_of(group)
    if not _are_disjoint(group, pools):
        return int(np.ptp(counts))
    return max(int(np.ptp(counts[pool.subscribers])) for pool in pools)


def _are_disjoint(group: Group, pools: Sequence[Pool]) -> bool:
    return sum(pool.subscribers.size for pool in pools) <= len(group.members)


def _misplaced(group: Group, holder: Int32Array) -> int:
    wrong = 0
    for pool in pools_of(group):
        subscribes = np.zeros(len(group.members) + 1, dtype=np.bool_)  # the last element: `NOBODY`
        subscribes[pool.subscribers] = True
        wrong += int(np.count_nonzero(~subscribes[holder[pool.resources]]))
    return wrong
