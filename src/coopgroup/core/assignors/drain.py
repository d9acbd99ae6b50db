"""`DrainTimeAssignor`: all members finish their backlog at the same time, on unequal machines.

Members report how many records they process in a second of work. The leader knows the lag of each
partition and how fast it grows. The assignor evens out the time that each member needs to drain its
partitions, so fast members get more.

1. Fresh placement: the longest work first, each partition to the member that finishes it first
   (`levelling.longest_first`).
2. If members own partitions, each keeps what it can, and the free partitions are dealt. Every
   member gets at least one if there are enough.
3. If times are less even than in a fresh placement, by more than a move must gain, partitions move:
   many in one step where shares differ, single ones and exchanges where single partitions matter
   (package `levelling`).

If subscriptions differ, pools are dealt and levelled one after the other. Each pool counts the load
that its subscribers carry from the other pools.

Where the objective comes from. Member m processes mu_m records a second. Its partitions S_m receive
lambda_p records a second, and L_p records already wait. The member has drained them at time T, when
it has processed the backlog and everything that arrived by then:

    sum over S_m of (L_p + lambda_p * T)  =  mu_m * T

So T = L / (mu - lambda). A member that receives more than it processes never drains. For a given T
the left side is a sum of one number per partition. This is the classic problem of uniform parallel
machines (Q||Cmax). Partition p is a job of w_p = L_p + lambda_p * T records, member m is a machine
of speed mu_m, and the longest sum(w) / mu is to be minimal. If the minimum equals T, all members
finish after T, and a shorter time is impossible. We insert the T that the group would need if
partitions were divisible, sum(L) / (sum(mu) - sum(lambda)): the horizon. A member above T by some
share has a real drain time above T by that share, divided by 1 - lambda / mu.

Bounds against noise:

- The horizon is at least one minute: a group without backlog is balanced in proportion to its
  arrival rates. It is at most one hour, also if the group receives more than it processes. Then all
  members fall behind alike.
- A partition weighs at least its part of ten seconds of the group's work, and at least a hundredth
  of the mean partition. Members commit every few seconds, so smaller lags are noise. Idle
  partitions must not all gather on one member.
- A rate counts as at most ten times the median of the others (`GroupSnapshot.rates_per_s`).
- A member that reports no rate counts as the mean of the others. A rate below a thousandth of the
  mean counts as a thousandth, which keeps times finite. If every reported rate is zero, all rates
  count as unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from attrs import field, frozen

from coopgroup.core.assignors.levelling.placing import Placing, Workload
from coopgroup.core.assignors.move_budget import GAIN_MIN, MoveBudget
from coopgroup.core.assignors.pools import subscriber_pools
from coopgroup.core.model import NOBODY
from coopgroup.core.model.options import count_or_none

if TYPE_CHECKING:
    from coopgroup.core.model.group import Float64Array, GroupSnapshot
    from coopgroup.core.model.resource_set import Int32Array, Int64Array

LOOKS_MAX: Final = 1_000  # about a second in the largest groups; the next round continues


@frozen(kw_only=True)
class DrainTimeAssignor:
    """Evens out the time that members need to drain their partitions.

    Attributes:
        moves_max: how many partitions may leave their owner for better times in one round; None
            means any number. Moves that give a member its first partition do not count. Members
            whose times differ by less than `GAIN_MIN` of the mean time are left alone, and each
            single move must gain more.

    Raises:
        ConfigurationError: a number is out of its range.
    """

    name = "drain-time"
    needs_lags = True

    moves_max: int | None = field(default=None, validator=count_or_none)

    def assign(self, group: GroupSnapshot, lags: Int64Array) -> Int32Array:
        """Place every assignable resource; resources stay with `group.owner` where possible.

        The members and `group.arrivals_per_s` give the known rates.
        """
        placing = Placing(pools=subscriber_pools(group), work=work_of(group, lags))
        fresh = placing.fresh(_budget(None))
        kept = placing.kept(group)
        if not (kept != NOBODY).any():
            return fresh
        goal = placing.work.times(fresh)
        del fresh  # frees four megabytes for a million partitions
        target = kept.copy()
        placing.deal_free(target)
        placing.give_everybody_one(target)
        if not placing.is_as_even(target, goal, GAIN_MIN):
            placing.even_out(target, kept, goal, _budget(self.moves_max))
        return target


def _budget(moves_max: int | None) -> MoveBudget:
    return MoveBudget(gain_min=GAIN_MIN, moves_left=moves_max, looks_left=LOOKS_MAX)


# --- work and speeds ------------------------------------------------------------------------------


_HORIZON_MIN_S: Final = 60.0
_HORIZON_MAX_S: Final = 3_600.0
_MOMENT_S: Final = 10.0
_IDLE_SHARE: Final = 0.01
_SLOWEST_SHARE: Final = 0.001
_RATE_MIN_PER_S: Final = 0.001  # smallest rate that user data can express
_TOTAL_BITS: Final = 50  # a float is exact for such sums and fine enough for fractions of them


def work_of(group: GroupSnapshot, lags: Int64Array) -> Workload:
    """Weigh the members and the resources to be placed.

    Args:
        group: the group with its known rates.
        lags: int64 (R,): lag of each resource; a negative lag counts as 0.
    """
    placed = np.flatnonzero(group.assignable & group.subscribed())
    rates = _rates_per_s(group)
    weights = np.zeros(lags.size, dtype=np.int64)
    if placed.size:
        records = _records(group, lags, placed, None if rates is None else float(rates.sum()))
        _, exponent = np.frexp(records.sum())
        np.ldexp(records, _TOTAL_BITS - int(exponent), out=records)
        np.rint(records, out=records)
        weights[placed] = np.maximum(records, 1, out=records)
    speeds = np.ones(len(group.members)) if rates is None else rates / rates.mean()
    return Workload(weights=weights, speeds=np.maximum(speeds, _SLOWEST_SHARE))


def _rates_per_s(group: GroupSnapshot) -> Float64Array | None:
    """Return the records per second of each member: float64 (M,), or None if no rate is known."""
    rates = group.rates_per_s()
    said = np.isfinite(rates)
    if not said.any() or rates[said].mean() < _RATE_MIN_PER_S:
        return None
    return np.where(said, rates, rates[said].mean())


def _records(
    group: GroupSnapshot, lags: Int64Array, placed: Int64Array, total_per_s: float | None
) -> Float64Array:
    """Return the records that each resource in `placed` stands for: float64 (P,).

    `total_per_s` is the rate of all members together, or None if unknown.
    """
    records = lags[placed].astype(np.float64)
    np.maximum(records, 0, out=records)
    horizon_s = _HORIZON_MIN_S
    if group.arrivals_per_s is not None:
        arrivals = np.maximum(group.arrivals_per_s[placed], 0)
        if total_per_s is not None:
            horizon_s = _horizon_s(float(records.sum()), total_per_s - float(arrivals.sum()))
        records += arrivals * horizon_s
    least = max(1.0, _IDLE_SHARE * float(records.mean()))
    if total_per_s is not None:
        least = max(least, _MOMENT_S * total_per_s / placed.size)
    return np.maximum(records, least, out=records)


def _horizon_s(waiting: float, spare_per_s: float) -> float:
    """Return the time that the group needs if partitions are divisible, within bounds."""
    if spare_per_s * _HORIZON_MAX_S <= waiting:
        return _HORIZON_MAX_S
    return max(waiting / spare_per_s, _HORIZON_MIN_S)
