"""Ascending arrays of distinct integers, the building blocks of a `ResourceSet`.

Functions take arrays and return arrays. "Ascending" here means strictly ascending.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from coopgroup.errors import ConfigurationError

__all__ = [
    "FEW",
    "INT32_MIN",
    "BoolArray",
    "Int32Array",
    "Int64Array",
    "KeyArray",
    "ascending_indices",
    "distinct",
    "membership",
    "merged",
    "numbers_in",
]

Int32Array: TypeAlias = npt.NDArray[np.int32]
Int64Array: TypeAlias = npt.NDArray[np.int64]
KeyArray: TypeAlias = Int32Array | Int64Array
BoolArray: TypeAlias = npt.NDArray[np.bool_]

FEW: Final = 64
"""Up to this number of integers, Python's own sets and lists are faster than calls of NumPy."""

INT32_MIN: Final = -(2**31)
_INT32_MAX: Final = 2**31 - 1


def ascending_indices(name: str, indices: Iterable[int]) -> Int32Array:
    """Return the integers in ascending order without repeats.

    Raises:
        ConfigurationError: a value is not an integer that fits into int32.
    """
    if type(indices) is list and len(indices) <= FEW and set(map(type, indices)) == {int}:
        few = sorted(set(indices))
        if few[0] >= INT32_MIN and few[-1] <= _INT32_MAX:
            return np.array(few, dtype=np.int32)
    values = np.asarray(
        indices if isinstance(indices, (np.ndarray, range)) else list(indices)  # any iterable
    )
    if not values.size:
        return np.empty(0, dtype=np.int32)
    if values.ndim != 1 or values.dtype.kind not in "iu":
        raise ConfigurationError(f"indices of {name}", values.tolist(), "integers")
    ascending = values if (values[1:] > values[:-1]).all() else np.unique(values)
    if ascending[0] < INT32_MIN or ascending[-1] > _INT32_MAX:
        outside = values[(values < INT32_MIN) | (values > _INT32_MAX)][0]
        raise ConfigurationError(f"indices of {name}", int(outside), "an index within int32")
    return ascending.astype(np.int32)


def merged(left: KeyArray, right: KeyArray) -> KeyArray:
    """Return the union of two ascending arrays."""
    keys: KeyArray = np.concatenate([left, right])
    keys.sort(kind="stable")  # a stable sort of two ascending runs is one linear merge
    return distinct(keys)


def numbers_in(numbers: Int32Array) -> Int64Array:
    """Return the distinct numbers from 0 up in an array, ascending; -1 means no number.

    The numbers are those of members or losses, so they can be counted in one pass. A sort, as in
    `np.unique`, takes several passes, and many calls for a small group.
    """
    counts = np.bincount(numbers + 1)
    return counts[1:].nonzero()[0]


def distinct(keys: KeyArray) -> KeyArray:
    """Return sorted keys without repeats."""
    fresh = np.ones(keys.size, dtype=np.bool_)
    np.not_equal(keys[1:], keys[:-1], out=fresh[1:])
    return keys[fresh]


def membership(
    wanted: KeyArray, among: KeyArray, positions: npt.NDArray[np.intp] | None = None
) -> BoolArray:
    """Return which of the ascending `wanted` keys are in the ascending `among`."""
    if not among.size:
        return np.zeros(wanted.size, dtype=np.bool_)
    if positions is None:
        positions = among.searchsorted(wanted)
    found: BoolArray = among[np.minimum(positions, among.size - 1)] == wanted
    return found
