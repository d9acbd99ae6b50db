"""A leader's lag checks between rounds, and the round that it starts if lags stay uneven.

Theory of operation. A round with a `BalanceRule` in its policy and an assignor that reads lags
leaves a `LagWatch` in the session. When a check is due, and the member leads a settled group, the
session asks its host for it (`CheckLags`). The host looks up the lags and passes them to
`check_lags`, where that delays nothing else. The result (`LagsChecked`) is an event. A round starts
only if lags were uneven for a long time and the policy found useful moves in the assignor's present
target.

A failed or slow check counts for nothing. A result is void after another round, or after the member
has stopped leading.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import numpy as np
from attrs import frozen

from coopgroup.core.assignors.base import Placement
from coopgroup.core.leader.decision import read_only
from coopgroup.core.member import MemberState
from coopgroup.core.member.effects import Report
from coopgroup.core.member.events import RejoinRequested, Woken
from coopgroup.core.model import NOBODY
from coopgroup.core.model.replacing import replaced
from coopgroup.core.policies.balance import (
    BalanceRule,
    count_looks,
    is_at_rest,
    lag_loads,
    lag_moves,
)
from coopgroup.core.policies.bundles import bundles_of
from coopgroup.core.policies.safety import check_target
from coopgroup.core.policies.warmth import warmup_of
from coopgroup.core.session.own_rounds import own_round_stands
from coopgroup.core.session.state import LagWatch
from coopgroup.core.telemetry.records import BalanceRequested

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coopgroup.core.assignors.base import Assignor
    from coopgroup.core.leader import Lags, RoundDecision
    from coopgroup.core.model import GroupSnapshot, ResourceSet
    from coopgroup.core.model.group import Float64Array
    from coopgroup.core.model.resource_set import BoolArray, Int64Array
    from coopgroup.core.policies.policy import Policy, RoundContext
    from coopgroup.core.session.state import Session


@frozen(kw_only=True, eq=False)
class CheckLags:
    """Effect: look up the lags and pass them to `check_lags`, off the loop.

    Attributes:
        number: distinct number, returned by `check_lags`.
        watch: the leader's memory.
    """

    number: int
    watch: LagWatch

    @property
    def resources(self) -> ResourceSet:
        """The resources whose lags are needed."""
        group = self.watch.group
        return group.resources.take(group.assignable)


@frozen(kw_only=True, eq=False)
class LagsChecked:
    """Event: the lags were checked.

    Attributes:
        number: number of the `CheckLags`.
        looks: see `LagWatch`.
        lags: see `LagWatch`.
        request: why a round should start; None for no round.
    """

    number: int
    looks: tuple[tuple[str, int], ...]
    lags: Int64Array | None = None
    request: BalanceRequested | None = None


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
    group, assigned = decision.group, decision.plan.assigned
    warmup = warmup_of(policy)
    return LagWatch(
        rule=rule,
        group=group.view(owner=read_only(assigned.copy()), assignable=group.assignable),
        asked=context.balance,
        moved=not np.array_equal(group.owner, assigned),
        co_partition=() if warmup is None else warmup.co_partition,
    )


def next_watch(before: LagWatch | None, after: LagWatch | None, now_ms: int) -> LagWatch | None:
    """Return the memory after another round.

    If a resource moved, or if the round was started for balance, counting restarts: earlier checks
    say nothing about the present. After a balancing round, wait one cool-down, so that its effect
    shows in the lags.

    Args:
        before: memory so far, or None.
        after: memory from the round, or None.
        now_ms: the host's monotonic clock.
    """
    if after is None:
        return None
    due_ms = now_ms + (after.rule.cooldown_ms if after.asked else after.rule.interval_ms)
    if before is None:
        return attrs.evolve(after, due_ms=due_ms)
    number = before.number + 1  # voids an answer that is still to come
    if after.moved or after.asked:
        return attrs.evolve(after, due_ms=max(due_ms, before.due_ms), number=number)
    after = attrs.evolve(after, due_ms=before.due_ms, number=number)
    if after.group.resources == before.group.resources:
        after = attrs.evolve(after, looks=before.looks, lags=before.lags)
    return after


def check_lags(duty: CheckLags, lags: Lags | None, *, assignor: Assignor) -> LagsChecked:
    """Decide whether a round should start. Pure, and as slow as the assignor.

    Args:
        duty: the effect.
        lags: the result of the look-up; None if it failed, and the check counts for nothing.
        assignor: decides where.
    """
    watch = duty.watch
    if lags is None:
        return LagsChecked(number=duty.number, looks=watch.looks, lags=watch.lags)
    group, rule = watch.group, watch.rule
    figures = read_only(lags.aligned(group.resources))
    loads = lag_loads(group, group.owner, figures)
    looks = count_looks(rule, group.member_ids, loads, watch.looks)
    overloaded = [member for member, count in looks if count >= rule.looks]
    arrivals = lags.aligned_arrivals(group.resources)
    if arrivals is not None:
        group = attrs.evolve(group, arrivals_per_s=read_only(arrivals))
    # A short peak between two checks would be gone by the time of the round.
    lasting = figures if watch.lags is None else np.minimum(figures, watch.lags)
    moves = _moves_of(watch, group, lasting, assignor) if overloaded else None
    request = None if moves is None else _request(group, loads, overloaded, moves)
    return LagsChecked(number=duty.number, looks=looks, lags=figures, request=request)


def _moves_of(
    watch: LagWatch, group: GroupSnapshot, lags: Int64Array, assignor: Assignor
) -> BoolArray | None:
    """Return the resources that would move now; those that belong together move together."""
    bundles = bundles_of(group, watch.co_partition) if watch.co_partition else None
    if bundles is None:
        return _worthwhile_moves(group, watch.rule, read_only(lags), assignor)
    summed = bundles.sum_of(lags).astype(np.int64)
    moves = _worthwhile_moves(bundles.group, watch.rule, read_only(summed), assignor)
    return None if moves is None else moves[bundles.bundle_of]


def _worthwhile_moves(
    group: GroupSnapshot, rule: BalanceRule, lags: Int64Array, assignor: Assignor
) -> BoolArray | None:
    """Return the resources that would move now, bool (R,); None if they are not worth a round.

    Errors of a user's assignor are ignored here: the next round will report them.
    """
    try:
        target = assignor.assign(group, lags)
        if isinstance(target, Placement):  # what has no owner moves in no look
            placed = target.target != NOBODY
            group, target = replaced(group, assignable=group.assignable & placed), target.target
        check_target(group, target)
        candidates = (group.owner != NOBODY) & (target != NOBODY) & (group.owner != target)
    except Exception:  # noqa: BLE001 -- a look costs nothing but itself
        return None
    moves: BoolArray = lag_moves(group, target, lags, candidates, rule) != NOBODY
    return moves if moves.any() else None


def _request(
    group: GroupSnapshot, loads: Float64Array, overloaded: Sequence[str], moves: BoolArray
) -> BalanceRequested:
    load_of = dict(zip(group.member_ids, loads.tolist(), strict=True))
    return BalanceRequested(
        overloaded=tuple(overloaded),
        lags=tuple(round(load_of[member]) for member in overloaded),
        mean_lag=round(float(loads.mean())),
        resources=group.resources.take(moves),
    )


def look_deadline_ms(session: Session) -> int | None:
    """Return when the next lag check is due, in ms; None while this member does not check.

    Only the leader checks, while its own round stands and no round is under way.
    """
    watch, member = session.watch, session.member
    if watch is None or session.asks_balance or member.state is not MemberState.STABLE:
        return None
    return watch.due_ms if own_round_stands(session) else None


def due_check(session: Session, now_ms: int) -> tuple[Session, tuple[CheckLags, ...]]:
    """Request a due check; while a resource waits or moves, postpone it and restart counting."""
    due_ms = look_deadline_ms(session)
    watch, state = session.watch, session.policy_state
    if watch is None or state is None or due_ms is None or now_ms < due_ms:
        return session, ()
    at_rest = is_at_rest(state, now_ms)
    watch = attrs.evolve(
        watch,
        due_ms=now_ms + watch.rule.interval_ms,
        number=watch.number + 1,
        looks=watch.looks if at_rest else (),
    )
    session = replaced(session, watch=watch)
    return session, (CheckLags(number=watch.number, watch=watch),) if at_rest else ()


def with_result(
    session: Session, event: LagsChecked
) -> tuple[Session, RejoinRequested | Woken, tuple[Report, ...]]:
    """Process the result of a check, unless it is void; return the resulting event."""
    watch = session.watch
    if watch is None or event.number != watch.number or look_deadline_ms(session) is None:
        return session, Woken(), ()
    session = replaced(session, watch=attrs.evolve(watch, looks=event.looks, lags=event.lags))
    if event.request is None:
        return session, Woken(), ()
    session = replaced(session, asks_balance=True)
    return session, RejoinRequested(reason="lags are uneven"), (Report(record=event.request),)
