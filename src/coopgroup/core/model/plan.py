"""`RoundPlan`: the result of a round for every member, in arrays.

The array `assigned` is enough: the owner of each resource after the round. A member must stop each
resource that it claims and that is not assigned to it. So revocations are derived and not stored.
"""

from __future__ import annotations

import numpy as np
from attrs import frozen

from coopgroup.core.model.group import NO_PAIRS, NOBODY, GroupSnapshot, split_by_member
from coopgroup.core.model.resource_set import EMPTY, BoolArray, Int32Array, ResourceSet


@frozen(kw_only=True, eq=False)
class RoundPlan:
    """A staged round of a group with R resources.

    Attributes:
        target: int32 (R,): where the assignor wants each resource, `NOBODY` if it was not asked.
        assigned: int32 (R,): owner of each resource after the round, or `NOBODY`.
        follow_up: whether another round follows because a member revokes or waits. Members then
            rejoin at once (an empty list of revocations, not null).
        rejoin_in_ms: when all members rejoin even if nothing happens, in ms from now; None for
            never. It is only set in a round without revocations.
        loss_ends_in_ms: when the first wait for a lost owner, or for a group's first members, ends,
            in ms from now; None without such a wait. If the rejoin comes before that end, or
            nothing waits, it continues paced moves.
        lost: bool (R,): lost, and after this round still waiting for the owner to return.
        created: bool (R,): never owned before, granted in this round.
        waiting: bool (R,): in target, not yet released by the present owner; never a lost resource.
        waiting_for_members: bool (R,): never owned before, and withheld until more members have
            joined; None if nothing is withheld.
        stopping: bool (K,), in the order of the group's claims: revoked in an earlier round, still
            claimed, and revoked again; None for none. If only these have to be stopped, no
            follow-up round is announced, and only their members are notified.
        warmup_members: int32 (U,): member of each warm-up, ascending by (resource, member) together
            with `warmup_resources`.
        warmup_resources: int32 (U,): what each member is to warm up, or to keep warm, after this
            round. Every other warm-up is cancelled.
    """

    target: Int32Array
    assigned: Int32Array
    follow_up: bool
    lost: BoolArray
    created: BoolArray
    waiting: BoolArray
    waiting_for_members: BoolArray | None = None
    stopping: BoolArray | None = None
    rejoin_in_ms: int | None = None
    loss_ends_in_ms: int | None = None
    warmup_members: Int32Array = NO_PAIRS
    warmup_resources: Int32Array = NO_PAIRS


def revoked_claims(group: GroupSnapshot, assigned: Int32Array) -> BoolArray:
    """Return the claims to be stopped: bool (K,), in the order of the group's claims."""
    stop: BoolArray = assigned[group.claim_resources] != group.claim_members
    return stop


def revoked_by_member(group: GroupSnapshot, assigned: Int32Array) -> tuple[ResourceSet, ...]:
    """Return the resources that each member must stop, in the order of members."""
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
    """Return the plan that is always safe: rightful owners keep, and no member gains.

    Claims that are not rightful are still revoked, because their members may not continue.
    """
    nothing = np.zeros(len(group.resources), dtype=np.bool_)
    keeps = group.may_hold(group.owner) & group.assignable
    assigned = np.where(keeps, group.owner, NOBODY).astype(np.int32)
    return RoundPlan(
        target=assigned,
        assigned=assigned,
        follow_up=bool(revoked_claims(group, assigned).any()),
        lost=nothing,
        created=nothing,
        waiting=nothing,
    )
