"""The moves of a staged round, and those that a policy may not make yet.

A policy holds back its moves to cold members by itself (`Warmth.waits_for`). A user's policy need
not know of warm-ups. Then the leader takes such moves back: the owner keeps the resource, which is
always safe, and the receiver warms up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import numpy as np
from attrs import frozen

from coopgroup.core.model import NOBODY
from coopgroup.core.model.plan import revoked_claims
from coopgroup.core.policies.stopping import stopping_claims
from coopgroup.core.policies.unclaimed import find_unclaimed, remember_round

if TYPE_CHECKING:
    from coopgroup.core.model import GroupSnapshot, RoundPlan
    from coopgroup.core.model.resource_set import BoolArray, Int32Array
    from coopgroup.core.policies.base import RoundContext, StagedRound
    from coopgroup.core.policies.state import PolicyState
    from coopgroup.core.policies.warming.warmth import Warmth


@frozen(kw_only=True, eq=False)
class HeldMoves:
    """A staged round without moves to cold members.

    Attributes:
        staged: the policy's round.
        held: bool (R,): stays with its owner only because its receiver is cold.
        receiver: int32 (R,): final receiver of each resource that the policy moves or grants;
            `NOBODY` for a resource that stays.
    """

    staged: StagedRound
    held: BoolArray
    receiver: Int32Array


def held_moves(warmth: Warmth, context: RoundContext, staged: StagedRound) -> HeldMoves:
    """Find the moves of a round, and take back those to cold members.

    Args:
        warmth: facts of the round with R resources.
        context: context of the round.
        staged: what the policy decided.
    """
    receiver = _receivers(warmth.group, staged)
    taken = warmth.may_stay & (staged.plan.assigned != warmth.group.owner)
    moves = (receiver != warmth.group.owner) & (taken | _planned(warmth, staged))
    held = moves & warmth.waits_for(receiver)
    back = held & taken
    if back.any():
        staged = _taken_back(warmth.group, context, staged, back, receiver)
    receiver = np.where(warmth.may_stay & ~moves, NOBODY, receiver).astype(np.int32)
    return HeldMoves(staged=staged, held=held, receiver=receiver)


def _receivers(group: GroupSnapshot, staged: StagedRound) -> Int32Array:
    """Return the receivers of a round's moves: promised ones, else the target."""
    target = staged.plan.target
    if staged.state is None:
        return target
    promised = group.aligned(staged.state.promised.resources, staged.state.promised.holder)
    return np.where(promised != NOBODY, promised, target).astype(np.int32)


def _planned(warmth: Warmth, staged: StagedRound) -> BoolArray:
    """Return the resources that a round plans to take later: bool (R,)."""
    if staged.state is None:
        return warmth.may_stay & staged.plan.waiting
    return warmth.may_stay & warmth.group.mask_of(staged.state.planned)


def _taken_back(
    group: GroupSnapshot,
    context: RoundContext,
    staged: StagedRound,
    back: BoolArray,
    receiver: Int32Array,
) -> StagedRound:
    """Leave resources with their owners, and bring the plan and the memory up to date."""
    plan, state = staged.plan, staged.state
    assigned = np.where(back, group.owner, plan.assigned).astype(np.int32)
    stops = revoked_claims(group, assigned)
    stopping = stops & stopping_claims(group, context)
    # Without a stop or a free resource a follow-up round would find the same group, without end.
    moves_on = (stops & ~stopping).any() or (plan.waiting & ~group.claimed()).any()
    rejoin_in_ms = plan.rejoin_in_ms
    if state is not None and state.next_round_ms is not None and not stops.any():
        rejoin_in_ms = max(state.next_round_ms - context.now_ms, 1)
    follow_up = plan.follow_up and bool(moves_on)
    if not follow_up and rejoin_in_ms is None and not stops.any():
        follow_up = _puts_off(plan)
    plan = attrs.evolve(
        plan,
        target=np.where(back, receiver, plan.target).astype(np.int32),
        assigned=assigned,
        follow_up=follow_up,
        waiting=plan.waiting | back,
        stopping=stopping,
        rejoin_in_ms=None if follow_up else rejoin_in_ms,
    )
    return attrs.evolve(
        staged, plan=plan, state=None if state is None else _kept(group, context, plan, state, back)
    )


def _puts_off(plan: RoundPlan) -> bool:
    """Return whether a resource waits that needs another round."""
    forming = plan.waiting_for_members
    return bool(plan.lost.any() or (forming is not None and forming.any()))


def _kept(
    group: GroupSnapshot,
    context: RoundContext,
    plan: RoundPlan,
    state: PolicyState,
    back: BoolArray,
) -> PolicyState:
    """Return the memory of a round that left resources with their owners."""
    facts = remember_round(group, context, find_unclaimed(group, context), plan.assigned)
    return attrs.evolve(
        state,
        holdings=facts.holdings,
        released=facts.released,
        stopping=facts.stopping,
        planned=state.planned | group.resources.take(back),
    )
