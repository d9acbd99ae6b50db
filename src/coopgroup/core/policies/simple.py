"""`SimplePolicy`: resolve every imbalance immediately, in as many rounds as it takes (Design I).

The rule for every resource and the member in its target:

    the target is the rightful owner    the owner keeps it and never stops (retained)
    the resource is unclaimed           granted now
    another member claims it            that member stops it; it is granted once it is unclaimed

A claim counts until it is given up, whether rightful or not. So a resource with a stale claim or
with two tied claims (KIP-792) is not granted yet. A member that leaves takes its claims with it:
its resources are granted in that same round. A claim that an earlier round revoked, and that still
exists, is revoked again for its member only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from attrs import field, frozen

from coopgroup.core.model import NOBODY, RoundPlan
from coopgroup.core.model.plan import revoked_claims
from coopgroup.core.policies.base import Offer, StagedRound
from coopgroup.core.policies.stopping import offered_owner, stopping_claims
from coopgroup.core.policies.unclaimed import find_unclaimed, remember_round
from coopgroup.core.policies.warming.option import Warmup, read_warmup

if TYPE_CHECKING:
    from coopgroup.core.model import GroupSnapshot
    from coopgroup.core.model.resource_set import BoolArray, Int32Array
    from coopgroup.core.policies.base import RoundContext


@frozen(kw_only=True, eq=False)
class _Facts:
    """What both halves of a round need: bool (K,), the claims that an earlier round revoked."""

    stopping: BoolArray


@frozen(kw_only=True)
class SimplePolicy:
    """Design I, "Simple Cooperative Rebalancing": move immediately in two steps, revoke and assign.

    It never schedules a rebalance, and lost resources never wait.

    Attributes:
        warmup: move a resource only when its new owner is warm; None to move at once.

    Raises:
        ConfigurationError: `warmup` is not a `Warmup`, nor an object with its options.
    """

    name = "simple"
    warmup: Warmup | None = field(default=None, converter=read_warmup)

    def offer(self, group: GroupSnapshot, context: RoundContext) -> Offer:
        """Offer all resources with their rightful owners; resources being stopped are free."""
        stopping = stopping_claims(group, context)
        return Offer(
            owner=offered_owner(group, stopping),
            withheld_from_assignor=np.zeros(len(group.resources), dtype=np.bool_),
            facts=_Facts(stopping=stopping),
        )

    def stage(
        self, group: GroupSnapshot, target: Int32Array, context: RoundContext, offer: Offer
    ) -> StagedRound:
        """Keep, revoke and grant by the rule of this module.

        The state of the context distinguishes created resources from lost ones.
        """
        unclaimed = find_unclaimed(group, context)
        free = ~group.claimed() & ~unclaimed.withheld
        assigned = np.where(free | (group.owner == target), target, NOBODY).astype(np.int32)
        waiting = (target != NOBODY) & (assigned == NOBODY)
        stops = revoked_claims(group, assigned)
        facts = offer.facts
        revoked = facts.stopping if isinstance(facts, _Facts) else stopping_claims(group, context)
        stopping = stops & revoked
        plan = RoundPlan(
            target=target,
            assigned=assigned,
            follow_up=bool((stops & ~stopping).any() or (waiting & ~group.claimed()).any()),
            lost=np.zeros_like(waiting),
            created=unclaimed.created & (assigned != NOBODY),
            waiting=waiting,
            stopping=stopping,
        )
        return StagedRound(
            plan=plan, state=remember_round(group, context, unclaimed, plan.assigned)
        )
