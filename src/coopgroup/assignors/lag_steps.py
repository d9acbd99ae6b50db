"""The best that a heavy member and a light one can do with each other, for many pairs at once.

Rules of this file: nothing is changed. Of all that one may give and the other may give back, that
is best which brings the later of the two down most for each move that it costs; of equal ones, what
comes first of what is given, then of what comes back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from attrs import define, field, frozen

from coopgroup.assignors.lag_topics import by_falling_lag
from coopgroup.model import NOBODY

if TYPE_CHECKING:
    from coopgroup.assignors.thrift import Thrift
    from coopgroup.model.group import Float64Array
    from coopgroup.model.resource_set import BoolArray, Int32Array, Int64Array

__all__ = ["NOTHING", "Loads", "Ranked", "Steps", "loads_of"]

NOTHING: Final = -1
_TOGETHER_MIN: Final = 256  # members; with fewer, the best single step goes first
_SUMMED_AT_ONCE: Final = 2**17  # so that what is copied for it is small
_FREE: Final = 0.5  # what a move costs, if nobody owns what moves


@frozen(kw_only=True, eq=False)
class Ranked:
    """P partitions by weight, to be put in order of their holders again and again.

    Attributes:
        places: int64 (P,): ascending by weight, then by place.
        ranks: int32 (P,): where each stands there.
    """

    places: Int64Array
    ranks: Int32Array

    @classmethod
    def of(cls, weights: Int64Array) -> Ranked:
        """Rank by weight."""
        places = by_falling_lag(np.array([weights.size]), -weights)
        ranks = np.empty(places.size, dtype=np.int32)
        ranks[places] = np.arange(places.size, dtype=np.int32)
        return cls(places=places, ranks=ranks)

    def by_holder(self, holder: Int64Array) -> Int64Array:
        """Places ascending by holder, then by weight, then by place: int64 (P,)."""
        rank_bits = holder.size.bit_length()
        keys = holder << rank_bits
        keys |= self.ranks
        keys.sort()
        keys &= (1 << rank_bits) - 1
        order: Int64Array = self.places[keys]
        return order


@frozen(kw_only=True, eq=False)
class Steps:
    """What each of I pairs can do.

    Attributes:
        worth: float64 (I,): what it gains by the move, below 0 where nothing helps.
        rank: int64 (I,): of what is given, which it is.
        given: int64 (I,): place that the heavy member gives.
        taken: int64 (I,): place that it takes for it, or NOTHING.
        moves: int64 (I,): moves that this costs, below 0 if it gives some back.
    """

    worth: Float64Array
    rank: Int64Array
    given: Int64Array
    taken: Int64Array
    moves: Int64Array


@define(kw_only=True, eq=False)
class Loads:
    """Who holds what of one pool, with P partitions and S subscribers, and what that comes to.

    Attributes:
        weights: int64 (P,), none below 0: lag of each partition, or its work.
        owner: int32 (P,): column of each partition's present owner, or NOBODY.
        holder: int64 (P,): column of who shall have it.
        loads: int64 (S,): weight that each subscriber carries, perhaps from other pools, too.
        speeds: float64 (S,): all above 0.
        skew: by how many the counts may differ; 0 where counts must stay what they are.
        least: int64 (S,): how many each keeps of this pool, if it has that many.
        gain_min: what a step must bring for each move, as a share of the mean time.
        gain: the same, in time.
        together: whether there are so many members that several steps are taken at once.
        times: float64 (S,): how long each takes.
        counts: int64 (S,): how many each holds.
        strange: int64 (S,): how many it holds that it does not own.
    """

    weights: Int64Array
    owner: Int32Array
    holder: Int64Array
    loads: Int64Array
    speeds: Float64Array
    skew: int
    least: Int64Array
    gain_min: float
    gain: float = field(init=False)
    together: bool = field(init=False)
    times: Float64Array = field(init=False)
    counts: Int64Array = field(init=False)
    strange: Int64Array = field(init=False)

    def __attrs_post_init__(self) -> None:
        """Sum up."""
        size = self.loads.size
        self.gain = self.gain_min * float(self.loads.sum() / self.speeds.sum())
        self.together = size >= _TOGETHER_MIN
        self.times = self.loads / self.speeds
        self.counts = np.bincount(self.holder, minlength=size)
        self.strange = np.bincount(self.holder[self.holder != self.owner], minlength=size)

    def hand_over(self, place: int, taker: int) -> None:
        """Let somebody else hold one."""
        giver = int(self.holder[place])
        owner = int(self.owner[place])
        for member, sign in ((giver, -1), (taker, 1)):
            self.loads[member] += sign * self.weights[place]
            self.counts[member] += sign
            self.strange[member] += sign * (owner != member)
            self.times[member] = self.loads[member] / self.speeds[member]
        self.holder[place] = taker

    def exchange(
        self, heavy: Int64Array, light: Int64Array, given: Int64Array, taken: Int64Array
    ) -> None:
        """Let pairs hand over what they give and take at once; nobody is in two of them."""
        is_swap = taken != NOTHING
        shifted = self.weights[given] - np.where(is_swap, self.weights[taken], 0)
        self.holder[given] = light
        self.holder[taken[is_swap]] = heavy[is_swap]
        for columns, sign in ((heavy, -1), (light, 1)):
            self.loads[columns] += sign * shifted
            self.counts[columns] += sign * ~is_swap
            self.times[columns] = self.loads[columns] / self.speeds[columns]
        strange = self.holder[self.holder != self.owner]
        self.strange = np.bincount(strange, minlength=self.loads.size)

    def may_help(self, heavy: Int64Array, light: Int64Array) -> BoolArray:
        """Which of I pairs are so far apart that a step might gain enough: bool (I,).

        What is swapped between two that own all that they hold costs two moves.
        """
        pure = (self.strange[heavy] == 0) & (self.strange[light] == 0)
        moves = np.where(pure & ~self.may_shift(heavy, light), 2, 1)
        between = self.times[heavy] - self.times[light]
        needed = self.gain * moves * (1 + self.speeds[heavy] / self.speeds[light])
        # What takes the gain off the one and less than the rest onto the other must be possible.
        enough: BoolArray = between > needed
        return enough

    def may_shift(self, heavy: Int64Array, light: Int64Array) -> BoolArray:
        """Whether counts still fit when a pair shifts one partition: bool (I,).

        Where steps are taken one by one, each pair alone; else all of them at once.
        """
        if not self.skew:
            return np.zeros(heavy.size, dtype=np.bool_)
        counts, gives, takes = self.counts, self.counts[heavy], self.counts[light]
        fits: BoolArray = gives > self.least[heavy]
        if self.skew == 1 or (self.skew < self.weights.size and self.together):
            fits &= gives > takes  # never further apart than before
        elif self.skew < self.weights.size:
            low, next_low = np.partition(counts, 1)[:2]
            next_high, high = np.partition(counts, counts.size - 2)[-2:]
            top = np.where((gives == high) & (next_high < high), next_high, high)
            bottom = np.where((takes == low) & (next_low > low), next_low, low)
            top = np.maximum(top, np.maximum(gives - 1, takes + 1))
            bottom = np.minimum(bottom, np.minimum(gives - 1, takes + 1))
            fits &= (gives == takes + 1) | (top - bottom <= self.skew)
        return fits

    def best_steps(
        self,
        heavy: Int64Array,
        light: Int64Array,
        gives: Int64Array,
        takes: Int64Array,
        thrift: Thrift,
    ) -> Steps:
        """The best step of each of I pairs.

        Args:
            heavy: int64 (I,): columns.
            light: int64 (I,): columns.
            gives: int64 (I, n): places that the heavy one may give, NOTHING where there are fewer.
            takes: int64 (I, m): places that the light one may give back, likewise; to give nothing
                back is possible where counts allow it.
            thrift: how many moves there may be.
        """
        back = np.append(takes, np.full((heavy.size, 1), NOTHING), axis=1)
        is_possible = back != NOTHING
        is_possible[:, -1] = self.may_shift(heavy, light)
        weight_back = np.where(back == NOTHING, 0, self.weights[back])
        owner_back = np.where(back == NOTHING, NOBODY, self.owner[back])
        weight, owner = self.weights[gives], self.owner[gives]
        heavy, light = heavy[:, None], light[:, None]
        # What is as light as that gains too little, whatever comes back for it.
        is_worth = (gives != NOTHING) & (weight > self.gain * self.speeds[heavy])
        # axis 1: what the heavy member gives; axis 2: what it takes for it
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
        allowed &= thrift.affords(moves)
        worth = np.where(allowed, gain / np.maximum(moves, _FREE), -1.0)  # by the move: few moves
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
    """Weight that each of M members, or columns, carries; what NOBODY holds is not counted.

    Args:
        weights: int64 (P,): no sum of them more than a float holds exactly.
        holder: int (P,): member of each, or NOBODY.
        member_count: M.

    Returns:
        int64 (M,).
    """
    sums = np.zeros(member_count + 1)
    for low in range(0, weights.size, _SUMMED_AT_ONCE):
        some = slice(low, low + _SUMMED_AT_ONCE)
        sums += np.bincount(holder[some] + 1, weights[some], minlength=sums.size)
    return sums[1:].astype(np.int64)
