r"""What waiting costs, in closed form: good for choosing which time-outs are worth simulating.

A process with `p` partitions goes and is back after `d` (never: d = oo). The group goes on without
it after `s`: when everybody has heard of it by a heartbeat, if it left, so half a heartbeat on
average; when its session ends, if it was killed. From then on its partitions wait for at most `T`;
then they move, and move back when it returns after all. A move costs `c` until the first useful
work, a return in time costs `r <= c`. Per partition:

    d <= s + T      max(d, s) + r                      nothing moves
    d >  s + T      s + T + c + (c if it returns)      moves: 1, or 2 if it returns

A member with a kept identity that is back before its session ends resumes at once: then max(d, s)
is d. The expected cost of a time-out is the mean over the absences of a history:

    C(T) = p * mean( [d <= s+T] (max(d,s) + r) + [d > s+T] (s + T + c + c [d < oo]) )

This is the ski-rental problem: to wait is to rent at one second a second, to move is to buy for
B = c, or 2 c where the process returns. Three things follow; tests hold the code to them:

- Between two absences C rises in T with slope P(d > s+T), and falls only where T passes an
  absence. So the best T is 0, or just above one of the absences; values between need no try.
- Where moves are free (c = r = 0) no wait pays: C(0) <= C(T). Where a return is certain and
  d - s + r < 2 c for every absence, waiting for the longest one is best.
- Where nothing is known of the absences, T = B never costs more than twice what the best choice in
  hindsight would have (plus what nobody can avoid: s), and no fixed T promises less.

The longest absence of a history is not the longest that there will ever be: a time-out right above
it would soon be passed, at the price of a move there and back. So the mean is taken over absences
that are spread a little around those that were seen, as far as so many draws leave open (a kernel
on the logarithm of the time, of Silverman's width); how long is for good, is not spread.

The simulator adds what no formula has: how long each round really takes, members that go together,
what moves on the way to balance. So figures come from the simulator. This file says which time-outs
are worth them, and what the spread adds: `C` of the spread absences less `C` of the seen ones. A
benchmark holds the choice to an exhaustive one (tests/benchmarks/advice.py).
"""

from __future__ import annotations

from statistics import NormalDist
from typing import TYPE_CHECKING, Final

import numpy as np
from attrs import frozen

from coopgroup.simulator.scenario import How

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    from coopgroup.pipeline.advice_history import Episode

__all__ = ["HEARD_MS", "LADDER_MS", "MoveCost", "break_even_ms", "estimated_s", "worth_trying"]

LADDER_MS: Final = tuple(
    1_000 * second
    for second in (
        *range(11),
        *(12, 14, 16, 18, 20, 22, 25, 28, 30, 35, 40, 45, 50, 55, 60, 70, 80, 90, 105, 120, 135),
        *(150, 180, 210, 240, 270, 300, 360, 420, 480, 540, 600),
    )
)
"""Time-outs that a person would write down, from none to ten minutes: up to 10 s every second, from
there on each at most a fifth longer than the one before."""


_SPREAD: Final = 15  # points for one absence
_WIDTH_MIN: Final = 0.05  # restarts that look all alike differ by a twentieth all the same

HEARD_MS: Final = 1_500
"""s of a member that leaves: half a heartbeat of three seconds."""


@frozen(kw_only=True)
class MoveCost:
    """What handing a partition over costs this group.

    Attributes:
        move_ms: from the assignment to the first useful work, of a partition that moved.
        return_ms: the same of one that comes back to the process that had it.
    """

    move_ms: int = 0
    return_ms: int = 0


def estimated_s(
    episodes: Iterable[Episode],
    timeouts_ms: Sequence[int],
    cost: MoveCost,
    *,
    session_timeout_ms: int,
    is_static: bool,
    is_spread: bool = False,
) -> npt.NDArray[np.float64]:
    """Expected cost of time-outs by the formula, in seconds a partition, summed over absences.

    Args:
        episodes: what happened.
        timeouts_ms: T time-outs.
        cost: of moves and returns.
        session_timeout_ms: of the members.
        is_static: whether members keep their identity.
        is_spread: whether absences are spread around those that were seen.

    Returns:
        float64 (T,): one sum for each time-out.
    """
    absences = [one for episode in episodes for one in episode.absences]
    if not absences:
        return np.zeros(len(timeouts_ms))
    away = np.array([np.inf if one.absent_ms is None else one.absent_ms for one in absences])
    # Who keeps an identity does not leave the group when it closes: it may be back any moment.
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
    """By what absences are multiplied to spread them: quantiles of a lognormal around 1."""
    seen = np.log(np.maximum(away[np.isfinite(away)], 1.0))
    if not seen.size:
        return np.ones(1)
    low, high = np.quantile(seen, [0.25, 0.75])
    # The quartiles tell the width of the main mode, where the deviation is that between modes.
    widths = [one for one in (float(seen.std()), float(high - low) / 1.34) if one > 0]
    width = max(_WIDTH_MIN, 1.06 * min(widths, default=0.0) * seen.size**-0.2)
    normal = NormalDist()
    quantiles = [normal.inv_cdf((place + 0.5) / _SPREAD) for place in range(_SPREAD)]
    factors: npt.NDArray[np.float64] = np.exp(width * np.array(quantiles))
    return factors


def worth_trying(
    estimates: npt.NDArray[np.float64], timeouts_ms: Sequence[int], count: int
) -> tuple[int, ...]:
    """The time-outs with the lowest estimates, and 0, ascending.

    Args:
        estimates: float64 (T,): of each time-out.
        timeouts_ms: T time-outs.
        count: how many, 0 not counted.
    """
    order = np.argsort(estimates, kind="stable")[:count]
    return tuple(sorted({0, *(timeouts_ms[place] for place in order.tolist())}))


def break_even_ms(cost: MoveCost) -> int:
    """The time-out for a group of which nothing is known: what a move there and back costs."""
    return 2 * cost.move_ms
