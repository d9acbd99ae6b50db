"""A leader's looks at the lags between rounds, and the round that it asks for when they last.

Theory of operation. A round that is led by a policy with a `BalanceRule`, and an assignor that
reads lags, leaves a `LagWatch` in the session. Whenever a look is due, and the member leads a group
at rest, the session asks its host for one (`CheckLags`). The host looks the lags up and gives
`check_lags` what it found, where that delays nobody; the outcome (`LagsChecked`) is an event. If
lags have been uneven for long the assignor was asked where resources would go now, and the policy
found something worth moving among that: only then is a round asked for.

Rules of this file: a look costs nothing but itself. One that fails, or takes too long, counts for
nothing; what comes after another round was led, or after the member stopped leading, is void.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import attrs
import numpy as np
import numpy.typing as npt
from attrs import frozen

from coopgroup.model import NOBODY
from coopgroup.policies.balance import BalanceRule, count_looks, lag_loads
from coopgroup.policies.lag_moves import lag_moves
from coopgroup.policies.safety import check_target
from coopgroup.telemetry import BalanceRequested

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coopgroup.assignors.base import Assignor
    from coopgroup.leader import Lags, LedRound
    from coopgroup.model import GroupSnapshot, ResourceSet
    from coopgroup.model.group import Float64Array
    from coopgroup.model.resource_set import BoolArray, Int64Array
    from coopgroup.policies.base import Policy, RoundContext

__all__ = ["CheckLags", "LagWatch", "LagsChecked", "check_lags", "next_watch", "watch_of"]

_Scalar = TypeVar("_Scalar", bound=np.generic)


@frozen(kw_only=True, eq=False)
class LagWatch:
    """What a leader remembers between two looks at the lags.

    Attributes:
        rule: of the policy.
        group: as the last round left it; its owners are who holds what since.
        asked: whether that round was asked for because lags were uneven.
        moved: whether anything changed hands in it.
        looks: (member id, looks in a row at which it carried too much) of those that have any.
        lags: of the group's resources at the last look, int64 (R,); None before the first one.
        due_ms: when the next look is due.
        number: of the last look that was asked for.
    """

    rule: BalanceRule
    group: GroupSnapshot
    asked: bool
    moved: bool
    looks: tuple[tuple[str, int], ...] = ()
    lags: Int64Array | None = None
    due_ms: int = 0
    number: int = 0


@frozen(kw_only=True, eq=False)
class CheckLags:
    """Effect: look the lags up and give `check_lags` what was found, off the loop.

    Attributes:
        number: distinct number, which `check_lags` hands on.
        watch: the leader's memory.
    """

    number: int
    watch: LagWatch

    @property
    def resources(self) -> ResourceSet:
        """Whose lags are wanted."""
        group = self.watch.group
        return group.resources.take(group.assignable)


@frozen(kw_only=True, eq=False)
class LagsChecked:
    """Event: the lags were looked at.

    Attributes:
        number: of the `CheckLags`.
        looks: see `LagWatch`.
        lags: see `LagWatch`.
        request: why a round is asked for; None where none is.
    """

    number: int
    looks: tuple[tuple[str, int], ...]
    lags: Int64Array | None = None
    request: BalanceRequested | None = None


def watch_of(
    led: LedRound, context: RoundContext, assignor: Assignor, policy: Policy
) -> LagWatch | None:
    """What a round leaves to watch; None where the policy does not want that, or nobody reads lags.

    Args:
        led: the round.
        context: its circumstances.
        assignor: which decided it.
        policy: likewise; one that watches has a `BalanceRule` as its attribute `balance`.
    """
    rule = getattr(policy, "balance", None)
    if not isinstance(rule, BalanceRule) or not assignor.needs_lags:
        return None
    group, assigned = led.decided.group, led.decided.plan.assigned
    return LagWatch(
        rule=rule,
        group=group.view(owner=_read_only(assigned.copy()), assignable=group.assignable),
        asked=context.balance,
        moved=not np.array_equal(group.owner, assigned),
    )


def next_watch(before: LagWatch | None, after: LagWatch | None, now_ms: int) -> LagWatch | None:
    """What to remember once another round was led.

    Where something changed hands, or a round was asked for, the looks begin anew: what was seen
    before says nothing of how it is now. After one that was asked for there is a pause, so that it
    shows what that one did.

    Args:
        before: the memory so far, None for none.
        after: what the round leaves, None for nothing.
        now_ms: the host's monotonic clock.
    """
    if after is None:
        return None
    due_ms = now_ms + (after.rule.cooldown_ms if after.asked else after.rule.interval_ms)
    if before is None:
        return attrs.evolve(after, due_ms=due_ms)
    number = before.number + 1  # an answer that is still to come is void
    if after.moved or after.asked:
        return attrs.evolve(after, due_ms=max(due_ms, before.due_ms), number=number)
    after = attrs.evolve(after, due_ms=before.due_ms, number=number)
    if after.group.resources == before.group.resources:
        after = attrs.evolve(after, looks=before.looks, lags=before.lags)
    return after


def check_lags(duty: CheckLags, lags: Lags | None, *, assignor: Assignor) -> LagsChecked:
    """Say whether a round should be asked for. Pure, and as slow as the assignor is.

    Args:
        duty: the effect.
        lags: what was looked up; None where that failed, and the look counts for nothing.
        assignor: says where.
    """
    watch = duty.watch
    if lags is None:
        return LagsChecked(number=duty.number, looks=watch.looks, lags=watch.lags)
    group, rule = watch.group, watch.rule
    figures = _read_only(lags.aligned(group.resources))
    loads = lag_loads(group, group.owner, figures)
    looks = count_looks(rule, group.member_ids, loads, watch.looks)
    overloaded = [member for member, count in looks if count >= rule.looks]
    arrivals = lags.aligned_arrivals(group.resources)
    if arrivals is not None:
        group = attrs.evolve(group, arrivals_per_s=_read_only(arrivals))
    # What comes and goes between two looks would be gone again by the time of the round.
    lasting = figures if watch.lags is None else np.minimum(figures, watch.lags)
    moves = _worthwhile_moves(group, rule, _read_only(lasting), assignor) if overloaded else None
    request = None if moves is None else _request(group, loads, overloaded, moves)
    return LagsChecked(number=duty.number, looks=looks, lags=figures, request=request)


def _worthwhile_moves(
    group: GroupSnapshot, rule: BalanceRule, lags: Int64Array, assignor: Assignor
) -> BoolArray | None:
    """What would move now, bool (R,); None where that is not worth a round.

    A user's assignor that fails says nothing here: the next round will tell.
    """
    try:
        target = assignor.assign(group, lags)
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


def _read_only(array: npt.NDArray[_Scalar]) -> npt.NDArray[_Scalar]:
    array.flags.writeable = False
    return array
