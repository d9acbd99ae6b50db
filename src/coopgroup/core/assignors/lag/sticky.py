"""Lag-aware placement of partitions that have owners: balance at the price of few moves.

Theory of operation, for one topic or one pool (a deal), with S subscribers:

1. Counts. Members keep their partitions within the bounds of the counts. The bounds are chosen for
   the fewest moves. A member above its bound gives up partitions of all sizes of lag alike.
2. Free partitions are dealt by lag to members with room.
3. Lag. If loads are less even than in the proposal's placement, partitions are exchanged while each
   move gains enough (module `exchange`).

A deal that is as balanced as the proposal's placement, within the gain that a move must have, is
left alone. The placements of the proposal and of this module are therefore stable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from attrs import frozen

from coopgroup.core.assignors.levelling.exchange import Exchange
from coopgroup.core.assignors.levelling.steps import Counting, Loads, loads_of
from coopgroup.core.assignors.ordering import spread_over_runs
from coopgroup.core.model import NOBODY

if TYPE_CHECKING:
    import numpy.typing as npt

    from coopgroup.core.assignors.move_budget import MoveBudget
    from coopgroup.core.model.resource_set import BoolArray, Int32Array, Int64Array

_TABLE_CELLS_MAX: Final = 2**18


@frozen(kw_only=True, eq=False)
class Deals:
    """T deals of P partitions in total, each among the same S subscribers.

    Attributes:
        counts: int64 (T,): partitions of each deal, at least 1.
        lags: int64 (P,), deal by deal, at least 0, with a sum that does not overflow.
        owner: int32 (P,): column of each partition's present owner, or `NOBODY`.
        fresh: int64 (P,): column of each partition in a placement without owners.
        size: S.
    """

    counts: Int64Array
    lags: Int64Array
    owner: Int32Array
    fresh: Int64Array
    size: int


def placed_beside_owners(deals: Deals, budget: MoveBudget) -> Int64Array:
    """Place deals in which members own partitions.

    Args:
        deals: the deals to place; `fresh` becomes the result.
        budget: what moves must gain; its budget is reduced.

    Returns:
        int64 (P,): columns.
    """
    columns = deals.fresh  # each deal reads its own part before it overwrites it
    starts = np.append(0, np.cumsum(deals.counts))
    owned = np.add.reduceat(deals.owner != NOBODY, starts[:-1], dtype=np.int64)
    chunk = max(1, _TABLE_CELLS_MAX // deals.size)
    for first in range(0, deals.counts.size, chunk):
        numbers = np.arange(first, min(first + chunk, deals.counts.size))
        numbers = numbers[owned[numbers] > 0]
        resting = _at_rest(deals, numbers, starts, budget.gain_min)
        resting &= owned[numbers] == deals.counts[numbers]
        for number, rests in zip(numbers.tolist(), resting.tolist(), strict=True):
            positions = slice(int(starts[number]), int(starts[number + 1]))
            columns[positions] = (
                deals.owner[positions] if rests else _placed(deals, positions, budget)
            )
    return columns


def _at_rest(deals: Deals, numbers: Int64Array, starts: Int64Array, gain_min: float) -> BoolArray:
    """Return which deals are balanced with their present owners: bool (deals,)."""
    counts = deals.counts[numbers]
    inside = np.repeat(starts[numbers] - (np.cumsum(counts) - counts), counts)
    inside += np.arange(inside.size)
    rows = np.repeat(np.arange(numbers.size) * (deals.size + 1), counts) + 1
    shape = (numbers.size, deals.size + 1)
    lags = deals.lags[inside].astype(np.float64)

    def table(
        holder: Int64Array | Int32Array, weights: npt.NDArray[np.float64] | None
    ) -> npt.NDArray[Any]:
        cells = np.bincount(rows + holder[inside], weights, minlength=shape[0] * shape[1])
        return cells.reshape(shape)[:, 1:]

    held = table(deals.owner, None)
    present, fresh = np.sort(table(deals.owner, lags)), np.sort(table(deals.fresh, lags))
    least, most = held.min(axis=1), held.max(axis=1)
    balanced: BoolArray = (most - least <= 1) & (least >= np.minimum(1, counts // deals.size))
    balanced &= (present - fresh).max(axis=1) <= gain_min * present.mean(axis=1)
    return balanced


def _placed(deals: Deals, positions: slice, budget: MoveBudget) -> Int64Array:
    """Place one deal: int64 (its partitions,), columns."""
    lags, owner, size = deals.lags[positions], deals.owner[positions], deals.size
    owned = np.bincount(owner + 1, minlength=size + 1)[1:]
    low = _least(owned, lags.size)
    caps = _caps(owned, loads_of(lags, owner, size), lags.size, low)
    holder = given_up(lags, owner, caps)
    _deal_free(holder, lags, size, low)
    goal = loads_of(lags, deals.fresh[positions], size).astype(np.float64)
    now = Loads(
        weights=lags,
        owner=owner,
        holder=holder,
        loads=loads_of(lags, holder, size),
        speeds=np.ones(size),
        counting=Counting.EVEN,
        least=np.full(size, min(1, lags.size // size)),
        gain_min=budget.gain_min,
    )
    Exchange(now=now, goal=np.sort(goal)[::-1], budget=budget).run()
    return now.holder


def _deal_free(holder: Int64Array, lags: Int64Array, size: int, low: int) -> None:
    """Place the partitions without a holder; fills in `holder`."""
    free = np.flatnonzero(holder == NOBODY)
    if not free.size:
        return
    counts = np.bincount(holder + 1, minlength=size + 1)[1:]
    loads = loads_of(lags, holder, size)
    top = max(int(counts.max()), low) + free.size
    holder[free] = deal_by_count(lags[free], top - counts, loads)


def _least(owned: Int64Array, total: int) -> int:
    """Return the lower bound of counts that costs the fewest moves; the upper one is higher by 1.

    With higher bounds members give up less and need more, so the best bounds are where both meet.
    """
    size = owned.size
    free = total - int(owned.sum())
    floor = low = max(-(-total // size) - 1, min(1, total // size), 0)
    high = total // size

    def costs(bound: int) -> tuple[int, int]:
        surplus = int(np.maximum(owned - bound - 1, 0).sum())
        return surplus, int(np.maximum(bound - owned, 0).sum()) - free

    while low < high:
        middle = (low + high) // 2
        surplus, wanting = costs(middle)
        if wanting >= surplus:
            high = middle
        else:
            low = middle + 1
    if low > floor and max(costs(low - 1)) <= max(costs(low)):
        low -= 1
    return low


def _caps(owned: Int64Array, loads: Int64Array, total: int, low: int) -> Int64Array:
    """Return how many partitions each member may keep: int64 (S,).

    The caps let every other member reach its least.

    If members must give up more than the upper bound demands, the largest counts give first, among
    them the most loaded.
    """
    caps = np.clip(owned, low, low + 1)
    excess = int(caps.sum()) - total
    while excess > 0:
        most = np.flatnonzero(caps == caps.max())
        givers = most[np.argsort(-loads[most], kind="stable")][:excess]
        caps[givers] -= 1
        excess -= givers.size
    return caps


def given_up(lags: Int64Array, owner: Int32Array, caps: Int64Array) -> Int64Array:
    """Free the partitions above each member's cap, of all sizes of lag alike.

    Args:
        lags: int64 (P,).
        owner: int32 (P,): columns or `NOBODY`.
        caps: int64 (S,): how many partitions each subscriber may keep.

    Returns:
        int64 (P,): columns, `NOBODY` for free partitions.
    """
    holder = owner.astype(np.int64)
    owned = np.bincount(holder + 1, minlength=caps.size + 1)[1:]
    surplus = np.append(owned > caps, values=False)  # the last entry is for `NOBODY`
    giving = np.flatnonzero(surplus[holder])
    if not giving.size:
        return holder
    giving = giving[np.lexsort((giving, -lags[giving], holder[giving]))]
    holder[giving[spread_over_runs(holder[giving], caps, owned)]] = NOBODY
    return holder


def deal_by_count(lags: Int64Array, room: Int64Array, loads: Int64Array) -> Int64Array:
    """Deal n partitions to S members, to the member with the most room, then with the least lag.

    Partitions are dealt in order of decreasing lag; equal lags in order of their positions.

    Args:
        lags: int64 (n,).
        room: int64 (S,): how many more partitions each member may take; at least n in total.
        loads: int64 (S,): present lag of each member.

    Returns:
        int64 (n,): column of the member that takes each partition.
    """
    order = np.argsort(-lags, kind="stable")
    columns = np.empty_like(lags)
    room, loads = room.copy(), loads.copy()
    position = 0
    while position < lags.size:
        widest = int(room.max())
        takers = np.flatnonzero(room == widest)
        left = lags.size - position
        if takers.size == 1:  # the only taker until its room equals that of the next member
            next_widest = int(room[room < widest].max(initial=0))
            taken = min(widest - next_widest, left)
        else:
            takers = takers[np.argsort(loads[takers], kind="stable")][:left]
            taken = takers.size
        some = order[position : position + taken]
        columns[some] = takers
        np.add.at(loads, columns[some], lags[some])
        room[takers] -= taken // takers.size
        position += taken
    return columns
