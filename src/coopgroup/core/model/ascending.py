"""Ascending arrays of distinct integers, the building blocks of a `ResourceSet`.

Functions take arrays, or the parts of a set, and return arrays. "Ascending" here means strictly
ascending.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from coopgroup.errors import ConfigurationError

__all__ = [
    "FEW",
    "INDEX_BITS",
    "INT32_MIN",
    "BoolArray",
    "Int32Array",
    "Int64Array",
    "KeyArray",
    "ascending_indices",
    "common_keys",
    "distinct",
    "few_of",
    "keys",
    "membership",
    "merged",
    "numbers_in",
    "starts_of_one",
]

FEW: Final = 64
"""Up to this number of integers, Python's own sets and lists are faster than calls of NumPy."""

Int32Array: TypeAlias = npt.NDArray[np.int32]
Int64Array: TypeAlias = npt.NDArray[np.int64]
KeyArray: TypeAlias = Int32Array | Int64Array
BoolArray: TypeAlias = npt.NDArray[np.bool_]

INDEX_BITS: Final = 32
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


class Parts(Protocol):
    """The flat parts of a `ResourceSet`, which describes them."""

    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def starts(self) -> Int64Array: ...
    @property
    def flat_indices(self) -> Int32Array: ...


def few_of(left: Parts, right: Parts) -> tuple[list[int], list[int]] | None:
    """Return the indices of two sets with few indices of one name, the same; else None."""
    mine, theirs, names = left.flat_indices, right.flat_indices, left.names
    if mine.size + theirs.size > FEW or len(names) != 1 or names != right.names:
        return None
    return mine.tolist(), theirs.tolist()


def keys(one: Parts, number_of: Mapping[str, int]) -> KeyArray:
    """Return the ascending key of each resource, by the numbers of names."""
    if len(number_of) <= 1:
        return one.flat_indices
    numbers = np.array([number_of[name] for name in one.names], dtype=np.int64)
    bases = (numbers << INDEX_BITS) - INT32_MIN
    starts = one.starts
    made: Int64Array = bases.repeat(starts[1:] - starts[:-1])
    made += one.flat_indices
    return made


def common_keys(left: Parts, right: Parts) -> tuple[tuple[str, ...], KeyArray, KeyArray]:
    """Return the names of two sets together, ascending, and the keys of both."""
    names = left.names if left.names == right.names else tuple(sorted({*left.names, *right.names}))
    if len(names) <= 1:
        return names, left.flat_indices, right.flat_indices
    number_of = {name: number for number, name in enumerate(names)}
    return names, keys(left, number_of), keys(right, number_of)


@lru_cache(maxsize=1_024)
def starts_of_one(size: int) -> Int64Array:
    """Return the starts that all sets with one name and this size share."""
    return np.array([0, size], dtype=np.int64)
