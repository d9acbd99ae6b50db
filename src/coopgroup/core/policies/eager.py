"""`EagerPolicy`: all members stop, and then the whole target is assigned.

Groups without cooperative rebalancing work like this: members give up everything before they join,
so no claim stands in the way. The simulator and `coopgroup plan` use it as a baseline. Our own
members keep their resources when they join, so a consumer never uses this policy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from attrs import frozen

from coopgroup.core.model import NOBODY, RoundPlan
from coopgroup.core.policies.base import Offer, StagedRound
from coopgroup.core.policies.unclaimed import find_unclaimed, remember_round

if TYPE_CHECKING:
    from coopgroup.core.model import GroupSnapshot
    from coopgroup.core.model.resource_set import Int32Array
    from coopgroup.core.policies.base import RoundContext


@frozen(kw_only=True)
class EagerPolicy:
    """Assigns the whole target: nothing is revoked, nothing waits, no round follows."""

    name = "eager"

    def offer(self, group: GroupSnapshot, context: RoundContext) -> Offer:  # noqa: ARG002 - the Protocol's
        """Offer all resources with their rightful owners, for sticky assignors."""
        return Offer(
            owner=group.owner, withheld_from_assignor=np.zeros(len(group.resources), dtype=np.bool_)
        )

    def stage(
        self,
        group: GroupSnapshot,
        target: Int32Array,
        context: RoundContext,
        offer: Offer,  # noqa: ARG002 - the Protocol's
    ) -> StagedRound:
        """Assign the target."""
        unclaimed = find_unclaimed(group, context)
        nothing = np.zeros(len(group.resources), dtype=np.bool_)
        plan = RoundPlan(
            target=target,
            assigned=target,
            follow_up=False,
            lost=nothing,
            created=unclaimed.created & (target != NOBODY),
            waiting=nothing,
        )
        return StagedRound(plan=plan, state=remember_round(group, context, unclaimed, target))
