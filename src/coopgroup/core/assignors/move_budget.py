"""`MoveBudget`: what an assignor's moves must gain, and how many moves are allowed.

The steps of one assignment share one `MoveBudget`, so the budget covers all of them together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from attrs import define, field

if TYPE_CHECKING:
    from coopgroup.core.model.resource_set import BoolArray, Int64Array

GAIN_MIN: Final = 0.05  # smaller differences are noise: lags and rates change all the time
_LOOKS_MAX: Final = 20_000  # takes some seconds; a group that large continues in its next round


@define(kw_only=True)
class MoveBudget:
    """What moves must gain, and how many moves are left.

    Attributes:
        gain_min: each move must shorten the time of the slower of two members by more than this
            share of the mean time.
        moves_left: how many moves are left, None for any number.
        looks_left: how many more times an assignor may look for a move.
    """

    moves_left: int | None
    gain_min: float = GAIN_MIN
    looks_left: int = field(factory=lambda: _LOOKS_MAX)

    def affords(self, moves: Int64Array) -> BoolArray:
        """Return which of these numbers of moves are within the budget."""
        if self.moves_left is None:
            return np.ones(moves.shape, dtype=np.bool_)
        affordable: BoolArray = moves <= max(self.moves_left, 0)
        return affordable

    def spend(self, moves: int) -> None:
        """Take moves off the budget; a negative number returns some."""
        if self.moves_left is not None:
            self.moves_left -= moves
