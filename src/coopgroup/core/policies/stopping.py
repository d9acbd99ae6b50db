"""Claims that an earlier round revoked and that still exist.

A heavy resource can need minutes to stop, and its member rejoins meanwhile for the resources that
have stopped. Such a claim is revoked again for its member only. While only such claims remain, no
member rejoins immediately; otherwise a slow stop would cause a loop of rounds. The assignor sees
the resource as free, so that it still goes to its planned owner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coopgroup.core.model import NOBODY
from coopgroup.core.model.replacing import replaced

if TYPE_CHECKING:
    from coopgroup.core.model import GroupSnapshot
    from coopgroup.core.model.resource_set import BoolArray, Int32Array
    from coopgroup.core.policies.base import RoundContext
    from coopgroup.core.policies.state import PolicyState


def stopping_claims(group: GroupSnapshot, context: RoundContext) -> BoolArray:
    """Return the claims that an earlier round of this leader revoked: bool (K,)."""
    state = context.state
    claimed = np.zeros(group.claim_members.size, dtype=np.bool_)
    if state is None or not state.stopping.resource.size or not claimed.size:
        return claimed
    members = member_numbers(group, state.members)[state.stopping.claimant].astype(np.int64)
    positions = group.resources.positions(state.stopping.resources)[state.stopping.resource]
    there = (members != NOBODY) & (positions >= 0)
    # Both ascend, because resources and member ids have one order under any numbering.
    told = positions[there] * len(group.members) + members[there]
    claims = group.claim_resources.astype(np.int64) * len(group.members) + group.claim_members
    found = np.searchsorted(claims, told)
    found = np.minimum(found, claims.size - 1)
    claimed[found[claims[found] == told]] = True
    return claimed


def with_holders_rights(group: GroupSnapshot, context: RoundContext) -> GroupSnapshot:
    """Return the group with the rights of holders restored against revoked claims.

    A member that rejoins before it has stopped a revoked claim makes the claim in the newest
    generation. The holder that the last round chose is still the owner, if only revoked claims
    stand against it.

    Args:
        group: the group, claims resolved.
        context: context of the round.
    """
    stopping = stopping_claims(group, context)
    if context.state is None or not stopping.any():
        return group
    positions, claimants = group.claim_resources, group.claim_members
    given_up = np.zeros(len(group.resources), dtype=np.bool_)
    given_up[positions[stopping]] = True
    others = np.bincount(positions[~stopping], minlength=len(group.resources))
    held = context.state.holdings
    there = member_numbers(group, context.state.members)
    holder = group.aligned(held.resources, there[held.holder])
    claim = (
        ~stopping
        & (claimants == holder[positions])
        & given_up[positions]
        & (others[positions] == 1)
    )
    owner, contested = group.owner.copy(), group.contested.copy()
    owner[positions[claim]] = claimants[claim]
    contested[positions[claim]] = False
    return replaced(group, owner=owner, contested=contested)


def member_numbers(group: GroupSnapshot, member_ids: tuple[str, ...]) -> Int32Array:
    """Return the numbers in this group of another round's members, `NOBODY` for absent ones.

    Args:
        group: the group.
        member_ids: N member ids.

    Returns:
        int32 (N + 1,): the last entry is `NOBODY`, so that `NOBODY` as an index stays `NOBODY`.
    """
    number_of = group.number_of_member
    numbers = [number_of.get(member, NOBODY) for member in member_ids]
    return np.array([*numbers, NOBODY], dtype=np.int32)


def returned_numbers(group: GroupSnapshot, state: PolicyState, there: Int32Array) -> Int32Array:
    """Return the numbers of the last round's members, and of returned static ones: int32 (N + 1,).

    A static member that was fenced returns under another member id.

    Args:
        group: the group.
        state: the leader's memory of a last round with N members.
        there: int32 (N + 1,), `member_numbers` of these members.
    """
    instance_of = dict(state.instance_ids)
    if not instance_of:
        return there
    by_instance = {m.instance_id: number for number, m in enumerate(group.members)}
    numbers = there.copy()
    for position, member_id in enumerate(state.members):
        if there[position] == NOBODY and member_id in instance_of:
            numbers[position] = by_instance.get(instance_of[member_id], NOBODY)
    return numbers


def rightful_resources(group: GroupSnapshot, claims: BoolArray) -> BoolArray:
    """Return the resources that the rightful owner claims by one of the given claims.

    Args:
        group: the group with K claims and R resources.
        claims: bool (K,).

    Returns:
        bool (R,).
    """
    mask = np.zeros(len(group.resources), dtype=np.bool_)
    positions = group.claim_resources[claims]
    mask[positions[group.owner[positions] == group.claim_members[claims]]] = True
    return mask


def offered_owner(group: GroupSnapshot, stopping: BoolArray) -> Int32Array:
    """Return the owners as the assignor should see them: int32 (R,).

    Args:
        group: the group.
        stopping: bool (K,): `stopping_claims` of the group.
    """
    if not stopping.any():
        return group.owner
    owner: Int32Array = np.where(rightful_resources(group, stopping), NOBODY, group.owner)
    return owner.astype(np.int32)
