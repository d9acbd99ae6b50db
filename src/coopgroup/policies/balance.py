"""Continuous lag balance: whether lags have been uneven for so long that something should move.

A round is only ever asked for because something lasts. Lags rise and fall by the second, so what
one look at them shows is no reason. Rules of this file: a member carries too much when its lag has
been above a multiple of the mean at several looks in a row; below a lower multiple it carries no
longer too much, and between the two nothing is known anew; what is too little to matter never
counts; and while anything waits or moves, nobody looks.

Members that tell how fast they are (`consumption_rate_per_s`) are compared by how long they need
for what they carry: to one of twice the mean speed its lag counts half.

Legend of the table `LAG_STEPS`, one decision for each member at each look:

    matters   the member's lag is at least the least that counts
    over      it is above the upper multiple of the mean
    calm      it is not above the lower multiple of the mean
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

import numpy as np
from attrs import frozen

from coopgroup.policies.table import DecisionTable, Row, _0, _1, __

if TYPE_CHECKING:
    from coopgroup.model import GroupSnapshot
    from coopgroup.model.group import Float64Array
    from coopgroup.model.resource_set import BoolArray, Int32Array, Int64Array
    from coopgroup.policies.state import PolicyState

__all__ = [
    "LAG_STEPS",
    "BalanceRule",
    "LagStep",
    "count_looks",
    "is_at_rest",
    "lag_loads",
    "overloaded",
    "speeds",
]

_SPEED_MAX: Final = 10.0  # of a member, in means: what it measured in a moment is not believed more


class LagStep(Enum):
    """What a look at the lags does to the count of a member."""

    COUNT = "one look more at which it carries too much"
    HOLD = "as it was"
    RESET = "it carries no longer too much"


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
@A: It has to be so at several looks in a row before anything is done.
@B: Hysteresis: a lag that wavers about the upper multiple neither gets there faster for it, nor
    does one look just below it make forgotten what was seen before.
@C: It has caught up, or the others have as much by now.
@D: Where hardly anything lags, the mean is next to nothing, and any lag is a multiple of it.
"""


@frozen(kw_only=True)
class BalanceRule:
    """When lags are uneven, and what may be done about it.

    Attributes:
        interval_ms: from one look at the lags to the next.
        ratio: a member carries too much above this multiple of the mean lag of a member.
        calm_ratio: it carries no longer too much at or below this multiple.
        looks: how many looks in a row have to show it.
        lag_min: a member with less lag than this, in records, never carries too much.
        cooldown_ms: from a round that was asked for to the next look, so that what it did shows.
        moves_max: how many resources one round takes from their owners.
    """

    interval_ms: int
    ratio: float
    calm_ratio: float
    looks: int
    lag_min: int
    cooldown_ms: int
    moves_max: int


def speeds(group: GroupSnapshot) -> Float64Array:
    """How fast each member is, in means of those that tell: float64 (M,), 1 where unknown."""
    told = np.array([member.consumption_rate_per_s or 0.0 for member in group.members])
    known = told > 0
    if not known.any():
        return np.ones(told.size)
    relative = np.where(known, told / told[known].mean(), 1.0)
    return np.clip(relative, 1 / _SPEED_MAX, _SPEED_MAX)


def lag_loads(group: GroupSnapshot, holder: Int32Array, lags: Int64Array) -> Float64Array:
    """Lag that each member carries, by its speed: float64 (M,).

    Args:
        group: with M members and R resources.
        holder: int32 (R,): member numbers, NOBODY where nobody holds it.
        lags: int64 (R,): none below 0.
    """
    # NOBODY is -1
    sums = np.bincount(holder + 1, weights=lags, minlength=len(group.members) + 1)
    loads: Float64Array = sums[1:] / speeds(group)
    return loads


def overloaded(rule: BalanceRule, loads: Float64Array) -> BoolArray:
    """Which members carry enough to give something away: bool (M,).

    Args:
        rule: of the policy.
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
    """At how many looks in a row each member has carried too much.

    Args:
        rule: of the policy.
        member_ids: M ids.
        loads: float64 (M,): lag of each member, none below 0.
        before: what the last look returned; () at the first one.

    Returns:
        (member id, looks) of those that have any, in the order of the members.
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
    """Whether nothing waits, moves or stops, so that the lags are those of a settled group.

    Args:
        state: what the leader remembers of its last round.
        now_ms: the leader's clock.
    """
    waits = bool(state.lost.resources) or state.initial_until_ms is not None or state.blind
    moves = state.moves_pending or bool(state.planned) or bool(state.stopping.resources)
    resting = state.moves_due_ms is None or state.moves_due_ms <= now_ms
    return resting and not waits and not moves


def _mean(loads: Float64Array) -> float:
    return float(loads.mean()) if loads.size else 0.0
