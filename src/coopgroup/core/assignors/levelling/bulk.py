"""Level times by moving many partitions in one step.

Theory of operation, for one pool with S subscribers. A subscriber can also carry work from other
pools: its ground.

1. The level is the time at which all members would finish if partitions were divisible. A member
   without other work keeps its largest partition. If that partition alone takes longer than the
   level, the other members share the rest.
2. Nothing moves while every member is within a tolerance band around its share. Otherwise the work
   outside the bands is moved.
3. Slow members give first, one partition each, and no member drops below its band. The partitions
   are then dealt again (module `longest_first`).
4. A step counts only if it brings enough work to the right member. Then the next step follows.

A step depends on the planned holders and not on the owners. A step that was refused once is
therefore refused again after the planned holders have become the owners.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from coopgroup.core.assignors.levelling.longest_first import deal_by_time, level_time
from coopgroup.core.assignors.levelling.steps import loads_of
from coopgroup.core.assignors.ordering import by_column, by_falling_lag
from coopgroup.core.model import NOBODY

if TYPE_CHECKING:
    from coopgroup.core.assignors.levelling.steps import Loads
    from coopgroup.core.assignors.move_budget import MoveBudget
    from coopgroup.core.model.group import Float64Array
    from coopgroup.core.model.resource_set import Int64Array

_LOOKS_A_STEP: Final = 50  # price of a step in the largest groups, in looks
_CHOICE: Final = 2.0  # candidates of a step: this many times the work that it moves


def level_in_bulk(now: Loads, budget: MoveBudget, partitions_min: int) -> bool:
    """Move partitions while each step brings enough work to the right member.

    Args:
        now: planned holders; changed.
        budget: tolerance around each member's share, as a part of the share. Its budget of moves is
            reduced.
        partitions_min: a step that moves less work than this many mean partitions is not taken.

    Returns:
        Whether anything changed.
    """
    ground = now.loads - loads_of(now.weights, now.holder, now.loads.size)
    changed = False
    while budget.looks_left >= _LOOKS_A_STEP and _moved(now, ground, budget, partitions_min):
        budget.looks_left -= _LOOKS_A_STEP
        changed = True
    if changed:
        now.sum_up()
    return changed


def _moved(now: Loads, ground: Int64Array, budget: MoveBudget, partitions_min: int) -> bool:
    """Take one step if it gains enough; return whether it was taken.

    `ground` is the work that each subscriber carries from other pools: int64 (S,). A step moves at
    least the work of `partitions_min` mean partitions.
    """
    loads, tolerance = now.loads, now.tolerance
    floors = _floors(now, ground)
    shares = _shares(floors, now.speeds, int(loads.sum()))
    excess = loads - shares
    band = tolerance * shares
    outside = np.abs(excess) > band
    if not outside.any():
        return False
    amount = max(float(excess[excess > band].sum()), float(-excess[excess < -band].sum()))
    if amount < partitions_min * float(now.weights.mean()):
        return False
    given = _given(now, np.maximum(floors, shares - band), excess, amount, budget)
    if not given.size:
        return False
    weights, givers = now.weights[given], now.holder[given]
    left = loads - np.bincount(givers, weights, minlength=loads.size)
    nobody_lacks = np.zeros(loads.size, dtype=np.bool_)
    takers = deal_by_time(weights, left / now.speeds, now.speeds, nobody_lacks)
    later = left + np.bincount(takers, weights, minlength=loads.size)
    after = later - shares
    # Squares, because a few members slightly below their share are a small price for one member
    # that had nothing. It is enough to bring one member from outside its band to the edge of the
    # band.
    gained = float(((excess**2 - after**2) / shares).sum())
    if gained <= tolerance**2 * float(shares[outside].min()):
        return False
    owner = now.owner[given]
    is_owned = owner != NOBODY
    leaving, left_before = (
        int(np.count_nonzero((one != owner) & is_owned)) for one in (takers, givers)
    )
    budget.spend(leaving - left_before)
    now.holder[given] = takers
    now.loads = later.astype(np.int64)
    return True


def _floors(now: Loads, ground: Int64Array) -> Float64Array:
    """Return the work that each member cannot give away: float64 (S,)."""
    largest = np.zeros(now.speeds.size, dtype=np.int64)
    np.maximum.at(largest, now.holder, now.weights)
    return (ground + np.where(now.least > 0, largest, 0)).astype(np.float64)


def _shares(floors: Float64Array, speeds: Float64Array, total: int) -> Float64Array:
    """Return each member's share if all work above the floors were divisible: float64 (S,)."""
    reached = level_time(floors / speeds, floors, speeds, total - floors.sum())
    return np.maximum(floors, reached * speeds)


def _given(
    now: Loads,
    least: Float64Array,
    excess: Float64Array,
    amount: float,
    budget: MoveBudget,
) -> Int64Array:
    """Return the positions of the partitions to move, ascending; their work is `amount` in total.

    `least` is the work that each subscriber keeps, `excess` its work above its share: float64 (S,).
    """
    loads, mean_weight = now.loads, float(now.weights.mean())
    room = loads - least
    givers = np.argsort(-loads / now.speeds, kind="stable")
    givers = givers[room[givers] > 0]
    reach = np.cumsum(np.minimum(room[givers], np.maximum(excess[givers], mean_weight)))
    givers = givers[: int(np.searchsorted(reach, _CHOICE * amount)) + 1]
    gives = np.zeros(loads.size, dtype=np.bool_)
    gives[givers] = True
    positions = np.flatnonzero(gives[now.holder])
    weights = now.weights[positions]
    most = np.minimum(room, _to_equal(loads, excess, now.speeds))[now.holder[positions]]
    positions = positions[(weights <= most) & (weights > now.tolerance * mean_weight)]
    return _in_turns(now, positions, room, amount, budget) if positions.size else positions


def _to_equal(loads: Int64Array, excess: Float64Array, speeds: Float64Array) -> Float64Array:
    """Return the work that each member can give without finishing before the taker: float64 (S,).

    The taker is the member that would finish first, or the member that lacks most. A larger
    partition would only overload its taker in turn.
    """
    times = loads / speeds
    takers = [int(np.argmin(times)), int(np.argmin(excess))]
    both = [(times - times[one]) / (1 / speeds + 1 / speeds[one]) for one in takers]
    most: Float64Array = np.maximum(*both)
    return most


def _in_turns(
    now: Loads,
    positions: Int64Array,
    room: Float64Array,
    amount: float,
    budget: MoveBudget,
) -> Int64Array:
    """Choose among some positions, always one of the member with the longest time."""
    positions = positions[by_falling_lag(np.array([positions.size]), now.weights[positions])]
    positions = by_column(now.holder, positions)
    columns, weights = now.holder[positions], now.weights[positions]
    edges = np.flatnonzero(np.diff(columns, prepend=-1))
    through = np.cumsum(weights)
    through -= np.repeat(through[edges] - weights[edges], np.diff(edges, append=columns.size))
    possible = np.flatnonzero(through <= room[columns])
    positions, columns, weights = positions[possible], columns[possible], weights[possible]
    before = (now.loads[columns] - through[possible] + weights) / now.speeds[columns]
    latest = np.argsort(-before, kind="stable")  # by the time before each partition is given
    going = latest[np.cumsum(weights[latest]) - weights[latest] / 2 <= amount]
    costs = np.cumsum(now.owner[positions[going]] == columns[going])
    return np.sort(positions[going[budget.affords(costs)]])
