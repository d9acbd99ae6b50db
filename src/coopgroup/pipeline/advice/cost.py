r"""Cost of waiting, in closed form, and the settings that are worth simulating.

A process with `p` partitions departs and is back after `d` (never: d = oo). The group continues
without it after `s`. If the process left, all members learn this with their next heartbeat, so `s`
is half a heartbeat on average. If it was killed, `s` is the time until its session ends. From then
on its partitions wait for at most `T`. Then they move, and move back if the process returns later.
A move costs `c` until the first useful work. A return in time costs `r <= c`. Per partition:

    d <= s + T      max(d, s) + r                      nothing moves
    d >  s + T      s + T + c + (c if it returns)      moves: 1, or 2 if it returns

A static member that is back before its session ends resumes immediately: then max(d, s) is d. The
expected cost of a time-out is the mean over the absences of a history:

    C(T) = p * mean( [d <= s+T] (max(d,s) + r) + [d > s+T] (s + T + c + c [d < oo]) )

This is the ski-rental problem. To wait is to rent, at one second per second. To move is to buy,
for B = c, or 2 c if the process returns. Three results follow, and tests check them:

- Between two absences C rises in T with slope P(d > s+T). It falls only where T passes an
  absence. So the best T is 0, or just above one of the absences. Other values need no trial.
- If moves are free (c = r = 0), waiting never pays: C(0) <= C(T). If a return is certain and
  d - s + r < 2 c for every absence, waiting for the longest absence is best.
- If the absences are unknown, T = B costs at most twice the best choice in hindsight (plus the
  unavoidable s). No fixed T guarantees less.

Future absences can be longer than the longest one of a history. They would soon exceed a time-out
right above it, at the price of a move there and back. So the mean is taken over absences that are
spread a little around the observed ones. The spread is as wide as the number of draws leaves
uncertain (a kernel on the logarithm of the time, with Silverman's width). Permanent absences are
not spread.

The simulator adds effects that the formula lacks: the real length of each round, members that
depart together, moves for balance. So the figures come from the simulator. This file selects the
time-outs to simulate, and computes the effect of the spread: `C` of the spread absences less `C`
of the observed ones.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import TYPE_CHECKING, Final

import numpy as np
from attrs import evolve, frozen

from coopgroup.core.policies.warmth import read_warmup
from coopgroup.policies import DeferredPolicy, Warmup
from coopgroup.simulator.scenario import Choice, How

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    from coopgroup.pipeline.advice.history import Episode

__all__ = [
    "HEARD_MS",
    "LADDER_MS",
    "MoveCost",
    "break_even_ms",
    "deferred",
    "estimated_s",
    "waits_ms",
    "warmup_in",
    "with_rations",
    "with_warmups",
    "worth_trying",
]

LADDER_MS: Final = tuple(
    1_000 * second
    for second in (
        *range(11),
        *(12, 14, 16, 18, 20, 22, 25, 28, 30, 35, 40, 45, 50, 55, 60, 70, 80, 90, 105, 120, 135),
        *(150, 180, 210, 240, 270, 300, 360, 420, 480, 540, 600),
    )
)
"""Round time-outs from none to ten minutes: every second up to 10 s, and then each at most a fifth
longer than the one before."""

_WAITS_MS: Final = DeferredPolicy().scheduled_rebalance_timeout_ms
_RATIONS: Final = (1, 4, 16)
_INTERVALS_MS: Final = (1_000, 5_000)
_RESTORES_PER_MEMBER: Final = 2  # warm-ups that run at the same time
_RESTORES: Final = 4  # a warm-up that takes several times a restore hangs
_WARMUP_MS_MIN: Final = 60_000
_SPREAD: Final = 15  # points for one absence
_WIDTH_MIN: Final = 0.05  # restarts of equal length are spread by a twentieth

HEARD_MS: Final = 1_500
"""Seconds until the group notices a member that leaves: half a heartbeat of 3 s."""


@frozen(kw_only=True)
class MoveCost:
    """Cost of handing a partition over in this group.

    Attributes:
        move_ms: time from the assignment to the first useful work of a moved partition.
        return_ms: the same for a partition that returns to its previous process.
        is_known: whether the costs were given or measured. Otherwise they are 0, as an assumption.
    """

    move_ms: int = 0
    return_ms: int = 0
    is_known: bool = True


def estimated_s(
    episodes: Iterable[Episode],
    timeouts_ms: Sequence[int],
    cost: MoveCost,
    *,
    session_timeout_ms: int,
    is_static: bool,
    is_spread: bool = False,
) -> npt.NDArray[np.float64]:
    """Return the expected cost of time-outs by the formula, in seconds per partition.

    The cost is summed over absences.

    Args:
        episodes: episodes of the history.
        timeouts_ms: T time-outs.
        cost: cost of moves and returns.
        session_timeout_ms: session time-out of the members.
        is_static: whether members have static ids.
        is_spread: whether absences are spread around the observed ones.

    Returns:
        float64 (T,): one sum for each time-out.
    """
    absences = [one for episode in episodes for one in episode.absences]
    if not absences:
        return np.zeros(len(timeouts_ms))
    away = np.array([np.inf if one.absent_ms is None else one.absent_ms for one in absences])
    # A static member does not leave the group when it closes: it may return at any moment.
    silent = np.array([one.how is How.CRASH or is_static for one in absences])
    heard = np.where(silent, float(session_timeout_ms), float(HEARD_MS))[:, None]
    away = away[:, None] * (_factors(away) if is_spread else 1.0)  # (absences, spread)
    waits = np.asarray(timeouts_ms, dtype=np.float64)[:, None, None]
    gone = np.maximum(away, 0.0 if is_static else heard) + cost.return_ms
    moved = heard + waits + cost.move_ms * (1 + np.isfinite(away))
    costs = np.where(away <= heard + waits, gone, moved)
    summed: npt.NDArray[np.float64] = costs.mean(axis=2).sum(axis=1) / 1_000
    return summed


def _factors(away: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the factors that spread absences: quantiles of a lognormal around 1."""
    seen = np.log(np.maximum(away[np.isfinite(away)], 1.0))
    if not seen.size:
        return np.ones(1)
    low, high = np.quantile(seen, [0.25, 0.75])
    # If there are several modes, the deviation measures their distance. The quartiles then give the
    # width of the main mode.
    widths = [one for one in (float(seen.std()), float(high - low) / 1.34) if one > 0]
    width = max(_WIDTH_MIN, 1.06 * min(widths, default=0.0) * seen.size**-0.2)
    normal = NormalDist()
    quantiles = [normal.inv_cdf((place + 0.5) / _SPREAD) for place in range(_SPREAD)]
    factors: npt.NDArray[np.float64] = np.exp(width * np.array(quantiles))
    return factors


def worth_trying(
    estimates: npt.NDArray[np.float64], timeouts_ms: Sequence[int], count: int
) -> tuple[int, ...]:
    """Return the time-outs with the lowest estimates, and 0, ascending.

    Args:
        estimates: float64 (T,): of each time-out.
        timeouts_ms: T time-outs.
        count: number of time-outs, without 0.
    """
    order = np.argsort(estimates, kind="stable")[:count]
    return tuple(sorted({0, *(timeouts_ms[place] for place in order.tolist())}))


def break_even_ms(cost: MoveCost) -> int:
    """Return the time-out for a group without known absences: the cost of a move there and back."""
    return 2 * cost.move_ms


# --- settings ----------------------------------------------------------------------------------


def waits_ms(policy: Choice) -> int:
    """Return how long lost partitions wait under a policy; 0 means no delay."""
    unsaid = _WAITS_MS if policy.name in {"deferred", "incremental"} else 0
    value = policy.options.get("scheduled_rebalance_timeout_ms", unsaid)
    return value if isinstance(value, int) else 0


def warmup_in(policy: Choice) -> Warmup | None:
    """Return the option `warmup` of a policy."""
    return read_warmup(policy.options.get("warmup"))


def deferred(timeout_ms: int) -> Choice:
    """Return the deferred policy with this time-out."""
    if not timeout_ms:
        return Choice(name="simple")
    return Choice(name="deferred", options={"scheduled_rebalance_timeout_ms": timeout_ms})


def with_warmups(policy: Choice, cost: MoveCost, members: int) -> list[Choice]:
    """Return a policy with warm-ups, without and with a standby; none if a move costs nothing.

    Args:
        policy: the best policy without warm-ups.
        cost: cost of a move, which is the time to restore.
        members: number of members of the group; each may restore.
    """
    if not cost.move_ms or policy.name == "eager" or warmup_in(policy) is not None:
        return []
    warmup = {
        "max_concurrent": max(Warmup().max_concurrent, _RESTORES_PER_MEMBER * members),
        "timeout_ms": max(_WARMUP_MS_MIN, _RESTORES * cost.move_ms),
    }
    return [
        evolve(policy, options={**policy.options, "warmup": {**warmup, "standbys": standbys}})
        for standbys in (0, 1)
    ]


def with_rations(policy: Choice, partitions: int) -> list[Choice]:
    """Return a policy with rations, none of as many partitions as the group has.

    Args:
        policy: the best policy without a ration.
        partitions: number of partitions of the group.
    """
    if policy.name == "eager":
        return []
    return [
        Choice(
            name="incremental",
            options={
                "max_moves_per_round": ration,
                "move_interval_ms": interval_ms,
                "scheduled_rebalance_timeout_ms": waits_ms(policy),
            },
        )
        for ration in _RATIONS
        for interval_ms in _INTERVALS_MS
        if ration < partitions
    ]
