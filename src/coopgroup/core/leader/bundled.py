"""A round whose resources belong together: it is decided for bundles (`co_partition`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import numpy as np
from attrs import frozen

from coopgroup.core.model.lags import Lags
from coopgroup.core.policies.warming.bundled import bundled_context, opened_plan, opened_state
from coopgroup.core.policies.warming.bundles import bundles_of
from coopgroup.core.policies.warming.option import warmup_of

if TYPE_CHECKING:
    from coopgroup.core.model import GroupSnapshot, RoundPlan
    from coopgroup.core.model.resource_set import Int64Array
    from coopgroup.core.policies.base import Policy, RoundContext
    from coopgroup.core.policies.state import PolicyState
    from coopgroup.core.policies.warming.bundles import Bundles


@frozen(kw_only=True, eq=False)
class BundledRound:
    """The input of a round for its bundles.

    Attributes:
        bundles: the bundles, and the group with all parts.
        whole: circumstances of the round, for all parts.
        context: the same for the bundles.
        lags: the sum over the parts of each bundle.
    """

    bundles: Bundles
    whole: RoundContext
    context: RoundContext
    lags: Lags

    @classmethod
    def of(
        cls, group: GroupSnapshot, context: RoundContext, lags: Lags, policy: Policy
    ) -> BundledRound | None:
        """Return the round for bundles; None if each resource is on its own."""
        option = warmup_of(policy)
        if option is None or not option.co_partition:
            return None
        bundles = bundles_of(group, option.co_partition)
        if bundles is None:
            return None
        arrivals = lags.aligned_arrivals(group.resources)
        summed = Lags(
            resources=bundles.group.resources,
            values=_whole_numbers(bundles, lags.aligned(group.resources)),
            arrivals_per_s=None if arrivals is None else bundles.sum_of(arrivals),
        )
        bundled = bundled_context(bundles, context)
        if context.lags is not None:
            seen = _whole_numbers(bundles, context.lags.aligned(group.resources))
            bundled = attrs.evolve(
                bundled, lags=Lags(resources=bundles.group.resources, values=seen)
            )
        return cls(bundles=bundles, whole=context, context=bundled, lags=summed)

    @property
    def asked(self) -> tuple[GroupSnapshot, RoundContext, Lags]:
        """The input of the decision: each bundle is one resource."""
        return self.bundles.group, self.context, self.lags

    def opened(self, plan: RoundPlan, state: PolicyState) -> tuple[RoundPlan, PolicyState]:
        """Return plan and memory for all parts."""
        opened = opened_plan(self.bundles, self.whole, plan)
        return opened, opened_state(self.bundles, self.whole, opened, state)


def _whole_numbers(bundles: Bundles, lags: Int64Array) -> Int64Array:
    sums: Int64Array = bundles.sum_of(lags).astype(np.int64)
    return sums
