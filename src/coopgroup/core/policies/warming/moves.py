"""Hold back the moves to cold members, with any policy.

The policy stages the round as if all members were warm. Its moves to cold receivers are held back,
also those that it postpones: the policy stages again, with the owner as target of these resources.
Any policy can be used unchanged, because policies are pure.

A move is not held back if its receiver takes no part, is warm, has timed out, or has declined.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from attrs import frozen

from coopgroup.core.model import NOBODY

if TYPE_CHECKING:
    from collections.abc import Callable

    from coopgroup.core.model import GroupSnapshot
    from coopgroup.core.model.resource_set import BoolArray, Int32Array, Int64Array
    from coopgroup.core.policies.base import StagedRound
    from coopgroup.core.policies.warming.warmth import Warmth

_STAGINGS_MAX: Final = 4


@frozen(kw_only=True, eq=False)
class HeldRound:
    """A staged round without moves to cold members.

    Attributes:
        staged: the policy's round.
        first: the policy's round if all members were warm.
        held: bool (R,): stays with its owner only because its receiver is cold.
        goal: int32 (R,): final receiver of each resource that the policy moves; `NOBODY` for a
            resource that stays.
    """

    staged: StagedRound
    first: StagedRound
    held: BoolArray
    goal: Int32Array


def stage_held(
    warmth: Warmth,
    target: Int32Array,
    may_move_cold: Int64Array,
    stage: Callable[[Int32Array, GroupSnapshot], StagedRound],
) -> HeldRound:
    """Stage a round and hold back its moves to cold members.

    Args:
        warmth: facts of the round with R resources.
        target: int32 (R,): the final target.
        may_move_cold: pairs that move although the receiver is cold, because they timed out.
        stage: asks the policy, given a target, int32 (R,), and the group.
    """
    owner, may_stay = warmth.group.owner, warmth.may_stay

    def too_cold(receiver: Int32Array) -> BoolArray:
        moves: BoolArray = may_stay & (receiver != NOBODY) & (receiver != owner)
        moves &= warmth.is_cold(receiver) & ~warmth.are_among(may_move_cold, receiver)
        return moves

    first = staged = stage(target, warmth.group)
    goal = _receivers(warmth.group, target, first)
    intends = may_stay & (goal != owner) & (_taken(warmth, first) | _planned(warmth.group, first))
    held = intends & too_cold(goal)
    if held.any():
        # A second staging must not make other cold moves instead.
        aim = np.where(too_cold(target) | held, owner, target).astype(np.int32)
        for number in range(_STAGINGS_MAX):
            staged = stage(aim, warmth.kept_group)
            other = _receivers(warmth.group, aim, staged)
            more = _taken(warmth, staged) & too_cold(other)
            if not more.any():
                break
            held |= more
            goal = np.where(more, other, goal).astype(np.int32)
            last = number == _STAGINGS_MAX - 2
            aim = np.where(may_stay if last else more, owner, aim).astype(np.int32)
    goal = np.where(may_stay & ~intends & ~held, NOBODY, goal).astype(np.int32)
    return HeldRound(staged=staged, first=first, held=held, goal=goal)


def _taken(warmth: Warmth, staged: StagedRound) -> BoolArray:
    """Return the resources that a round takes from owners that could keep them: bool (R,)."""
    taken: BoolArray = warmth.may_stay & (staged.plan.assigned != warmth.group.owner)
    return taken


def _planned(group: GroupSnapshot, staged: StagedRound) -> BoolArray:
    """Return the resources that a round plans to take later: bool (R,)."""
    if staged.state is None:
        return np.zeros(len(group.resources), dtype=np.bool_)
    return group.mask_of(staged.state.planned)


def _receivers(group: GroupSnapshot, target: Int32Array, staged: StagedRound) -> Int32Array:
    """Return the receivers of a round's moves: promised ones, else the target."""
    if staged.state is None:
        return target
    promised = group.aligned(staged.state.promised.resources, staged.state.promised.holder)
    return np.where(promised != NOBODY, promised, target).astype(np.int32)
