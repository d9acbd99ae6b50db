"""Even out a large pool in a few rounds: many slow members, each paired with a fast one.

In a round, the members whose time exceeds the goal for their rank are paired with as many of the
fastest members, the slowest with the fastest. Each pair takes its best step if it gains enough. If
no pair finds a step, all slow members are paired with the next partners. Single steps (module
`exchange`) do the rest; alone they would need thousands of steps in a large group.

As with single steps, a step that was refused once is refused again after the planned holders have
become the owners.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from coopgroup.core.assignors.levelling.steps import NOTHING
from coopgroup.core.assignors.ordering import by_column

if TYPE_CHECKING:
    from coopgroup.core.assignors.levelling.steps import Loads
    from coopgroup.core.assignors.move_budget import MoveBudget
    from coopgroup.core.model.group import Float64Array
    from coopgroup.core.model.resource_set import Int64Array

_PARTNERS: Final = 4  # partners that each slow member tries before it is left
_CANDIDATES_MAX: Final = 16  # partitions of a member that are considered, spread over their weights
_CELLS_MAX: Final = 2**18
_LOOKS_A_ROUND: Final = 10
_PAIRS_MIN: Final = 16  # pairs that must gain in a round; for fewer, single steps are cheaper


def pair_off(now: Loads, rising: Int64Array, goal: Float64Array, budget: MoveBudget) -> bool:
    """Take rounds while some pair gains.

    Args:
        now: planned holders; changed.
        rising: int64 (P,): positions by weight, lightest first.
        goal: float64 (S,): times that are even enough, descending.
        budget: what steps must gain; its budget is reduced.

    Returns:
        Whether anything changed.
    """
    changed = False
    order = None
    turn = 0
    while turn < 2 * _PARTNERS and budget.looks_left > 0:
        heavy, light = _pairs(now, goal, turn)
        turn += 1
        if heavy.size < _PAIRS_MIN:
            continue
        order = by_column(now.holder, rising) if order is None else order
        if _round(now, order, heavy, light, budget):
            changed, order, turn = True, None, 0
    return changed


def _pairs(now: Loads, goal: Float64Array, turn: int) -> tuple[Int64Array, Int64Array]:
    """Return slow columns, slowest first, and a different fast partner for each.

    In the first turns a column is slow if its time exceeds the goal. Later, all columns are slow
    whose time is at least that of the last of these.
    """
    order = np.argsort(-now.times, kind="stable")
    half = order.size // 2
    late = np.flatnonzero(now.times[order] - goal > now.gain)
    if turn >= _PARTNERS and late.size:
        late = np.arange(late[-1] + 1)
    late = late[late < half]
    early = order[::-1][: max(late.size, min(_PARTNERS, half))]
    heavy, light = order[late], np.roll(early, -turn)[: late.size]
    helps = now.may_help(heavy, light)
    return heavy[helps], light[helps]


def _round(
    now: Loads, order: Int64Array, heavy: Int64Array, light: Int64Array, budget: MoveBudget
) -> bool:
    """Take the best step of each pair, the slowest first; return whether a step was taken.

    `order` has the positions ascending by holder, then by weight. `heavy` and `light` are disjoint
    columns: int64 (I,).
    """
    budget.looks_left -= _LOOKS_A_ROUND
    starts = np.cumsum(now.counts) - now.counts
    widest = min(_CANDIDATES_MAX, int(now.counts.max()))
    together = max(1, _CELLS_MAX // (widest * (widest + 1)))
    found = []
    for low in range(0, heavy.size, together):
        some = slice(low, low + together)
        gives, takes = (
            _candidates(now, order, starts, one[some], widest) for one in (heavy, light)
        )
        found.append(now.best_steps(heavy[some], light[some], gives, takes, budget))
    good = np.flatnonzero(np.concatenate([one.worth for one in found]) > 0)
    if good.size < _PAIRS_MIN:
        return False
    moves = np.concatenate([one.moves for one in found])[good]
    afforded = budget.affords(np.cumsum(np.maximum(moves, 0)))
    budget.spend(int(moves[afforded].sum()))
    good = good[afforded]
    now.exchange(
        heavy[good],
        light[good],
        np.concatenate([one.given for one in found])[good],
        np.concatenate([one.taken for one in found])[good],
    )
    return good.size > 0


def _candidates(
    now: Loads, order: Int64Array, starts: Int64Array, columns: Int64Array, widest: int
) -> Int64Array:
    """Return candidate partitions of each column: (columns, widest), padded with `NOTHING`."""
    counts = now.counts[columns][:, None]
    seats = np.arange(widest)
    if widest > 1:
        seats = np.where(counts > widest, seats * (counts - 1) // (widest - 1), seats)
    positions = order[np.minimum(starts[columns][:, None] + seats, order.size - 1)]
    return np.where(seats < counts, positions, NOTHING)
