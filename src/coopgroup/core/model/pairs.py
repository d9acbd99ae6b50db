"""Pairs of a resource and a member as integers, for set algebra on arrays.

A pair is `resource * M + member` in a group of M members. So pairs ascend by (resource, member),
and a set of pairs is an ascending array. A mask of all pairs would be too large: a million
resources and ten thousand members make ten billion pairs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from coopgroup.core.model.positions import ABSENT, positions_in
from coopgroup.core.model.resource_set import BoolArray, Int64Array

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coopgroup.core.model.group import GroupSnapshot
    from coopgroup.core.model.resource_set import ResourceSet

NO_KEYS: Final[Int64Array] = np.zeros(0, dtype=np.int64)


def pair_keys(
    group: GroupSnapshot, resources: npt.NDArray[np.integer], members: npt.NDArray[np.integer]
) -> Int64Array:
    """Return the key of each pair, in the given order: int64 (K,)."""
    keys: Int64Array = resources.astype(np.int64) * len(group.members) + members
    return keys


def keys_of_sets(group: GroupSnapshot, sets: Sequence[ResourceSet]) -> Int64Array:
    """Return the pairs of each member and the resources of its set, ascending.

    Args:
        group: the group with M members.
        sets: M sets; resources that the group lacks are left out.
    """
    if not any(sets):
        return NO_KEYS
    members = np.arange(len(sets), dtype=np.int64).repeat([len(one) for one in sets])
    positions = positions_in(group.resources, sets)
    there = positions != ABSENT
    return np.sort(pair_keys(group, positions[there], members[there]))


def refusals(group: GroupSnapshot) -> Int64Array:
    """Return the pairs of a resource and a member that declines it, ascending."""
    return keys_of_sets(group, [member.declined for member in group.members])


def resources_of(group: GroupSnapshot, keys: Int64Array) -> Int64Array:
    """Return the resource of each pair."""
    return keys // max(len(group.members), 1)


def members_of(group: GroupSnapshot, keys: Int64Array) -> Int64Array:
    """Return the member of each pair."""
    return keys % max(len(group.members), 1)


def holds(keys: Int64Array, wanted: Int64Array) -> BoolArray:
    """Return which of the wanted keys are in the ascending `keys`."""
    if not keys.size:
        return np.zeros(wanted.size, dtype=np.bool_)
    found: BoolArray = keys[np.minimum(keys.searchsorted(wanted), keys.size - 1)] == wanted
    return found
