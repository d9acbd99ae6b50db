"""Draw an integer, with the same result in every release of Python."""

from __future__ import annotations

import random


def between(dice: random.Random, low: int, high: int) -> int:
    """Return a number from `low` to `high`, both included.

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
