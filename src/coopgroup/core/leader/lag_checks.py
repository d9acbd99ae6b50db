"""Check the lags between rounds: would a round that starts now move anything?

`coopgroup.core.session.balancing` says when a leader checks, and what the answer causes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import numpy as np

from coopgroup.core.leader.decision import decide_round, read_only
from coopgroup.core.model import NOBODY
from coopgroup.core.model.lags import Lags
from coopgroup.core.policies.balance import BalanceRule, count_looks, lag_loads
from coopgroup.core.policies.memory import PairKind
from coopgroup.core.policies.policy import RoundContext
from coopgroup.core.session.balancing import LagsChecked
from coopgroup.core.session.state import LagWatch
from coopgroup.core.telemetry.records import BalanceRequested

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coopgroup.core.assignors.base import Assignor
    from coopgroup.core.leader.decision import RoundDecision
    from coopgroup.core.model import GroupSnapshot, ResourceSet
    from coopgroup.core.model.group import Float64Array
    from coopgroup.core.policies.policy import Policy
    from coopgroup.core.session.balancing import CheckLags
    from coopgroup.core.session.deciding import LeaderContext


def context_of(known: LeaderContext) -> RoundContext:
    """Return the circumstances of a round as its policy gets them."""
    return RoundContext(**attrs.asdict(known, recurse=False))


def watch_of(
    decision: RoundDecision, context: RoundContext, assignor: Assignor, policy: Policy
) -> LagWatch | None:
    """Return the watch after a round; None if the policy has no rule or no lags are read.

    Args:
        decision: the round.
        context: its circumstances.
        assignor: assignor of the round.
        policy: policy of the round; its `BalanceRule`, if any, is its attribute `balance`.
    """
    rule = getattr(policy, "balance", None)
    if not isinstance(rule, BalanceRule) or not assignor.needs_lags:
        return None
    group, owner = decision.group, read_only(decision.plan.assigned.copy())
    owned = np.flatnonzero(owner != NOBODY).astype(np.int32)
    # Revoked claims are missing here: no check is due before members have given them up.
    return LagWatch(
        rule=rule,
        group=attrs.evolve(group, owner=owner, claim_members=owner[owned], claim_resources=owned),
        asked=context.balance,
        moved=not np.array_equal(group.owner, owner),
    )


def check_lags(
    duty: CheckLags, lags: Lags | None, *, assignor: Assignor, policy: Policy
) -> LagsChecked:
    """Decide whether a round should start. Pure, and as slow as a round.

    Args:
        duty: the effect.
        lags: the result of the look-up; None if it failed, and the check counts for nothing.
        assignor: decides where.
        policy: decides when.
    """
    watch = duty.watch
    if lags is None:
        return LagsChecked(number=duty.number, looks=watch.looks, lags=watch.lags)
    group, rule = watch.group, watch.rule
    figures = read_only(lags.aligned(group.resources))
    loads = lag_loads(group, group.owner, figures)
    looks = count_looks(rule, group.member_ids, loads, watch.looks)
    overloaded = [member for member, count in looks if count >= rule.looks]
    request = None
    if overloaded:
        # A short peak between two checks would be gone by the time of the round.
        lasting = figures if watch.lags is None else np.minimum(figures, watch.lags)
        arrivals = lags.aligned_arrivals(group.resources)
        seen = Lags(resources=group.resources, values=lasting, arrivals_per_s=arrivals)
        context = attrs.evolve(context_of(duty.context), lags=seen)
        after = decide_round(group, seen, assignor=assignor, policy=policy, context=context).state
        # A move starts now, or when its receiver is warm. The next round will report any error.
        rows, told = after.resources, after.pairs.are(PairKind.TOLD)
        moving = rows.promised.copy()
        moving[after.pairs.resource[told]] = True
        moves = rows.names.take(moving)
        request = _request(group, loads, overloaded, moves) if moves else None
    return LagsChecked(number=duty.number, looks=looks, lags=figures, request=request)


def _request(
    group: GroupSnapshot, loads: Float64Array, overloaded: Sequence[str], moves: ResourceSet
) -> BalanceRequested:
    load_of = dict(zip(group.member_ids, loads.tolist(), strict=True))
    return BalanceRequested(
        overloaded=tuple(overloaded),
        lags=tuple(round(load_of[member]) for member in overloaded),
        mean_lag=round(float(loads.mean())),
        resources=moves,
    )
