"""Level drain times by handing over many partitions at once.

Theory of operation, for one pool with S subscribers, of which each may carry work from other
pools, too, its ground:

1. The level is where everybody would be done at the same time if partitions could be cut at will.
   The largest partition of a member with nothing else stays; where it alone takes longer than the
   level, the others share what is left.
2. Nothing happens while nobody is off its share by more than a stated part of it. Else as much is
   handed over as those outside carry too much, or too little.
3. Those that take longest give first, one partition each, then the next ones, and none of them
   gets below its own band. What was given is dealt anew (module `drain_dealing`).
4. If that brings enough work to its place it counts, and all starts again; else it is left.

The rule of this file: a step depends on who shall hold what, and not on who owns it. So what was
refused once is refused again when the same partitions are owned where they are.
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

_LOOKS_A_STEP: Final = 50  # which it takes as long as, in the largest groups
_CHOICE: Final = 2.0  # of how much more than is handed over one may choose


@define(kw_only=True, eq=False)
class PoolWork:
    """A pool with P partitions and S subscribers.

    Attributes:
        weights: int64 (P,): work of each partition, all above 0.
        owner: int32 (P,): column of each partition's present owner, or NOBODY.
        holder: int64 (P,): column of who shall have it; changed by `level`.
        speeds: float64 (S,): work that each subscriber does in a unit of time.
        ground: int64 (S,): work that each carries from other pools.
        keeps_one: bool (S,): who must keep at least one partition of this pool.
    """

    weights: Int64Array
    owner: Int32Array
    holder: Int64Array
    speeds: Float64Array
    ground: Int64Array
    keeps_one: BoolArray

    @property
    def loads(self) -> Int64Array:
        """Work that each subscriber carries, from this pool and others: int64 (S,)."""
        return self.ground + loads_of(self.weights, self.holder, self.speeds.size)

    def moves(self, places: Int64Array, holders: Int32Array | Int64Array) -> int:
        """How many of some partitions leave their present owner, if these hold them."""
        owner = self.owner[places]
        return int(np.count_nonzero((holders != owner) & (owner != NOBODY)))


def level(pool: PoolWork, thrift: Thrift) -> bool:
    """Hand over partitions for as long as that brings enough work to its place.

    Args:
        pool: its holders are changed.
        thrift: how far off its share each may be, as a part of it. Its budget of moves is used up.

    Returns:
        Whether anything changed.
    """
    changed = False
    while thrift.looks_left >= _LOOKS_A_STEP and _hand_over(pool, thrift):
        thrift.looks_left -= _LOOKS_A_STEP
        changed = True
    return changed


def _hand_over(pool: PoolWork, thrift: Thrift) -> bool:
    """Take one step, if it is worth it; say whether it was."""
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
    # Squares: a few members that fall a little short for one that had nothing are no loss. What
    # brings one of those outside its band to the edge of it is enough.
    gained = float(((excess**2 - after**2) / shares).sum())
    if gained <= thrift.gain_min**2 * float(shares[outside].min()):
        return False
    thrift.spend(pool.moves(given, takers) - pool.moves(given, givers))
    pool.holder[given] = takers
    return True


def _floors(pool: PoolWork) -> Float64Array:
    """Work that a member cannot hand over: float64 (S,)."""
    largest = np.zeros(pool.speeds.size, dtype=np.int64)
    np.maximum.at(largest, pool.holder, pool.weights)
    return (pool.ground + np.where(pool.keeps_one, largest, 0)).astype(np.float64)


def _shares(floors: Float64Array, speeds: Float64Array, total: int) -> Float64Array:
    """What each member would carry if all above the floors could be cut at will: float64 (S,)."""
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
    """Which partitions are handed over: places, ascending.

    Args:
        pool: the pool.
        loads: int64 (S,): what each carries.
        least: float64 (S,): what each keeps at least.
        excess: float64 (S,): what each carries above its share.
        amount: how much work is to be handed over in all.
        thrift: what moves cost.
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
    """What each may hand over at once without being done before the taker: float64 (S,).

    Takers are the one that would be done first and the one that lacks most. A partition that is
    larger would only go round: whoever gets it has as much too much.
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
    """Of these partitions, those that go: always one of the member that would take longest."""
    places = _by_holder(pool, places)
    columns, weights = pool.holder[places], pool.weights[places]
    edges = np.flatnonzero(np.diff(columns, prepend=-1))
    through = np.cumsum(weights)
    through -= np.repeat(through[edges] - weights[edges], np.diff(edges, append=columns.size))
    possible = np.flatnonzero(through <= room[columns])
    places, columns, weights = places[possible], columns[possible], weights[possible]
    before = (loads[columns] - through[possible] + weights) / pool.speeds[columns]
    latest = np.argsort(-before, kind="stable")  # when it is its turn
    going = latest[np.cumsum(weights[latest]) - weights[latest] / 2 <= amount]
    costs = np.cumsum(pool.owner[places[going]] == columns[going])
    return np.sort(places[going[thrift.affords(costs)]])


def _by_holder(pool: PoolWork, places: Int64Array) -> Int64Array:
    """Put some places in order of their holders, of each the heaviest first, then by place."""
    heaviest = places[by_falling_lag(np.array([places.size]), pool.weights[places])]
    rank_bits = places.size.bit_length()
    keys = pool.holder[heaviest] << rank_bits
    keys |= np.arange(places.size)
    keys.sort()
    keys &= (1 << rank_bits) - 1
    order: Int64Array = heaviest[keys]
    return order
