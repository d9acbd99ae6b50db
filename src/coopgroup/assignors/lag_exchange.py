"""Even out lag between members by few moves.

The most loaded member hands a partition to one of the least loaded, or exchanges one with it,
whichever brings the heavier of the two down most for each move that it costs. A member that
nothing helps is passed over. It ends when the loads are as even as the goal says, when no move
gains enough, or with the budget of moves.

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
    from coopgroup.model.resource_set import BoolArray, Int32Array, Int64Array

__all__ = ["Exchange", "Thrift"]

_PARTNERS_MAX: Final = 8
_CANDIDATES_MAX: Final = 64  # partitions of one member that are looked at, spread over its lags
_LOOKS_MAX: Final = 20_000  # some seconds; a group that large goes on in its next round
_FREE: Final = 0.5  # what a move costs, if nobody owns what moves
_NOTHING: Final = -1


@define(kw_only=True)
class Thrift:
    """What moves must bring, and how many there may be.

    Attributes:
        gain_min: by more than this share of the mean load, for every move, the heavier of two
            members must become lighter.
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
        lags: int64 (P,), none below 0.
        owner: int32 (P,): column of each partition's present owner, or NOBODY.
        holder: int64 (P,): column of who shall have it; changed by `run`.
        loads: int64 (S,): lag that each subscriber carries; changed by `run`.
        goal: int64 (S,): loads, descending, that are even enough.
        skew: by how many the counts may differ; 0 where counts must stay what they are.
        thrift: what moves must bring; its budget is used up.
    """

    lags: Int64Array
    owner: Int32Array
    holder: Int64Array
    loads: Int64Array
    goal: Int64Array
    skew: int
    thrift: Thrift
    _counts: Int64Array = field(init=False)
    _held: dict[int, Int64Array] = field(init=False, factory=dict)
    _order: Int64Array = field(init=False)
    _starts: Int64Array = field(init=False)
    _gain: float = field(init=False)
    _steps: int = field(init=False, default=0)

    def run(self) -> bool:
        """Exchange until it is even enough or nothing helps; say whether anything changed."""
        self._gain = self.thrift.gain_min * float(self.loads.mean())
        if self._even_enough():
            return False
        members = np.arange(self.loads.size + 1)
        self._order = np.lexsort((self.lags, self.holder))
        self._starts = np.searchsorted(self.holder[self._order], members)
        self._counts = np.diff(self._starts)
        while self._sweep():
            pass
        return self._steps > 0

    def _sweep(self) -> bool:
        """Go through the members from the heaviest down; say whether another sweep may help."""
        before = self._steps
        passed_over = np.zeros(self.loads.size, dtype=np.bool_)
        while self.thrift.looks_left and not self._even_enough():
            heavy = int(np.argmax(np.where(passed_over, -1, self.loads)))
            if passed_over[heavy] or not self._could_gain(heavy):
                return self._steps > before
            self.thrift.looks_left -= 1
            step = self._best_step(heavy)
            if step is None:
                passed_over[heavy] = True
            else:
                self._take(heavy, step)
        return False

    def _even_enough(self) -> bool:
        above = np.sort(self.loads)[::-1] - self.goal
        return int(above.max()) <= self._gain

    def _could_gain(self, heavy: int) -> bool:
        return int(self.loads[heavy] - self.loads.min()) > 2 * self._gain

    def _best_step(self, heavy: int) -> _Step | None:
        partners = np.argsort(self.loads, kind="stable")[:_PARTNERS_MAX]
        partners = partners[self.loads[heavy] - self.loads[partners] > 2 * self._gain]
        given = self._candidates(heavy)
        taken, partner_of = self._offers(heavy, partners)
        nothing = taken == _NOTHING
        lag_taken = np.where(nothing, 0, self.lags[taken])
        owner_taken = np.where(nothing, NOBODY, self.owner[taken])
        # rows: what the heavy member gives; columns: what it takes for it, and from whom
        shifted = self.lags[given][:, None] - lag_taken[None, :]
        between = (self.loads[heavy] - self.loads[partner_of])[None, :]
        gain = np.minimum(shifted, between - shifted)
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
        if counts[heavy] == counts[partner] + 1:
            return True
        counts[heavy] -= 1
        counts[partner] += 1
        fits = int(counts.max() - counts.min()) <= self.skew
        fits &= bool(counts[heavy] >= min(1, self.lags.size // counts.size))
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
        self._held[taker] = grown[np.lexsort((grown, self.lags[grown]))]
        self.holder[place] = taker
        for member, sign in ((giver, -1), (taker, 1)):
            self.loads[member] += sign * self.lags[place]
            self._counts[member] += sign

    def _candidates(self, column: int) -> Int64Array:
        places = self._places(column)
        if places.size <= _CANDIDATES_MAX:
            return places
        spread = np.arange(_CANDIDATES_MAX) * (places.size - 1) // (_CANDIDATES_MAX - 1)
        return places[spread]

    def _places(self, column: int) -> Int64Array:
        """What a member holds, ascending by lag, then by place."""
        if column not in self._held:
            low, high = self._starts[column : column + 2]
            self._held[column] = self._order[low:high]
        return self._held[column]
