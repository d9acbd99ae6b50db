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

from typing import TYPE_CHECKING, Final

from attrs import field, frozen

from coopgroup.core.policies.waiting.rounds import Delays, offer_round, stage_round
from coopgroup.core.policies.warming.option import Warmup, read_warmup

if TYPE_CHECKING:
    from coopgroup.core.model import GroupSnapshot
    from coopgroup.core.model.resource_set import Int32Array
    from coopgroup.core.policies.base import Offer, RoundContext, StagedRound

_NO_DELAYS: Final = Delays(loss_ms=0, initial_ms=0)


@frozen(kw_only=True)
class SimplePolicy:
    """Design I, "Simple Cooperative Rebalancing": move immediately in two steps, revoke and assign.

    It is `DeferredPolicy` with delays of 0: it never schedules a rebalance, and lost resources
    never wait.

    Attributes:
        warmup: move a resource only when its new owner is warm; None to move at once.

    Raises:
        ConfigurationError: `warmup` is not a `Warmup`, nor an object with its options.
    """

    name = "simple"
    warmup: Warmup | None = field(default=None, converter=read_warmup)

    def offer(self, group: GroupSnapshot, context: RoundContext) -> Offer:
        """Offer all resources with their rightful owners; resources being stopped are free."""
        return offer_round(group, context, _NO_DELAYS)

    def stage(
        self, group: GroupSnapshot, target: Int32Array, context: RoundContext, offer: Offer
    ) -> StagedRound:
        """Keep, revoke and grant by the rule of this module."""
        return stage_round(group, target, context, offer, _NO_DELAYS)
