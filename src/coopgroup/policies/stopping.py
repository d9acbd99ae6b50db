"""Claims that are being given up: told to be stopped in an earlier round, and still there.

A heavy resource may need minutes to stop, and its member rejoins meanwhile for those that have
stopped. Rules of this file: such a claim is told again to its claimant and to nobody else; while
these are all that is outstanding no member rejoins at once, so that a slow stop makes no loop of
rounds; and the assignor sees the resource as free, so that it still goes where it was to go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coopgroup.model import NOBODY, ResourceSet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coopgroup.model import GroupSnapshot
    from coopgroup.model.resource_set import BoolArray, Int32Array, Int64Array
    from coopgroup.policies.base import RoundContext

__all__ = ["offered_owner", "places_of_sets", "rightful_resources", "stopping_claims"]


def stopping_claims(group: GroupSnapshot, context: RoundContext) -> BoolArray:
    """Which claims an earlier round of this leader told to be stopped: bool (K,)."""
    if context.state is None or not context.state.stopping:
        return np.zeros(group.claim_members.size, dtype=np.bool_)
    number_of = {member: number for number, member in enumerate(group.member_ids)}
    present = [(number_of[m], told) for m, told in context.state.stopping if m in number_of]
    numbers = np.array([number for number, _ in present], dtype=np.int64)
    which, places = places_of_sets(group, [told for _, told in present])
    told = numbers[which] * len(group.resources) + places
    claims = group.claim_members.astype(np.int64) * len(group.resources) + group.claim_resources
    stopping: BoolArray = np.isin(claims, told)
    return stopping


def rightful_resources(group: GroupSnapshot, claims: BoolArray) -> BoolArray:
    """Which resources the rightful owner claims by one of the given claims.

    Args:
        group: the group with K claims and R resources.
        claims: bool (K,).

    Returns:
        bool (R,).
    """
    mask = np.zeros(len(group.resources), dtype=np.bool_)
    places = group.claim_resources[claims]
    mask[places[group.owner[places] == group.claim_members[claims]]] = True
    return mask


def offered_owner(group: GroupSnapshot, stopping: BoolArray) -> Int32Array:
    """Owners as the assignor should see them: int32 (R,).

    Args:
        group: the group.
        stopping: bool (K,): `stopping_claims` of it.
    """
    if not stopping.any():
        return group.owner
    owner: Int32Array = np.where(rightful_resources(group, stopping), NOBODY, group.owner)
    return owner.astype(np.int32)


def places_of_sets(
    group: GroupSnapshot, sets: Sequence[ResourceSet]
) -> tuple[Int64Array, Int64Array]:
    """Where the resources of many sets stand in the group.

    Args:
        group: the group with R resources.
        sets: S sets, in any relation to the group's resources.

    Returns:
        int64 numbers of sets and int64 places below R, one of each for every resource of a set
        that the group has.
    """
    which = np.repeat(np.arange(len(sets)), [len(one) for one in sets]).astype(np.int64)
    everything = ResourceSet.union_all([group.resources, *sets])
    places = group.resources.positions(everything)[everything.positions_all(sets)]
    found = places >= 0
    return which[found], places[found]
