"""`RoundPlan`: what a round tells every member, in arrays.

One array says it all: who holds each resource after the round. Whatever a member claims and does
not hold in the plan is what it must stop, so the lists of revocations are derived, never stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from attrs import frozen

from coopgroup.model.group import NOBODY, split_by_member
from coopgroup.model.resource_set import EMPTY

if TYPE_CHECKING:
    from coopgroup.model.group import GroupSnapshot
    from coopgroup.model.resource_set import BoolArray, Int32Array, ResourceSet

__all__ = ["RoundPlan", "plan_that_moves_nothing", "revoked_by_member", "revoked_claims"]


@frozen(kw_only=True, eq=False)
class RoundPlan:
    """A staged round of a group with R resources.

    Attributes:
        target: int32 (R,): where the assignor wants each resource, NOBODY where it was not asked.
        assigned: int32 (R,): who holds it after the round, NOBODY for nobody.
        follow_up: whether another round comes because somebody revokes or waits; members then
            rejoin at once (an empty, not a null, list of revocations).
        scheduled_rebalance_timeout_ms: when all shall rejoin though nothing happens, in ms from
            now; 0 for never. Only ever set in a round in which nobody revokes.
        loss_timeout_ms: given where that time-out is a pause between moves: when the first wait for
            a lost owner, or for a group's first members, ends, in ms from now, which is later;
            NO_LOSS when there is no such wait. None where the time-out above is for it.
        lost: bool (R,): lost, and after this round still waiting for the owner to return.
        created: bool (R,): never owned so far, granted in this round.
        waiting: bool (R,): in target, not yet released by the present owner; never a lost one.
        held: bool (R,): never owned so far, and held back until more members have joined; None
            for nothing.
        stopping: bool (K,), in the order of the group's claims: told to be stopped in an earlier
            round, still claimed, and told again; None for none. While these are all that has to be
            stopped, no follow-up round is announced, and their claimants alone are told.
    """

    target: Int32Array
    assigned: Int32Array
    follow_up: bool
    scheduled_rebalance_timeout_ms: int
    lost: BoolArray
    created: BoolArray
    waiting: BoolArray
    held: BoolArray | None = None
    stopping: BoolArray | None = None
    loss_timeout_ms: int | None = None


def revoked_claims(group: GroupSnapshot, assigned: Int32Array) -> BoolArray:
    """Which claims must be stopped: bool (K,), in the order of the group's claims."""
    stop: BoolArray = assigned[group.claim_resources] != group.claim_members
    return stop


def revoked_by_member(group: GroupSnapshot, assigned: Int32Array) -> tuple[ResourceSet, ...]:
    """What each member must stop, in the order of the group's members: most of them nothing."""
    stop = np.flatnonzero(revoked_claims(group, assigned))
    order = stop[np.argsort(group.claim_members[stop], kind="stable")]
    numbers, claimant = np.unique(group.claim_members[order], return_inverse=True)
    stopped = split_by_member(
        group.resources, claimant.astype(np.int32), group.claim_resources[order], numbers.size
    )
    sets = [EMPTY] * len(group.members)
    for number, one in zip(numbers.tolist(), stopped, strict=True):
        sets[number] = one
    return tuple(sets)


def plan_that_moves_nothing(group: GroupSnapshot) -> RoundPlan:
    """The plan that is always safe: rightful owners keep, nobody gains.

    Claims that are not rightful are still told to stop: they have no owner's right to go on.
    """
    nothing = np.zeros(len(group.resources), dtype=np.bool_)
    keeps = group.may_hold(group.owner) & group.assignable
    assigned = np.where(keeps, group.owner, NOBODY).astype(np.int32)
    return RoundPlan(
        target=assigned,
        assigned=assigned,
        follow_up=bool(revoked_claims(group, assigned).any()),
        scheduled_rebalance_timeout_ms=0,
        lost=nothing,
        created=nothing,
        waiting=nothing,
    )
