"""Level drain times by moving many partitions in one step.

Theory of operation, for one pool with S subscribers. A subscriber can also carry work from other
pools: its ground.

1. The level is the time at which all members would finish if partitions were divisible. A member
   without other work keeps its largest partition. If that partition alone takes longer than the
   level, the other members share the rest.
2. Nothing moves while every member is within a tolerance band around its share. Otherwise the work
   outside the bands is moved.
3. Slow members give first, one partition each, and no member drops below its band. The partitions
   are then dealt again (module `drain_dealing`).
4. A step counts only if it brings enough work to the right member. Then the next step follows.

A step depends on the planned holders and not on the owners. A step that was refused once is
therefore refused again after the planned holders have become the owners.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from attrs import define

from coopgroup.assignors.drain_dealing import deal_by_time
from coopgroup.assignors.lag_steps import loads_of
from coopgroup.assignors.lag_topics import by_falling_lag
from coopgroup.model import NOBODY

if TYPE_CHECKING:
    from coopgroup.assignors.thrift import Thrift
    from coopgroup.model.group import Float64Array
    from coopgroup.model.resource_set import BoolArray, Int32Array, Int64Array

__all__ = ["PoolWork", "level"]

_LOOKS_A_STEP: Final = 50  # price of a step in the largest groups, in looks
_CHOICE: Final = 2.0  # candidates of a step: this many times the work that it moves


@define(kw_only=True, eq=False)
class PoolWork:
    """A pool with P partitions and S subscribers.

    Attributes:
        weights: int64 (P,): work of each partition, above 0.
        owner: int32 (P,): column of each partition's present owner, or `NOBODY`.
        holder: int64 (P,): column of each partition's planned owner; `level` changes it.
        speeds: float64 (S,): work that each subscriber does in a unit of time.
        ground: int64 (S,): work that each subscriber carries from other pools.
        keeps_one: bool (S,): subscribers that must keep at least one partition of this pool.
    """

    weights: Int64Array
    owner: Int32Array
    holder: Int64Array
    speeds: Float64Array
    ground: Int64Array
    keeps_one: BoolArray

    @property
    def loads(self) -> Int64Array:
        """Return the work of each subscriber from all pools: int64 (S,)."""
        return self.ground + loads_of(self.weights, self.holder, self.speeds.size)

    def moves(self, places: Int64Array, holders: Int32Array | Int64Array) -> int:
        """Return how many of the places leave their present owner if `holders` get them."""
        owner = self.owner[places]
        return int(np.count_nonzero((holders != owner) & (owner != NOBODY)))


def level(pool: PoolWork, thrift: Thrift) -> bool:
    """Move partitions while each step brings enough work to the right member.

    Args:
        pool: its holders are changed.
        thrift: tolerance around each member's share, as a part of the share. Its budget of moves is
            reduced.

    Returns:
        Whether anything changed.
    """
    changed = False
    while thrift.looks_left >= _LOOKS_A_STEP and _hand_over(pool, thrift):
        thrift.looks_left -= _LOOKS_A_STEP
        changed = True
    return changed


def _hand_over(pool: PoolWork, thrift: Thrift) -> bool:
    """Take one step if it gains enough; return whether it was taken."""
    loads = pool.loads
    floors = _floors(pool)
    shares = _shares(floors, pool.speeds, int(loads.sum()))
    excess = loads - shares
    band = thrift.gain_min * shares
    outside = np.abs(excess) > band
    if not outside.any():
        return False
    amount = max(float(excess[excess > band].sum()), float(-excess[excess < -band].sum()))
    given = _given(pool, loads, np.maximum(floors, shares - band), excess, amount, thrift)
    if not given.size:
        return False
    weights, givers = pool.weights[given], pool.holder[given]
    left = loads - np.bincount(givers, weights, minlength=loads.size)
    nobody_lacks = np.zeros(loads.size, dtype=np.bool_)
    takers = deal_by_time(weights, left / pool.speeds, pool.speeds, nobody_lacks)
    after = left + np.bincount(takers, weights, minlength=loads.size) - shares
    # Squares, because a few members slightly below their share are a small price for one member
    # that had nothing. It is enough to bring one member from outside its band to the edge of the
    # band.
    gained = float(((excess**2 - after**2) / shares).sum())
    if gained <= thrift.gain_min**2 * float(shares[outside].min()):
        return False
    thrift.spend(pool.moves(given, takers) - pool.moves(given, givers))
    pool.holder[given] = takers
    return True


def _floors(pool: PoolWork) -> Float64Array:
    """Return the work that each member cannot give away: float64 (S,)."""
    largest = np.zeros(pool.speeds.size, dtype=np.int64)
    np.maximum.at(largest, pool.holder, pool.weights)
    return (pool.ground + np.where(pool.keeps_one, largest, 0)).astype(np.float64)


def _shares(floors: Float64Array, speeds: Float64Array, total: int) -> Float64Array:
    """Return each member's share if all work above the floors were divisible: float64 (S,)."""
    times = floors / speeds
    order = np.argsort(times, kind="stable")
    levels = (total - floors.sum() + np.cumsum(floors[order])) / np.cumsum(speeds[order])
    later = np.append(times[order][1:], np.inf)
    reached = float(levels[int(np.argmax(levels <= later))])
    return np.maximum(floors, reached * speeds)


def _given(
    pool: PoolWork,
    loads: Int64Array,
    least: Float64Array,
    excess: Float64Array,
    amount: float,
    thrift: Thrift,
) -> Int64Array:
    """Return the places of the partitions to move, ascending.

    Args:
        pool: the pool.
        loads: int64 (S,): work of each subscriber.
        least: float64 (S,): work that each subscriber keeps at least.
        excess: float64 (S,): work of each subscriber above its share.
        amount: work to move in total.
        thrift: price of a move.
    """
    mean_weight = float(pool.weights.mean())
    room = loads - least
    givers = np.argsort(-loads / pool.speeds, kind="stable")
    givers = givers[room[givers] > 0]
    reach = np.cumsum(np.minimum(room[givers], np.maximum(excess[givers], mean_weight)))
    givers = givers[: int(np.searchsorted(reach, _CHOICE * amount)) + 1]
    gives = np.zeros(loads.size, dtype=np.bool_)
    gives[givers] = True
    places = np.flatnonzero(gives[pool.holder])
    weights = pool.weights[places]
    most = np.minimum(room, _to_equal(loads, excess, pool.speeds))[pool.holder[places]]
    places = places[(weights <= most) & (weights > thrift.gain_min * mean_weight)]
    return _in_turns(pool, places, loads, room, amount, thrift) if places.size else places


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
    pool: PoolWork,
    places: Int64Array,
    loads: Int64Array,
    room: Float64Array,
    amount: float,
    thrift: Thrift,
) -> Int64Array:
    """Choose among some places, always one of the member with the longest time."""
    places = _by_holder(pool, places)
    columns, weights = pool.holder[places], pool.weights[places]
    edges = np.flatnonzero(np.diff(columns, prepend=-1))
    through = np.cumsum(weights)
    through -= np.repeat(through[edges] - weights[edges], np.diff(edges, append=columns.size))
    possible = np.flatnonzero(through <= room[columns])
    places, columns, weights = places[possible], columns[possible], weights[possible]
    before = (loads[columns] - through[possible] + weights) / pool.speeds[columns]
    latest = np.argsort(-before, kind="stable")  # by the time before each partition is given
    going = latest[np.cumsum(weights[latest]) - weights[latest] / 2 <= amount]
    costs = np.cumsum(pool.owner[places[going]] == columns[going])
    return np.sort(places[going[thrift.affords(costs)]])


def _by_holder(pool: PoolWork, places: Int64Array) -> Int64Array:
    """Sort places by holder, then by decreasing weight, then by place."""
    heaviest = places[by_falling_lag(np.array([places.size]), pool.weights[places])]
    rank_bits = places.size.bit_length()
    keys = pool.holder[heaviest] << rank_bits
    keys |= np.arange(places.size)
    keys.sort()
    keys &= (1 << rank_bits) - 1
    order: Int64Array = heaviest[keys]
    return order
