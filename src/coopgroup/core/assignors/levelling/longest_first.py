"""Deal partitions to members of different speed: longest processing time first (LPT).

Partitions are dealt in order of decreasing work, each to the member that would finish it first. For
S members the longest time is at most 2S / (S + 1) times the optimum (Gonzalez, Ibarra, Sahni,
1977). If every member must get at least one partition, the last partitions go to members without
any, the largest of them to the fastest member. No placement with one partition for every member
can place these better, so the bound still holds.

The largest partitions are dealt one by one. The many small ones follow in batches of similar work.
A batch is dealt as if its partitions were equal, so that all its seats are computed together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from coopgroup.core.assignors.ordering import by_falling_lag

if TYPE_CHECKING:
    from coopgroup.core.model.group import Float64Array
    from coopgroup.core.model.resource_set import BoolArray, Int32Array, Int64Array

_SINGLES_MAX: Final = 8_192
_SINGLES_CELLS_MAX: Final = 2**26
_BATCH_ALIKE: Final = 0.9  # smallest work in a batch, as a share of its largest


def deal_by_time(
    weights: Int64Array, times: Float64Array, speeds: Float64Array, lacking: BoolArray
) -> Int32Array:
    """Deal n partitions to S members.

    Args:
        weights: int64 (n,): work of each partition, above 0.
        times: float64 (S,): present drain time of each member.
        speeds: float64 (S,): work that each member does in a unit of time, above 0.
        lacking: bool (S,): members that must get at least one partition, if n suffices.

    Returns:
        int32 (n,): column of the member that takes each partition.
    """
    order = by_falling_lag(np.array([weights.size]), weights)
    falling = weights[order]
    del weights  # frees as much memory as the rest of this function needs
    dealer = _Dealer(falling.astype(np.float64), times, speeds, lacking)
    del falling
    dealer.deal()
    columns = np.empty(order.size, dtype=np.int32)
    columns[order] = dealer.columns
    return columns


class _Dealer:
    """State of the deal; partitions are in order of decreasing work."""

    def __init__(
        self,
        weights: Float64Array,
        times: Float64Array,
        speeds: Float64Array,
        lacking: BoolArray,
    ) -> None:
        self.columns = np.empty(weights.size, dtype=np.int32)
        self._weights = weights
        self._times = times.copy()
        self._pace = 1.0 / speeds  # time for a unit of work
        self._lacking = lacking.copy()
        self._lacking &= np.count_nonzero(lacking) <= weights.size
        self._lacking_count = np.count_nonzero(self._lacking)
        self._place = 0

    def deal(self) -> None:
        singles = min(_SINGLES_MAX, _SINGLES_CELLS_MAX // self._pace.size)
        while self._left > self._lacking_count and self._place < singles:
            self._deal_one()
        while self._left > self._lacking_count:
            self._deal_batch()
        if self._left:
            without = np.flatnonzero(self._lacking)
            fastest_first = np.argsort(self._pace[without], kind="stable")
            self.columns[self._place :] = without[fastest_first]

    @property
    def _left(self) -> int:
        return self._weights.size - self._place

    def _deal_one(self) -> None:
        weight = self._weights[self._place]
        taker = int(np.argmin(self._times + weight * self._pace))
        self.columns[self._place] = taker
        self._times[taker] += weight * self._pace[taker]
        self._place += 1
        if self._lacking[taker]:
            self._lacking[taker] = False
            self._lacking_count -= 1

    def _deal_batch(self) -> None:
        weights = self._weights[self._place :]
        alike = int(np.searchsorted(-weights, -_BATCH_ALIKE * weights[0], side="right"))
        count = min(alike, self._pace.size, self._left - int(self._lacking_count))
        some = weights[:count]
        takers = _seats(self._times, float(some[0]) * self._pace, count)
        self.columns[self._place : self._place + count] = takers
        self._times += np.bincount(takers, some, minlength=self._pace.size) * self._pace
        self._lacking[takers] = False
        self._lacking_count = np.count_nonzero(self._lacking)
        self._place += count


def _seats(times: Float64Array, steps: Float64Array, count: int) -> Int64Array:
    """Return the first seats, as columns in the order in which their partitions would be finished.

    Each of S members has a present drain time, and needs the time of its step for one partition.
    """
    level = level_time(times, times / steps, 1.0 / steps, count)
    seats = np.maximum((level - times) // steps, 0).astype(np.int64)
    surplus = int(seats.sum()) - count
    if surplus > 0:  # can only come from rounding
        seats[np.flatnonzero(seats)[:surplus]] -= 1
    while (missing := count - int(seats.sum())) > 0:
        following = times + (seats + 1) * steps
        order = np.argsort(following, kind="stable")[:missing]
        # A member's second seat must not precede another member's first seat.
        barred = np.minimum.accumulate(following[order] + steps[order])
        late = np.flatnonzero(following[order[1:]] > barred[:-1])
        seats[order[: late[0] + 1] if late.size else order] += 1
    columns = np.repeat(np.arange(times.size), seats)
    ranks = np.arange(count) - np.repeat(np.cumsum(seats) - seats, seats)
    finished = times[columns] + (ranks + 1) * steps[columns]
    return columns[np.argsort(finished, kind="stable")]


def level_time(
    times: Float64Array, loads: Float64Array, speeds: Float64Array, amount: float
) -> float:
    """Return when all members finish if an amount of divisible work is shared out.

    Args:
        times: float64 (S,): present time of each member.
        loads: float64 (S,): its present work, `times` * `speeds`.
        speeds: float64 (S,): work that each member does in a unit of time.
        amount: work to share out.
    """
    order = np.argsort(times, kind="stable")
    levels = (amount + np.cumsum(loads[order])) / np.cumsum(speeds[order])
    # The first k members suffice if member k + 1 would only begin after they have finished.
    later = np.append(times[order][1:], np.inf)
    return float(levels[int(np.argmax(levels <= later))])
