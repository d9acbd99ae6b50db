"""`Thrift`: what the moves of an assignor must bring, and how many there may be.

Rules of this file: whoever evens something out shares one of these with those that go on after it,
so that the budget is one for all of them together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from attrs import define, field

if TYPE_CHECKING:
    from coopgroup.model.resource_set import BoolArray, Int64Array

__all__ = ["Thrift"]

_LOOKS_MAX: Final = 20_000  # some seconds; a group that large goes on in its next round


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
