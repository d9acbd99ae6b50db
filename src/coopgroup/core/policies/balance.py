"""Continuous lag balance: whether lags have been uneven for so long that resources should move.

Lags change every second, so a single check is no reason for a round. A member is overloaded if its
lag exceeds a multiple of the mean in several consecutive checks. Below a lower multiple the count
is reset, and between the two it stays. A lag that is too small never counts. While a resource waits
or moves, the leader does not check.

Members that report their rate (`consumption_rate_per_s`) are compared by the time that they need
for their backlog: the lag of a member with twice the mean speed counts half.

Legend of the table `LAG_STEPS`, one decision for each member at each check:

    matters   the member's lag is at least the minimum that counts
    over      the lag is above the upper multiple of the mean
    calm      the lag is not above the lower multiple of the mean
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

import numpy as np
from attrs import frozen

from coopgroup.core.policies.table import DecisionTable, Row, _0, _1, __

if TYPE_CHECKING:
    from coopgroup.core.model import GroupSnapshot
    from coopgroup.core.model.group import Float64Array
    from coopgroup.core.model.resource_set import BoolArray, Int32Array, Int64Array
    from coopgroup.core.policies.state import PolicyState

_SPEED_MAX: Final = 10.0  # in multiples of the mean; bounds the trust in a brief measurement


class LagStep(Enum):
    """The effect of a check on the count of a member."""

    COUNT = "one more check in which the member is overloaded"
    HOLD = "no change"
    RESET = "the member is not overloaded"


# fmt: off
LAG_STEPS: Final = DecisionTable(
    columns=("matters", "over", "calm"),
    rows=(
        #          matters over calm
        Row("@A", (_1,     _1,  __), LagStep.COUNT),
        Row("@B", (_1,     _0,  _0), LagStep.HOLD),
        Row("@C", (_1,     _0,  _1), LagStep.RESET),
        Row("@D", (_0,     __,  __), LagStep.RESET),
    ),
)
# fmt: on
"""
@A: Several checks in a row must agree before resources move.
@B: Hysteresis: a lag that varies around the upper multiple does not reset the count at each check
    below it.
@C: The member has caught up, or the others now have the same lag.
@D: If almost nothing lags, the mean is near zero, and any small lag is a multiple of it.
"""


@frozen(kw_only=True)
class BalanceRule:
    """When lags are uneven, and how far a round may change that.

    Attributes:
        interval_ms: time between two checks of the lags.
        lag_min: a member with less lag than this, in records, is never overloaded.
        cooldown_ms: time from a balancing round to the next check, so that its effect shows.
        moves_max: how many resources one round takes from their owners.
        ratio: a member above this multiple of the mean lag is overloaded.
        calm_ratio: a member at or below this multiple is no longer overloaded.
        looks: number of consecutive checks that must show it.
    """

    interval_ms: int
    lag_min: int
    cooldown_ms: int
    moves_max: int
    ratio: float = 1.5
    calm_ratio: float = 1.25
    looks: int = 3


def speeds(group: GroupSnapshot) -> Float64Array:
    """Return each member's speed as a multiple of the known mean: float64 (M,), 1 if unknown."""
    told = np.nan_to_num(group.rates_per_s())
    known = told > 0
    if not known.any():
        return np.ones(told.size)
    relative = np.where(known, told / told[known].mean(), 1.0)
    return np.clip(relative, 1 / _SPEED_MAX, _SPEED_MAX)


def lag_loads(group: GroupSnapshot, holder: Int32Array, lags: Int64Array) -> Float64Array:
    """Return each member's lag divided by its speed: float64 (M,).

    Args:
        group: with M members and R resources.
        holder: int32 (R,): member numbers, `NOBODY` without a holder.
        lags: int64 (R,): at least 0.
    """
    # `NOBODY` is -1
    sums = np.bincount(holder + 1, weights=lags, minlength=len(group.members) + 1)
    loads: Float64Array = sums[1:] / speeds(group)
    return loads


def overloaded(rule: BalanceRule, loads: Float64Array) -> BoolArray:
    """Return which members have enough lag to give something away: bool (M,).

    Args:
        rule: rule of the policy.
        loads: float64 (M,): lag of each member.
    """
    over: BoolArray = (loads > rule.calm_ratio * _mean(loads)) & (loads >= rule.lag_min)
    return over


def count_looks(
    rule: BalanceRule,
    member_ids: tuple[str, ...],
    loads: Float64Array,
    before: tuple[tuple[str, int], ...],
) -> tuple[tuple[str, int], ...]:
    """Return in how many consecutive checks each member was overloaded.

    Args:
        rule: rule of the policy.
        member_ids: M ids.
        loads: float64 (M,): lag of each member, at least 0.
        before: result of the last check; () at the first one.

    Returns:
        (member id, checks) of the members with a count, in the order of the members.
    """
    facts = {
        "matters": loads >= rule.lag_min,
        "over": loads > rule.ratio * _mean(loads),
        "calm": loads <= rule.calm_ratio * _mean(loads),
    }
    known = dict(before)
    looks = np.array([known.get(member, 0) for member in member_ids], dtype=np.int64)
    looks[LAG_STEPS.decide_each(LagStep.COUNT, **facts)] += 1
    looks[LAG_STEPS.decide_each(LagStep.RESET, **facts)] = 0
    counted = np.flatnonzero(looks).tolist()
    return tuple((member_ids[number], int(looks[number])) for number in counted)


def is_at_rest(state: PolicyState, now_ms: int) -> bool:
    """Return whether the group is settled: no resource waits, moves or stops.

    Args:
        state: the leader's memory of its last round.
        now_ms: the leader's clock.
    """
    waits = bool(state.lost.resources) or state.initial_until_ms is not None or state.blind
    moves = state.moves_pending or bool(state.planned) or bool(state.stopping.resources)
    resting = state.moves_due_ms is None or state.moves_due_ms <= now_ms
    return resting and not waits and not moves


def _mean(loads: Float64Array) -> float:
    return float(loads.mean()) if loads.size else 0.0
