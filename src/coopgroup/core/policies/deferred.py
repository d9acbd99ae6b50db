"""`DeferredPolicy`: resources of a departed member wait for it for some time (Design II).

A restarted process returns soon. Reassigning its resources would cost two rebalances and end where
the group began. So lost resources wait, each loss with its own deadline. All other imbalances are
resolved immediately.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import field, frozen

from coopgroup.core.model.options import check_option
from coopgroup.core.policies.waiting.rounds import Delays, offer_round, stage_round
from coopgroup.core.policies.warming.option import Warmup, read_warmup

if TYPE_CHECKING:
    from attrs import Attribute

    from coopgroup.core.model import GroupSnapshot
    from coopgroup.core.model.resource_set import Int32Array
    from coopgroup.core.policies.base import Offer, RoundContext, StagedRound


def _checked(policy: DeferredPolicy, attribute: Attribute[int], value: int) -> None:
    check_option(policy.name, attribute.name, value)


@frozen(kw_only=True)
class DeferredPolicy:
    """Design II, "Deferred Resolution of Imbalance".

    With a delay of 0 it equals `SimplePolicy`.

    Attributes:
        scheduled_rebalance_timeout_ms: how long lost resources wait for their owner, in ms.
        initial_delay_ms: how long the first members of a group wait for others, in ms; 0 for not at
            all.
        warmup: move a resource only when its new owner is warm; None to move at once.

    Raises:
        ConfigurationError: an option is not an integer from 0 to 2147483647, or `warmup` is not a
            `Warmup`, nor an object with its options.
    """

    name = "deferred"
    scheduled_rebalance_timeout_ms: int = field(default=60_000, validator=_checked)
    initial_delay_ms: int = field(default=0, validator=_checked)
    warmup: Warmup | None = field(default=None, converter=read_warmup)

    def offer(self, group: GroupSnapshot, context: RoundContext) -> Offer:
        """Offer all resources that do not wait for their owner."""
        return offer_round(group, context, self._delays)

    def stage(
        self, group: GroupSnapshot, target: Int32Array, context: RoundContext, offer: Offer
    ) -> StagedRound:
        """Stage a round."""
        return stage_round(group, target, context, offer, self._delays)

    @property
    def _delays(self) -> Delays:
        return Delays(loss_ms=self.scheduled_rebalance_timeout_ms, initial_ms=self.initial_delay_ms)
