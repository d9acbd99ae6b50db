"""Pairs of a resource and a member as ascending integers, for set algebra on arrays.

The key of a pair is `resource * M + member` in a group of M members, so keys ascend by (resource,
member).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from coopgroup.core.model import NOBODY
from coopgroup.core.policies.state import NO_CLAIMS, Claims
from coopgroup.core.policies.stopping import member_numbers

if TYPE_CHECKING:
    import numpy.typing as npt

    from coopgroup.core.model import GroupSnapshot
    from coopgroup.core.model.resource_set import BoolArray, Int32Array, Int64Array

NO_KEYS: Final[Int64Array] = np.zeros(0, dtype=np.int64)


def pair_keys(
    group: GroupSnapshot, resources: npt.NDArray[np.integer], members: npt.NDArray[np.integer]
) -> Int64Array:
    """Return the key of each pair, in the given order: int64 (K,)."""
    keys: Int64Array = resources.astype(np.int64) * len(group.members) + members
    return keys


def keys_of(group: GroupSnapshot, mask: BoolArray, holder: Int32Array) -> Int64Array:
    """Return the pairs of some resources and their holders, without `NOBODY`, ascending.

    Args:
        group: the group with R resources.
        mask: bool (R,).
        holder: int32 (R,).
    """
    resources = np.flatnonzero(mask & (holder != NOBODY))
    return pair_keys(group, resources, holder[resources])


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


def subscribes(group: GroupSnapshot, keys: Int64Array) -> BoolArray:
    """Return for each pair whether the member subscribes to the resource."""
    names = group.resources.name_numbers[resources_of(group, keys)]
    wanted: BoolArray = group.subscribed_names()[group.class_of[members_of(group, keys)], names]
    return wanted


def claims_of(group: GroupSnapshot, keys: Int64Array) -> Claims:
    """Return ascending pairs as `Claims` of the group's members, for the leader's memory."""
    if not keys.size:
        return NO_CLAIMS
    positions = resources_of(group, keys)
    used = np.zeros(len(group.resources), dtype=np.bool_)
    used[positions] = True
    place_of = np.cumsum(used, dtype=np.int32) - 1
    return Claims(
        resources=group.resources.take(used),
        resource=place_of[positions],
        claimant=members_of(group, keys).astype(np.int32),
    )


def keys_in(
    group: GroupSnapshot, claims: Claims, members: tuple[str, ...]
) -> tuple[Int64Array, BoolArray]:
    """Find remembered pairs in a group.

    Args:
        group: the group.
        claims: K remembered pairs.
        members: the members to which they refer.

    Returns:
        The keys of the pairs whose resource and member are present, ascending; and which these are,
        bool (K,).
    """
    if not claims.resource.size:
        return NO_KEYS, np.zeros(0, dtype=np.bool_)
    numbers = member_numbers(group, members)[claims.claimant]
    positions = group.resources.positions(claims.resources)[claims.resource]
    there = (numbers != NOBODY) & (positions >= 0)
    # Both ascend, because resources and member ids have one order under any numbering.
    return pair_keys(group, positions[there], numbers[there]), there
