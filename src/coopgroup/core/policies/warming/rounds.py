"""`Warming`: a round with warm-ups, around any assignor and any policy.

The leader calls three steps, between the calls of policy and assignor:

1. `shown_owner` and `withheld`: the assignor's view.
2. `aim`: the target, with running warm-ups and warm members preferred.
3. `staged`: the policy's round without moves to cold members, and the warm-ups of the plan.

Limits of cold warm-ups: those of moves come first, running ones before new ones, each by resource;
then those of standbys in the same order. A member that is kept warm does not count.

The leader remembers each warm-up and when it began, the receiver of each unfinished move, and the
pairs that timed out or were declined. A new leader knows only the members' warm sets. It keeps
them warm in its first round, and starts the time of cold warm-ups anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import numpy as np
from attrs import frozen

from coopgroup.core.model import NOBODY
from coopgroup.core.policies.state import Holdings, RunningWarmups
from coopgroup.core.policies.waiting.moves import less_even
from coopgroup.core.policies.warming.asking import ask_for_warm
from coopgroup.core.policies.warming.moves import held_moves
from coopgroup.core.policies.warming.option import Warmup, warmup_of
from coopgroup.core.policies.warming.pairs import (
    claims_of,
    holds,
    keys_of,
    members_of,
    resources_of,
)
from coopgroup.core.policies.warming.standbys import Slots, Standbys
from coopgroup.core.policies.warming.taking import given_to_warm, shown_owner, taken_over
from coopgroup.core.policies.warming.warmth import Warmth, warmth_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from coopgroup.core.model import GroupSnapshot, RoundPlan
    from coopgroup.core.model.resource_set import BoolArray, Int32Array, Int64Array
    from coopgroup.core.policies.base import Offer, Policy, RoundContext, StagedRound
    from coopgroup.core.policies.state import PolicyState
    from coopgroup.core.policies.warming.moves import HeldMoves


@frozen(kw_only=True, eq=False)
class Warming:
    """Warm-ups of one round.

    Attributes:
        warmth: facts of the round.
        context: circumstances of the round.
        offer: the policy's offer.
        taken: bool (R,): waits or returns in the offer of a user's policy, and a warm member takes
            it. Our own policies know of warm members, and offer such a resource as free.
    """

    warmth: Warmth
    context: RoundContext
    offer: Offer
    taken: BoolArray

    @classmethod
    def of(cls, context: RoundContext, offer: Offer) -> Warming | None:
        """Return the warm-ups of a round; None for a round without them."""
        warmth = context.warmth
        if warmth is None:
            return None
        taken = taken_over(warmth, offer.owner, offer.withheld_from_assignor)
        return cls(warmth=warmth, context=context, offer=offer, taken=taken)

    @property
    def shown_owner(self) -> Int32Array:
        """The owners as the assignor should see them: int32 (R,)."""
        return shown_owner(self.warmth, self.offer.owner, self.taken)

    @property
    def withheld(self) -> BoolArray:
        """The resources that the assignor may not place: bool (R,)."""
        return self.offer.withheld_from_assignor & ~self.taken

    def aim(self, ask: Callable[[Int32Array], Int32Array]) -> tuple[Int32Array, Int32Array]:
        """Return the assignor's answer, and the final target: int32 (R,) each.

        Args:
            ask: asks the assignor, given the owners that it sees.
        """
        warmth, state = self.warmth, self.context.state
        answer = ask_for_warm(warmth, self.shown_owner, warmth.cancelled, ask)
        returns = (self.offer.owner != NOBODY) & ~self.taken
        released = np.zeros_like(returns)
        if state is not None:
            released = warmth.group.mask_of(state.released)
        return answer, given_to_warm(warmth, answer, returns, released)

    def staged(self, answer: Int32Array, target: Int32Array, staged: StagedRound) -> WarmRound:
        """Return the round with its warm-ups.

        Args:
            answer: int32 (R,): the assignor's answer.
            target: int32 (R,): what the policy received.
            staged: the policy's round.
        """
        group, warmth = self.warmth.group, self.warmth
        moves = held_moves(warmth, self.context, staged)
        plan = moves.staged.plan
        waits = plan.lost & (moves.receiver == NOBODY)
        goal = np.where(waits, warmth.receivers, moves.receiver)
        goal = np.where(goal == plan.assigned, NOBODY, goal).astype(np.int32)
        refused = np.union1d(warmth.cancelled, self._dropped(plan, goal))
        warmups, cold = self._warmups(plan, goal, moves.held, refused)
        return WarmRound(
            warming=self,
            moves=moves,
            goal=goal,
            plan=attrs.evolve(
                plan,
                warmup_members=members_of(group, warmups).astype(np.int32),
                warmup_resources=resources_of(group, warmups).astype(np.int32),
            ),
            warmups=warmups,
            cold=cold,
            refused=refused,
            levels=less_even(group, target, answer),
        )

    def _dropped(self, plan: RoundPlan, goal: Int32Array) -> Int64Array:
        """Return the late pairs of moves that the assignor no longer wants.

        A standby that is late is cancelled. If such a pair became a standby instead, its time
        would be over already: no round would follow, and no other warm-up could begin.
        """
        group, late = self.warmth.group, self.warmth.late
        resources, members = resources_of(group, late), members_of(group, late)
        dropped: BoolArray = (plan.assigned[resources] != members) & (goal[resources] != members)
        return late[dropped]

    def _warmups(
        self, plan: RoundPlan, goal: Int32Array, held: BoolArray, refused: Int64Array
    ) -> tuple[Int64Array, Int64Array]:
        """Return the warm-ups of the plan, and the cold ones among them; ascending pairs."""
        warmth, group = self.warmth, self.warmth.group
        slots = Slots.of(warmth.option, len(group.members))
        everywhere = np.ones(len(group.resources), dtype=np.bool_)
        moves = keys_of(group, everywhere, goal)
        warm = moves[holds(warmth.warm, moves)]
        running = moves[holds(warmth.running, moves) & ~holds(warmth.warm, moves)]
        running = slots.fill(running[~holds(refused, running)])
        fresh = keys_of(group, held, goal)
        fresh = fresh[~holds(warmth.warm, fresh) & ~holds(warmth.running, fresh)]
        fresh = slots.fill(fresh[~holds(refused, fresh)])
        chosen, cold = [warm, running, fresh], [running, fresh]
        if warmth.option.standbys:
            standbys = Standbys(warmth=warmth, assigned=plan.assigned, goal=goal, refused=refused)
            ready, restoring = standbys.kept()
            restoring = slots.fill(restoring)
            added = standbys.added(np.union1d(ready, restoring), slots)
            chosen += [ready, restoring, added]
            cold += [restoring, added]
        if not warmth.remembers:
            chosen.append(self._everything_warm(plan))
        return np.unique(np.concatenate(chosen)), np.unique(np.concatenate(cold))

    def _everything_warm(self, plan: RoundPlan) -> Int64Array:
        warm = self.warmth.warm
        group = self.warmth.group
        others: BoolArray = plan.assigned[resources_of(group, warm)] != members_of(group, warm)
        return warm[others]


@frozen(kw_only=True, eq=False)
class WarmRound:
    """A staged round with warm-ups.

    Attributes:
        warming: the steps before.
        moves: the policy's round.
        plan: the plan with warm-ups.
        goal: int32 (R,): receivers of unfinished moves.
        warmups: the warm-ups of the plan, as ascending pairs.
        cold: the cold ones among them.
        refused: pairs that must not warm up, also in later rounds.
        levels: whether warm members got more than the assignor gave them, so that a round follows
            that levels.
    """

    warming: Warming
    moves: HeldMoves
    plan: RoundPlan
    goal: Int32Array
    warmups: Int64Array
    cold: Int64Array
    refused: Int64Array
    levels: bool

    @property
    def round_(self) -> StagedRound:
        """The policy's round with the plan that has the warm-ups."""
        return attrs.evolve(self.moves.staged, plan=self.plan)

    def remembered(self, state: PolicyState) -> PolicyState:
        """Return the memory of the round with its warm-ups."""
        group = self.warming.warmth.group
        unfinished = self.goal != NOBODY
        since_ms = self._since_ms()
        return attrs.evolve(
            state,
            moves_pending=state.moves_pending or self.levels,
            next_round_ms=self._next_round_ms(state, since_ms),
            warmups=RunningWarmups(
                pairs=claims_of(group, self.warmups),
                since_ms=since_ms,
                warm=~holds(self.cold, self.warmups),
            ),
            receivers=Holdings(
                resources=group.resources.take(unfinished), holder=self.goal[unfinished]
            ),
            refused=claims_of(group, self.refused),
        )

    def _since_ms(self) -> Int64Array:
        """Return when each warm-up began: now, except for cold ones that run already."""
        warmth = self.warming.warmth
        since_ms = np.full(self.warmups.size, warmth.now_ms, dtype=np.int64)
        goes_on = holds(warmth.running, self.warmups) & ~holds(warmth.warm, self.warmups)
        found = warmth.running.searchsorted(self.warmups[goes_on])
        since_ms[goes_on] = warmth.since_ms[found]
        return since_ms

    def _next_round_ms(self, state: PolicyState, since_ms: Int64Array) -> int | None:
        """Return when the leader should start a round itself, or None."""
        warmth = self.warming.warmth
        due_ms = since_ms[holds(self.cold, self.warmups)] + warmth.option.timeout_ms
        times_ms = due_ms[due_ms > warmth.now_ms].tolist()
        if self.levels:
            times_ms.append(warmth.now_ms + 1)
        if state.next_round_ms is not None:
            times_ms.append(state.next_round_ms)
        return min(times_ms, default=None)


def warmth_for(group: GroupSnapshot, context: RoundContext, policy: Policy) -> Warmth | None:
    """Return the facts of a round; None without the option, or if no member takes part."""
    option = warmup_of(policy)
    if option is None or not any(member.warms for member in group.members):
        return None
    return warmth_of(group, context, option)


def with_kept_warmups(group: GroupSnapshot, context: RoundContext, plan: RoundPlan) -> RoundPlan:
    """Return a plan that moves nothing with the warm-ups of the last round.

    A round that could not be decided must not cancel them. A leader without memory keeps all warm
    members warm.
    """
    if not any(member.warms for member in group.members):
        return plan
    warmth = warmth_of(group, context, Warmup())
    kept = warmth.running if warmth.remembers else warmth.warm
    resources, members = resources_of(group, kept), members_of(group, kept)
    legal = group.assignable[resources] & (plan.assigned[resources] != members)
    return attrs.evolve(
        plan,
        warmup_members=members[legal].astype(np.int32),
        warmup_resources=resources[legal].astype(np.int32),
    )
