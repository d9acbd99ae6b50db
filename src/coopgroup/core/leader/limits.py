"""Limits of members that a policy does not know.

A free resource never goes to a member without a place for it, whatever the policy prefers.

A policy may give a free resource to a member of its own choice: to the owner that is back, to a
newcomer in its place, to a warm member. It knows no limits of members, and not what they decline.
An assignor with `has_limits` was shown that owner, and has chosen another member because the
resource does not fit there, or no place is free. So the resource is granted to the assignor's
member. The same holds with any assignor, if the policy's member declines the resource.

A member that declines a resource, or that the resource does not fit, could never start it. So this
member does not keep it warm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import numpy as np

from coopgroup.core.assignors.declining import refusals
from coopgroup.core.model import NOBODY
from coopgroup.core.model.pairs import NO_KEYS, holds, pair_keys

if TYPE_CHECKING:
    from coopgroup.core.assignors.base import Assignor
    from coopgroup.core.model import GroupSnapshot, RoundPlan
    from coopgroup.core.model.resource_set import BoolArray, Int32Array, Int64Array
    from coopgroup.core.policies.memory import PolicyState


def misplaced(
    group: GroupSnapshot, assignor: Assignor, answer: Int32Array, assigned: Int32Array
) -> BoolArray:
    """Return the free resources that a plan grants to another member than the assignor: bool (R,).

    Args:
        group: the group, claims resolved.
        assignor: the assignor of the round.
        answer: int32 (R,): its last answer.
        assigned: int32 (R,): owners after the round.
    """
    declined = refusals(group)
    has_limits = getattr(assignor, "has_limits", False)
    if not has_limits and not declined.size:
        return np.zeros(answer.size, dtype=np.bool_)
    moved: BoolArray = (assigned > NOBODY) & (answer != NOBODY) & (assigned != answer)
    moved &= ~group.claimed() & (assigned < len(group.members))  # the safety check refuses others
    if not has_limits:
        place = np.flatnonzero(moved)
        moved[place] = holds(declined, pair_keys(group, place, assigned[place]))
    return moved


def barred(group: GroupSnapshot, assignor: Assignor) -> Int64Array:
    """Return the pairs of a resource and a member that could not start it, ascending.

    They matter for warm-ups only; there are none if no member takes part in them.
    """
    if not any(member.warms for member in group.members):
        return NO_KEYS
    misfits = getattr(assignor, "misfits", None)
    unfit = None if misfits is None else misfits(group)
    return np.union1d(refusals(group), NO_KEYS if unfit is None else np.flatnonzero(unfit.T))


def with_answer(plan: RoundPlan, answer: Int32Array, misplaced: BoolArray) -> RoundPlan:
    """Return the plan that grants misplaced resources as the assignor answered."""
    if not misplaced.any():
        return plan
    assigned = np.where(misplaced, answer, plan.assigned).astype(np.int32)
    kept = assigned[plan.warmup_resources] != plan.warmup_members
    return attrs.evolve(
        plan,
        assigned=assigned,
        waiting=plan.waiting & ~misplaced,
        warmup_members=plan.warmup_members[kept],
        warmup_resources=plan.warmup_resources[kept],
    )


def with_holders(state: PolicyState, answer: Int32Array, misplaced: BoolArray) -> PolicyState:
    """Return the memory of that plan."""
    rows = state.resources
    changed = misplaced & (rows.holder != NOBODY)
    if not changed.any():
        return state
    holder = np.where(changed, answer, rows.holder).astype(np.int32)
    return attrs.evolve(state, resources=attrs.evolve(rows, holder=holder))
