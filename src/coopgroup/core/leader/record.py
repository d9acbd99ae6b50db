"""The record of a decided round, for telemetry."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coopgroup.core.model import EMPTY, NOBODY
from coopgroup.core.model.plan import revoked_claims
from coopgroup.core.telemetry.records import RoundDecided

if TYPE_CHECKING:
    from coopgroup.core.assignors.base import Assignor
    from coopgroup.core.model import GroupSnapshot, RoundPlan
    from coopgroup.core.policies.base import Policy, RoundContext

__all__ = ["round_record"]


def round_record(
    group: GroupSnapshot,
    plan: RoundPlan,
    assignor: Assignor,
    policy: Policy,
    context: RoundContext,
) -> RoundDecided:
    """Return the record of a round: what it gives, takes, and puts off."""
    stopped = revoked_claims(group, plan.assigned)
    kept = np.zeros(len(group.resources), dtype=np.bool_)
    kept[group.claim_resources[~stopped]] = True
    revoked = np.zeros(len(group.resources), dtype=np.bool_)
    revoked[group.claim_resources[stopped]] = True
    take, state = group.resources.take, context.state
    remembered = EMPTY if state is None else (state.known | state.granted) - group.resources
    return RoundDecided(
        policy=policy.name,
        assignor=assignor.name,
        members=group.member_ids,
        granted=take((plan.assigned != NOBODY) & ~kept),
        revoked=take(revoked),
        lost=take(plan.lost),
        created=take(plan.created),
        waiting=take(plan.waiting),
        contested=take(group.contested),
        follow_up=plan.follow_up,
        scheduled_rebalance_timeout_ms=plan.scheduled_rebalance_timeout_ms,
        protocol=context.protocol,
        gone=take(~group.assignable) | remembered,
    )
