"""`SimplePolicy`: every imbalance is resolved at once, in as many rounds as that takes (Design I).

The rule of this file, for every resource and the member in its target:

    rightful owner is target    stays with it and keeps being worked on (retained)
    nobody claims it            granted now
    anybody else claims it      those stop it; it is granted in the round in which nobody does

A claim counts until it is given up, whether it is rightful or not, so a resource that a stale
claim or two tied claims (KIP-792) point to is granted to nobody yet. A member that leaves takes
its claims with it: its resources are granted in that same round, without a further one. What was
told to be stopped in an earlier round, and is not stopped yet, is told again to its claimant only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
from attrs import frozen

from coopgroup.model import NOBODY, RoundPlan
from coopgroup.model.plan import revoked_claims
from coopgroup.policies.base import Offer, StagedRound
from coopgroup.policies.stopping import offered_owner, stopping_claims
from coopgroup.policies.unclaimed import find_unclaimed, remember_round

if TYPE_CHECKING:
    from coopgroup.model import GroupSnapshot
    from coopgroup.model.resource_set import Int32Array
    from coopgroup.policies.base import RoundContext

__all__ = ["SimplePolicy"]


@frozen(kw_only=True)
class SimplePolicy:
    """Design I, "Simple Cooperative Rebalancing": moves at once, in two steps, revoke and assign.

    It never schedules a rebalance and never lets a lost resource wait.
    """

    name: ClassVar[str] = "simple"

    def offer(self, group: GroupSnapshot, context: RoundContext) -> Offer:
        """Offer everything, with the rightful owners, except of what is already being stopped."""
        return Offer(
            owner=offered_owner(group, stopping_claims(group, context)),
            held=np.zeros(len(group.resources), dtype=np.bool_),
        )

    def stage(self, group: GroupSnapshot, target: Int32Array, context: RoundContext) -> StagedRound:
        """Keep, revoke and grant as the rule of this module says.

        Args:
            group: the group with R resources.
            target: int32 (R,): where the assignor wants each, NOBODY elsewhere.
            context: of the round; its state tells created resources from lost ones.

        Returns:
            The plan and the state to remember.
        """
        unclaimed = find_unclaimed(group, context)
        free = ~group.claimed() & ~unclaimed.withheld
        assigned = np.where(free | (group.owner == target), target, NOBODY).astype(np.int32)
        waiting = (target != NOBODY) & (assigned == NOBODY)
        stops = revoked_claims(group, assigned)
        stopping = stops & stopping_claims(group, context)
        plan = RoundPlan(
            target=target,
            assigned=assigned,
            follow_up=bool((stops & ~stopping).any() or (waiting & ~group.claimed()).any()),
            scheduled_rebalance_timeout_ms=0,
            lost=np.zeros_like(waiting),
            created=unclaimed.created & (assigned != NOBODY),
            waiting=waiting,
            stopping=stopping,
        )
        return StagedRound(
            plan=plan, state=remember_round(group, context, unclaimed, plan.assigned)
        )
