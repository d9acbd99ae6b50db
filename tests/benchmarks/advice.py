"""Advice on histories with known return times, against an exhaustive sweep on fresh seeds.

Goal: in at least 95 of 100 histories the advised time-out costs at most 5 % more than the best one.
A history has 100 absences, drawn from one of five families of return times. The true cost of a
family is the mean over all its durations, played with other seeds under every time-out that
advice may choose from. Each cell is played once and used by all histories.

The closed form that prunes the grid is also compared with the simulator: how much more the best of
the remaining settings costs than the best of all settings, on the history itself.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import Any, Final

import numpy as np

from coopgroup.pipeline.advice.choose import advise
from coopgroup.pipeline.advice.cost import LADDER_MS, MoveCost, deferred
from tests.unit.pipeline.return_times import FAMILIES, Cells, history, on_grid

__all__ = ["run"]

HISTORIES: Final = 20  # per family
ABSENCES: Final = 100
DURATIONS: Final = 40
TIMEOUTS_MS: Final = LADDER_MS[::3]
MOVES_MS: Final = (5_000, 30_000)

_TRUTH: Final = 200_000
_GOAL: Final = 1.05


def run(
    *,
    histories: int = HISTORIES,
    durations: int = DURATIONS,
    timeouts_ms: tuple[int, ...] = TIMEOUTS_MS,
    moves_ms: tuple[int, ...] = MOVES_MS,
) -> dict[str, Any]:
    """Measure.

    Args:
        histories: number per family.
        durations: number of different return times.
        timeouts_ms: time-outs to choose from.
        moves_ms: costs of a move, each tried with all histories.

    Returns:
        By move cost and family: histories, those within 5 %, the worst ratio, and the worst ratio
        after pruning by the closed form; and `within`, the total in percent.
    """
    since_s = time.process_time()
    grid_s = np.geomspace(1, 1_200, durations)
    found: dict[str, Any] = {}
    for move_ms in moves_ms:
        cost = MoveCost(move_ms=move_ms)
        told, fresh = Cells(cost, seed=1), Cells(cost, seed=2)
        for family in FAMILIES:
            row = _family(family, cost, told, fresh, grid_s, timeouts_ms, histories)
            found[f"{family}, move {move_ms} ms"] = row
            print(f"{family}, move {move_ms} ms: {row}", flush=True)
    rows = list(found.values())
    all_within = sum(row["within"] for row in rows) / sum(row["histories"] for row in rows)
    return {**found, "within": round(100 * all_within, 1), "cpu_s": time.process_time() - since_s}


def _family(
    family: str,
    cost: MoveCost,
    told: Cells,
    fresh: Cells,
    grid_s: Any,  # noqa: ANN401 - an array
    timeouts_ms: tuple[int, ...],
    histories: int,
) -> dict[str, Any]:
    policies = [deferred(one) for one in timeouts_ms]
    true = _true_costs(family, fresh, grid_s, policies)
    ratios, pruned = [], []
    for number in range(histories):
        dice = np.random.default_rng(1_000 + number)
        made = history(on_grid(FAMILIES[family](dice, ABSENCES), grid_s))
        given = advise(made, cost, told, timeouts_ms=timeouts_ms, only_timeouts=True)
        ratios.append(true[policies.index(given.advised.policy)] / true.min())
        own = _own_costs(made, told, policies)
        tried = min(own[policies.index(one.policy)] for one in given.options)
        pruned.append(tried / own.min())
    return {
        "histories": histories,
        "within": sum(bool(one <= _GOAL) for one in ratios),
        "worst": round(float(max(ratios)), 3),
        "best": str(policies[int(true.argmin())]),
        "pruned_worst": round(float(max(pruned)), 4),
    }


def _true_costs(family: str, fresh: Cells, grid_s: Any, policies: Any) -> Any:  # noqa: ANN401
    drawn = Counter(on_grid(FAMILIES[family](np.random.default_rng(99), _TRUTH), grid_s))
    made = history(list(drawn))
    shares = np.array(list(drawn.values())) / _TRUTH
    return shares @ fresh([one.shape for one in made.episodes], policies)[..., 0]


def _own_costs(made: Any, told: Cells, policies: Any) -> Any:  # noqa: ANN401
    times = Counter(one.shape for one in made.episodes)
    return np.array(list(times.values())) @ told(list(times), policies)[..., 0]
