"""How good a target is, whoever made it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from coopgroup.assignors.pools import Pool
from coopgroup.model import NOBODY
from tests.benchmarks.assigning.groups import Group, Int32Array, Int64Array, pools_of

__all__ = ["kept_most", "quality"]


def quality(group: Group, holder: Int32Array, lags: Int64Array) -> dict[str, Any]:
    """Say how even a target is, and what it keeps.

    Args:
        group: who owned what, and who subscribes to what.
        holder: int32 (R,): who holds each partition in the target.
        lags: int64 (R,).

    Returns:
        `spread`: largest less smallest count of two members; where subscriptions are disjoint, of
        two with the same one. `lag_peak`: highest lag of a member, of
        the mean. `kept`: how many stay where they were. `misplaced`: how many have no holder, or
        one that does not subscribe; anything but 0 is a bug. `far`: where racks are known, how many
        are held in a rack without a replica.
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
    """How many partitions a balanced target can keep at most; None where that takes a solver.

    It can be counted where no member subscribes to partitions of two pools: then everybody keeps
    what it owns up to its quota, and the larger quotas go to those that own more.
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
        subscribes = np.zeros(len(group.members) + 1, dtype=np.bool_)  # the last one: NOBODY
        subscribes[pool.subscribers] = True
        wrong += int(np.count_nonzero(~subscribes[holder[pool.resources]]))
    return wrong
