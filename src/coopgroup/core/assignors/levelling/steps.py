"""Find the best step between a heavy member and a light one, for many pairs together.

The heavy member can give a partition and take one back. The best step shortens the slower member's
time most per move. Among equal steps the first given position wins, then the first taken position.
`best_steps` changes nothing.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

import numpy as np
from attrs import define, field, frozen

from coopgroup.core.model import NOBODY

if TYPE_CHECKING:
    from coopgroup.core.assignors.move_budget import MoveBudget
    from coopgroup.core.model.group import Float64Array
    from coopgroup.core.model.resource_set import BoolArray, Int32Array, Int64Array

NOTHING: Final = -1
_TOGETHER_MIN: Final = 256  # members; below this, the best single step is taken first
_TOTAL_BITS_MAX: Final = 52  # a float, and so a weighted bincount, is exact for such sums
_SUMMED_AT_ONCE: Final = 2**17  # bounds the size of temporary copies
_FREE: Final = 0.5  # price of moving a partition without an owner


@frozen(kw_only=True, eq=False)
class Steps:
    """The best step of each of I pairs.

    Attributes:
        worth: float64 (I,): gain per move, below 0 if no step helps.
        rank: int64 (I,): rank of the given position among the candidates.
        given: int64 (I,): position that the heavy member gives.
        taken: int64 (I,): position that it takes in return, or `NOTHING`.
        moves: int64 (I,): moves that the step costs; negative if it gives moves back.
    """

    worth: Float64Array
    rank: Int64Array
    given: Int64Array
    taken: Int64Array
    moves: Int64Array


class Counting(Enum):
    """How far the counts of a pool's subscribers may differ."""

    FIXED = "no count changes"
    EVEN = "counts differ by at most one"
    FREE = "counts may differ"


@define(kw_only=True, eq=False)
class Loads:
    """Planned holders in one pool with P partitions and S subscribers, and the resulting loads.

    Attributes:
        weights: int64 (P,), at least 0: lag or work of each partition.
        owner: int32 (P,): column of each partition's present owner, or `NOBODY`.
        holder: int64 (P,): column of each partition's planned owner.
        loads: int64 (S,): weight of each subscriber, including other pools.
        speeds: float64 (S,): above 0.
        counting: how far the counts may differ.
        least: int64 (S,): how many partitions of this pool each subscriber keeps, if it has as
            many.
        gain_min: what a step must gain per move, as a share of the mean time.
        slack: two subscribers whose times differ by at most this much are left alone.
        gain: `gain_min` as a time.
        tolerance: the part of its share by which the load of a subscriber may differ from it before
            many partitions move together.
        together: whether the group is so large that several steps are taken together.
        times: float64 (S,): time of each subscriber.
        counts: int64 (S,): number of partitions of each subscriber.
        strange: int64 (S,): how many of these it does not own yet.
    """

    weights: Int64Array
    owner: Int32Array
    holder: Int64Array
    loads: Int64Array
    speeds: Float64Array
    counting: Counting
    least: Int64Array
    gain_min: float
    slack: float = 0.0
    gain: float = field(init=False)
    tolerance: float = field(init=False)
    together: bool = field(init=False)
    times: Float64Array = field(init=False)
    counts: Int64Array = field(init=False)
    strange: Int64Array = field(init=False)

    def __attrs_post_init__(self) -> None:
        """Sum up."""
        mean_time = float(self.loads.sum() / self.speeds.sum())
        self.gain = self.gain_min * mean_time
        self.tolerance = max(self.gain_min, self.slack / 2 / mean_time if self.slack else 0.0)
        self.together = self.loads.size >= _TOGETHER_MIN
        self.sum_up()

    def sum_up(self) -> None:
        """Compute `times`, `counts` and `strange` from the holders and the loads."""
        size = self.loads.size
        self.times = self.loads / self.speeds
        self.counts = np.bincount(self.holder, minlength=size)
        self.strange = np.bincount(self.holder[self.holder != self.owner], minlength=size)

    def hand_over(self, position: int, taker: int) -> None:
        """Give one position to another holder."""
        giver = int(self.holder[position])
        owner = int(self.owner[position])
        for member, sign in ((giver, -1), (taker, 1)):
            self.loads[member] += sign * self.weights[position]
            self.counts[member] += sign
            self.strange[member] += sign * (owner != member)
            self.times[member] = self.loads[member] / self.speeds[member]
        self.holder[position] = taker

    def may_help(self, heavy: Int64Array, light: Int64Array) -> BoolArray:
        """Return which of I pairs are so far apart that a step can gain enough: bool (I,).

        A swap between two members that own everything they hold costs two moves.
        """
        pure = (self.strange[heavy] == 0) & (self.strange[light] == 0)
        moves = np.where(pure & ~self.may_shift(heavy, light), 2, 1)
        between = self.times[heavy] - self.times[light]
        needed = self.gain * moves * (1 + self.speeds[heavy] / self.speeds[light])
        # A step must take at least the gain from the heavy member and must add less than the rest
        # to the light one.
        enough: BoolArray = between > np.maximum(needed, self.slack)
        return enough

    def may_shift(self, heavy: Int64Array, light: Int64Array) -> BoolArray:
        """Return whether counts still fit if a pair moves one partition: bool (I,)."""
        if self.counting is Counting.FIXED:
            return np.zeros(heavy.size, dtype=np.bool_)
        fits: BoolArray = self.counts[heavy] > self.least[heavy]
        if self.counting is Counting.EVEN:
            fits &= self.counts[heavy] > self.counts[light]  # never widen the difference
        return fits

    def best_steps(
        self,
        heavy: Int64Array,
        light: Int64Array,
        gives: Int64Array,
        takes: Int64Array,
        budget: MoveBudget,
    ) -> Steps:
        """Return the best step of each of I pairs.

        Args:
            heavy: int64 (I,): columns.
            light: int64 (I,): columns.
            gives: int64 (I, n): positions that the heavy member can give, padded with `NOTHING`.
            takes: int64 (I, m): positions that the light member can give back, padded likewise.
                Giving nothing back is possible if the counts allow it.
            budget: how many moves are left.
        """
        back = np.append(takes, np.full((heavy.size, 1), NOTHING), axis=1)
        is_possible = back != NOTHING
        is_possible[:, -1] = self.may_shift(heavy, light)
        weight_back = np.where(back == NOTHING, 0, self.weights[back])
        owner_back = np.where(back == NOTHING, NOBODY, self.owner[back])
        weight, owner = self.weights[gives], self.owner[gives]
        heavy, light = heavy[:, None], light[:, None]
        # A lighter position gains too little, even if nothing is given back for it.
        is_worth = (gives != NOTHING) & (weight > self.gain * self.speeds[heavy])
        # axis 1: the position that the heavy member gives; axis 2: the one that it takes in return
        shifted = weight[:, :, None] - weight_back[:, None, :]
        later = (self.loads[light][..., None] + shifted) / self.speeds[light][..., None]
        gain = np.minimum(
            shifted / self.speeds[heavy][..., None], self.times[heavy][..., None] - later
        )
        leaves = (owner == heavy).astype(np.int64) - (owner == light)
        returns = (owner_back == light).astype(np.int64) - (owner_back == heavy)
        moves = leaves[:, :, None] + returns[:, None, :]
        allowed = gain > self.gain * np.maximum(moves, 1)
        allowed &= is_worth[:, :, None] & is_possible[:, None, :]
        allowed &= budget.affords(moves)
        # per move, which keeps moves few
        worth = np.where(allowed, gain / np.maximum(moves, _FREE), -1.0)
        row = np.arange(worth.shape[0])
        rank, column = np.divmod(worth.reshape(row.size, -1).argmax(axis=1), back.shape[1])
        return Steps(
            worth=worth[row, rank, column],
            rank=rank,
            given=gives[row, rank],
            taken=back[row, column],
            moves=moves[row, rank, column],
        )


def loads_of(weights: Int64Array, holder: Int64Array | Int32Array, member_count: int) -> Int64Array:
    """Return the weight of each of M members or columns; `NOBODY` is left out.

    Args:
        weights: int64 (P,): every sum must be exact as a float.
        holder: int (P,): member of each position, or `NOBODY`.
        member_count: M.

    Returns:
        int64 (M,).
    """
    sums = np.zeros(member_count + 1)
    for low in range(0, weights.size, _SUMMED_AT_ONCE):
        some = slice(low, low + _SUMMED_AT_ONCE)
        sums += np.bincount(holder[some] + 1, weights[some], minlength=sums.size)
    return sums[1:].astype(np.int64)


def exact_shift(weights: Int64Array, assignable: BoolArray) -> int:
    """Return how many low bits of R weights to drop, so that the sum of any of them is exact."""
    highest = int(weights.max(where=assignable, initial=0))
    bits = highest.bit_length() + int(np.count_nonzero(assignable)).bit_length()
    return max(0, bits - _TOTAL_BITS_MAX)
