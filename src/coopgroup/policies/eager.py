"""`EagerPolicy`: the world stops, and starts again as the assignor wants it.

This is how groups rebalance without cooperation: members give up everything before they join, so
nothing that they claim is in the way. It is the baseline that the simulator and `coopgroup plan`
compare with. Our own members hold on to what they have, so a consumer never runs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
from attrs import frozen

from coopgroup.model import NOBODY, RoundPlan
from coopgroup.policies.base import Offer, StagedRound
from coopgroup.policies.unclaimed import find_unclaimed, remember_round

if TYPE_CHECKING:
    from coopgroup.model import GroupSnapshot
    from coopgroup.model.resource_set import Int32Array
    from coopgroup.policies.base import RoundContext

__all__ = ["EagerPolicy"]


@frozen(kw_only=True)
class EagerPolicy:
    """The assignor's target at once: nothing is revoked, nothing waits, no round follows."""

    name: ClassVar[str] = "eager"

    def offer(self, group: GroupSnapshot, context: RoundContext) -> Offer:  # noqa: ARG002 - the Protocol's
        """Offer everything, with the rightful owners, whom a sticky assignor remembers."""
        return Offer(owner=group.owner, held=np.zeros(len(group.resources), dtype=np.bool_))

    def stage(self, group: GroupSnapshot, target: Int32Array, context: RoundContext) -> StagedRound:
        """Assign the target.

        Args:
            group: the group with R resources.
            target: int32 (R,): where the assignor wants each, NOBODY elsewhere.
            context: of the round.
        """
        unclaimed = find_unclaimed(group, context)
        nothing = np.zeros(len(group.resources), dtype=np.bool_)
        plan = RoundPlan(
            target=target,
            assigned=target,
            follow_up=False,
            scheduled_rebalance_timeout_ms=0,
            lost=nothing,
            created=unclaimed.created & (target != NOBODY),
            waiting=nothing,
        )
        return StagedRound(plan=plan, state=remember_round(group, context, unclaimed, target))
