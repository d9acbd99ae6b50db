"""How much work each partition is and how fast each member works: what drain times are made of.

The objective, and where it comes from. Member m works off mu_m records a second; to its partitions
S_m come lambda_p a second, and L_p wait already. They are drained after T when all that was there
and all that came in by then is done:

    sum over S_m of (L_p + lambda_p * T)  =  mu_m * T

so T = L / (mu - lambda), and a member to which more comes in than it works off never drains. For a
given T the left side is a sum of one number per partition. That makes it the classic problem of
uniform parallel machines (Q||Cmax): partition p is a job of w_p = L_p + lambda_p * T records,
member m a machine of speed mu_m, and the longest sum(w) / mu is to be as short as possible. If it
comes out as T, everybody is done after T, and nobody can be sooner. The T to put in is the one that
the group would need if partitions could be cut at will, sum(L) / (sum(mu) - sum(lambda)): the
horizon. What is above T by a share comes out as that share of T, divided by 1 - lambda / mu.

Rules of this file:

- The horizon is at least a minute, so that in a group that has caught up what comes in is evened
  out in proportion to the rates; and at most an hour, which also stands where the group as a whole
  gets more than it works off: who then lags, all lag alike.
- A partition counts as at least its part of ten seconds of the group's work, and as at least a
  hundredth of the mean partition. Offsets are committed every few seconds, so lags below that are
  noise; and partitions that are idle now must not all gather on one member.
- A member that does not say its rate counts as the mean of those that do. A rate below a
  thousandth of the mean counts as that, so that times stay finite. Where all that say one get
  nothing done, nothing is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from attrs import frozen

from coopgroup.assignors.lag_steps import loads_of

if TYPE_CHECKING:
    from coopgroup.model.group import Float64Array, GroupSnapshot
    from coopgroup.model.resource_set import Int32Array, Int64Array

__all__ = ["Work", "work_of"]

_HORIZON_MIN_S: Final = 60.0
_HORIZON_MAX_S: Final = 3_600.0
_MOMENT_S: Final = 10.0
_IDLE_SHARE: Final = 0.01
_SLOWEST_SHARE: Final = 0.001
_RATE_MIN_PER_S: Final = 0.001  # what user data can still say
_TOTAL_BITS: Final = 50  # a float holds such sums exactly, and parts of them are fine enough


@frozen(kw_only=True, eq=False)
class Work:
    """Jobs and machines of a group with R resources and M members.

    Attributes:
        weights: int64 (R,): work of each resource, in an unnamed unit, 1 or more where it is to be
            placed and 0 where not; their sum is exact as a float.
        speeds: float64 (M,): of each member, as a share of the mean rate, all above 0.
    """

    weights: Int64Array
    speeds: Float64Array

    def loads(self, holder: Int32Array) -> Int64Array:
        """Work that each member holds: int64 (M,)."""
        return loads_of(self.weights, holder, self.speeds.size)

    def times(self, holder: Int32Array) -> Float64Array:
        """How long each member would work on what it holds: float64 (M,), unit of `weights`.

        Args:
            holder: int32 (R,), member numbers or NOBODY.
        """
        times: Float64Array = self.loads(holder) / self.speeds
        return times


def work_of(group: GroupSnapshot, lags: Int64Array) -> Work:
    """Weigh the resources that are to be placed, and the members.

    Args:
        group: the group, with what is known of rates.
        lags: int64 (R,): lag of each resource; below 0 counts as 0.
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
    return Work(weights=weights, speeds=np.maximum(speeds, _SLOWEST_SHARE))


def _rates_per_s(group: GroupSnapshot) -> Float64Array | None:
    """Records per second of each member: float64 (M,); None where nothing is known."""
    rates = np.array(
        [
            np.nan if member.consumption_rate_per_s is None else member.consumption_rate_per_s
            for member in group.members
        ],
        dtype=np.float64,
    )
    said = np.isfinite(rates)
    if not said.any() or rates[said].mean() < _RATE_MIN_PER_S:
        return None
    return np.where(said, rates, rates[said].mean())


def _records(
    group: GroupSnapshot, lags: Int64Array, placed: Int64Array, total_per_s: float | None
) -> Float64Array:
    """Records that each resource to be placed stands for: float64 (P,).

    Args:
        group: the group.
        lags: int64 (R,).
        placed: int64 (P,): the resources.
        total_per_s: what all members work off in a second, None when unknown.
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
    """How long the group would need if partitions could be cut at will, within bounds."""
    if spare_per_s * _HORIZON_MAX_S <= waiting:
        return _HORIZON_MAX_S
    return max(waiting / spare_per_s, _HORIZON_MIN_S)
