"""How a whole number is drawn, the same in every release of Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

__all__ = ["between"]


def between(dice: random.Random, low: int, high: int) -> int:
    """A number from `low` to `high`, both included, as `randint` draws it in half of the time.

    Every request and every answer draws how long it takes.

    Raises:
        ValueError: `high` is less than `low`.
    """
    if high < low:
        raise ValueError(f"there is no number from {low} to {high}")
    count = high - low + 1
    bits = count.bit_length()
    number = dice.getrandbits(bits)
    while number >= count:
        number = dice.getrandbits(bits)
    return low + number
