"""Even out how long members work, or what lag they carry, by few moves.

Every member has a load and a speed, and takes load / speed; where all are equally fast, that is the
load. The member that takes longest hands a partition to one of those that take least, or exchanges
one with it, whichever brings the later of the two down most for each move that it costs. A member
that nothing helps is passed over. It ends when the times are as even as the goal says, when no
move gains enough, or with the budget of moves.

Rules of this file: a move is counted against the present owners, so what nobody owns moves freely,
and what goes back to its owner gives a move back. A gain must be more than a stated amount for
every move, so a group at rest stays at rest: what is refused once is refused again when the same
partitions are owned where they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from attrs import define, field, frozen

from coopgroup.model import NOBODY

if TYPE_CHECKING:
    from coopgroup.model.group import Float64Array
    from coopgroup.model.resource_set import BoolArray, Int32Array, Int64Array

__all__ = ["Exchange", "Thrift"]

_PARTNERS_MAX: Final = 8
_CANDIDATES_MAX: Final = 64  # partitions of one member that are looked at, spread over weights
_LOOKS_MAX: Final = 20_000  # some seconds; a group that large goes on in its next round
_FREE: Final = 0.5  # what a move costs, if nobody owns what moves
_NOTHING: Final = -1


@define(kw_only=True)
class Thrift:
    """What moves must bring, and how many there may be.

    Attributes:
        gain_min: by more than this share of the mean time, for every move, the later of two
            members must become earlier.
        moves_left: how many moves may still be made, None for any number.
        looks_left: how often one may still look for a move.
    """

    gain_min: float
    moves_left: int | None
    looks_left: int = field(factory=lambda: _LOOKS_MAX)

    def affords(self, moves: Int64Array) -> BoolArray:
        """Which of these numbers of moves are within the budget."""
        if self.moves_left is None:
            return np.ones(moves.shape, dtype=np.bool_)
        affordable: BoolArray = moves <= max(self.moves_left, 0)
        return affordable

    def spend(self, moves: int) -> None:
        """Take moves off the budget; a negative number gives some back."""
        if self.moves_left is not None:
            self.moves_left -= moves


@frozen(kw_only=True)
class _Step:
    """One exchange: places that go from the heavy member to the partner and back."""

    partner: int
    given: int
    taken: int
    moves: int


@define(kw_only=True, eq=False)
class Exchange:
    """One pool's partitions P and subscribers S, with loads that may be more than this pool's.

    Attributes:
        weights: int64 (P,), none below 0: lag of each partition, or its work.
        owner: int32 (P,): column of each partition's present owner, or NOBODY.
        holder: int64 (P,): column of who shall have it; changed by `run`.
        loads: int64 (S,): weight that each subscriber carries; changed by `run`.
        speeds: float64 (S,): all above 0.
        goal: float64 (S,): times, descending, that are even enough.
        skew: by how many the counts may differ; 0 where counts must stay what they are.
        least: int64 (S,): how many each keeps of this pool, if it has that many.
        thrift: what moves must bring; its budget is used up.
    """

    weights: Int64Array
    owner: Int32Array
    holder: Int64Array
    loads: Int64Array
    speeds: Float64Array
    goal: Float64Array
    skew: int
    least: Int64Array
    thrift: Thrift
    _times: Float64Array = field(init=False)
    _counts: Int64Array = field(init=False)
    _held: dict[int, Int64Array] = field(init=False, factory=dict)
    _order: Int64Array = field(init=False)
    _starts: Int64Array = field(init=False)
    _gain: float = field(init=False)
    _steps: int = field(init=False, default=0)

    def run(self) -> bool:
        """Exchange until it is even enough or nothing helps; say whether anything changed."""
        self._times = self.loads / self.speeds
        self._gain = self.thrift.gain_min * float(self.loads.sum() / self.speeds.sum())
        if self._even_enough():
            return False
        members = np.arange(self.loads.size + 1)
        self._order = np.lexsort((self.weights, self.holder))
        self._starts = np.searchsorted(self.holder[self._order], members)
        self._counts = np.diff(self._starts)
        while self._sweep():
            pass
        return self._steps > 0

    def _sweep(self) -> bool:
        """Go through the members from the latest down; say whether another sweep may help."""
        before = self._steps
        passed_over = np.zeros(self.loads.size, dtype=np.bool_)
        even = self._even_enough()
        while self.thrift.looks_left and not even:
            heavy = int(np.argmax(np.where(passed_over, -1, self._times)))
            if passed_over[heavy] or not self._could_gain(heavy):
                return self._steps > before
            self.thrift.looks_left -= 1
            step = self._best_step(heavy)
            if step is None:
                passed_over[heavy] = True
            else:
                self._take(heavy, step)
                even = self._even_enough()
        return False

    def _even_enough(self) -> bool:
        above = np.sort(self._times)[::-1] - self.goal
        return float(above.max()) <= self._gain

    def _could_gain(self, heavy: int) -> bool:
        """Whether anybody is early enough for this one, or one that is not as late, to gain."""
        needed = self._gain * (1 + float(self.speeds.min() / self.speeds.max()))
        return bool(self._times[heavy] - self._times.min() > needed)

    def _partners(self, heavy: int) -> Int64Array:
        """Who may take something: those that take least, and those with most speed to spare."""
        early = self._times[heavy] - self._times
        both = np.concatenate([_highest(early), _highest(early * self.speeds)])
        partners = both[np.sort(np.unique(both, return_index=True)[1])]
        # What takes the gain off the one and less than the rest onto the other must be possible.
        needed = self._gain * (1 + self.speeds[heavy] / self.speeds[partners])
        enough: Int64Array = partners[early[partners] > needed]
        return enough

    def _best_step(self, heavy: int) -> _Step | None:
        partners = self._partners(heavy)
        if not partners.size:
            return None
        # What is as light as that gains too little, whatever comes back for it.
        too_light = self._gain * self.speeds[heavy]
        given = self._candidates(heavy)
        given = given[self.weights[given] > too_light]
        if not given.size:
            return None
        taken, partner_of = self._offers(heavy, partners)
        nothing = taken == _NOTHING
        weight_taken = np.where(nothing, 0, self.weights[taken])
        owner_taken = np.where(nothing, NOBODY, self.owner[taken])
        # rows: what the heavy member gives; columns: what it takes for it, and from whom
        shifted = self.weights[given][:, None] - weight_taken[None, :]
        later = (self.loads[partner_of][None, :] + shifted) / self.speeds[partner_of][None, :]
        gain = np.minimum(shifted / self.speeds[heavy], self._times[heavy] - later)
        leaves = (self.owner[given] == heavy)[:, None].astype(np.int64)
        returns = self.owner[given][:, None] == partner_of[None, :]
        moves = leaves - returns
        moves += ((owner_taken == partner_of).astype(np.int64) - (owner_taken == heavy))[None, :]
        allowed = gain > self._gain * np.maximum(moves, 1)
        allowed &= self.thrift.affords(moves)
        if not allowed.any():
            return None
        worth = np.where(allowed, gain / np.maximum(moves, _FREE), -1.0)  # by the move: few moves
        row, column = divmod(int(np.argmax(worth)), taken.size)
        return _Step(
            partner=int(partner_of[column]),
            given=int(given[row]),
            taken=int(taken[column]),
            moves=int(moves[row, column]),
        )

    def _offers(self, heavy: int, partners: Int64Array) -> tuple[Int64Array, Int64Array]:
        """What partners may give in exchange, _NOTHING where counts allow a gift, and who."""
        offers = []
        for partner in partners.tolist():
            some = self._candidates(partner)
            if self._may_shift(heavy, partner):
                some = np.append(some, _NOTHING)
            offers.append((some, np.full(some.size, partner, dtype=np.int64)))
        return (
            np.concatenate([some for some, _ in offers]),
            np.concatenate([who for _, who in offers]),
        )

    def _may_shift(self, heavy: int, partner: int) -> bool:
        """Whether counts still fit together when one partition goes from heavy to partner."""
        if not self.skew:
            return False
        counts = self._counts
        if counts[heavy] <= self.least[heavy]:
            return False
        if counts[heavy] == counts[partner] + 1:
            return True
        counts[heavy] -= 1
        counts[partner] += 1
        fits = int(counts.max() - counts.min()) <= self.skew
        counts[heavy] += 1
        counts[partner] -= 1
        return fits

    def _take(self, heavy: int, step: _Step) -> None:
        self._hand_over(step.given, heavy, step.partner)
        if step.taken != _NOTHING:
            self._hand_over(step.taken, step.partner, heavy)
        self.thrift.spend(step.moves)
        self._steps += 1

    def _hand_over(self, place: int, giver: int, taker: int) -> None:
        self._held[giver] = self._places(giver)[self._places(giver) != place]
        grown = np.append(self._places(taker), place)
        self._held[taker] = grown[np.lexsort((grown, self.weights[grown]))]
        self.holder[place] = taker
        for member, sign in ((giver, -1), (taker, 1)):
            self.loads[member] += sign * self.weights[place]
            self._counts[member] += sign
            self._times[member] = self.loads[member] / self.speeds[member]

    def _candidates(self, column: int) -> Int64Array:
        places = self._places(column)
        if places.size <= _CANDIDATES_MAX:
            return places
        spread = np.arange(_CANDIDATES_MAX) * (places.size - 1) // (_CANDIDATES_MAX - 1)
        return places[spread]

    def _places(self, column: int) -> Int64Array:
        """What a member holds, ascending by weight, then by place."""
        if column not in self._held:
            low, high = self._starts[column : column + 2]
            self._held[column] = self._order[low:high]
        return self._held[column]


def _highest(values: Float64Array) -> Int64Array:
    """The columns of the few highest values, highest first, equal ones by number."""
    count = min(_PARTNERS_MAX, values.size)
    least = np.partition(values, values.size - count)[values.size - count]
    columns = np.flatnonzero(values >= least)
    return columns[np.argsort(-values[columns], kind="stable")][:count]
