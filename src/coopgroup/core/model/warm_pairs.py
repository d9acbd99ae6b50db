"""Warm pairs: which member is warm for which resource without owning it (KIP-441)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coopgroup.core.model.group import NO_PAIRS
from coopgroup.core.model.positions import ABSENT, positions_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coopgroup.core.model.resource_set import BoolArray, Int32Array, ResourceSet

__all__ = ["warm_pairs"]


def warm_pairs(
    warm: Sequence[ResourceSet], resources: ResourceSet, assignable: BoolArray, owner: Int32Array
) -> tuple[Int32Array, Int32Array]:
    """Return member and resource of each warm pair: int32, ascending by (resource, member).

    Args:
        warm: what each of M members says that it is warm for; anything is possible.
        resources: the R resources of the group.
        assignable: bool (R,): other resources are left out.
        owner: int32 (R,): rightful owners. A pair of a resource and its owner is left out.
    """
    if not any(warm):
        return NO_PAIRS, NO_PAIRS
    members = np.arange(len(warm), dtype=np.int32).repeat([len(one) for one in warm])
    positions = positions_in(resources, warm)
    counts = positions != ABSENT
    counts[counts] = assignable[positions[counts]]
    counts[counts] = owner[positions[counts]] != members[counts]
    members, positions = members[counts], positions[counts]
    order = positions.argsort(kind="stable")
    return members[order], positions[order].astype(np.int32)
