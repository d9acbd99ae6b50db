"""Check a leader's round when it is made: what no record shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coopgroup.core.model import NOBODY
from coopgroup.core.policies.warming.bundles import bundles_of
from coopgroup.core.policies.warming.option import warmup_of

if TYPE_CHECKING:
    from coopgroup.core.model import GroupSnapshot, RoundPlan
    from coopgroup.core.model.resource_set import BoolArray
    from coopgroup.core.policies.base import Policy


def taken_from_owners(group: GroupSnapshot, plan: RoundPlan, policy: Policy) -> BoolArray:
    """Return the resources that a round takes from an owner that is also their target: bool (R,).

    Resources of a bundle whose parts have several owners are left out, because such a bundle is
    united, whatever its target is.
    """
    stays: BoolArray = (group.owner == plan.target) & (group.owner != NOBODY) & group.assignable
    if plan.stopping is not None:  # revoked before the current target was chosen
        stays[group.claim_resources[plan.stopping]] = False
    option = warmup_of(policy)
    bundles = None if option is None else bundles_of(group, option.co_partition)
    if bundles is not None:
        stays &= group.owner == bundles.group.owner[bundles.bundle_of]
    taken: BoolArray = stays & (plan.assigned != group.owner)
    return taken
