"""Find the positions of many small sets' resources in one large set.

In every round a leader looks up all claims: up to a million resources in ten thousand sets. Names
are looked up one by one, and resources all together. If the indices of a name are consecutive, as
a topic's partitions are, no search is needed.
"""

from __future__ import annotations

from itertools import chain, repeat
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coopgroup.model.resource_set import Int32Array, Int64Array, ResourceSet

__all__ = ["ABSENT", "places_in"]

ABSENT: Final = -1
_INDEX_BITS: Final = 32


def places_in(resources: ResourceSet, sets: Sequence[ResourceSet]) -> Int64Array:
    """Find the resources of several sets, one set after the other.

    Args:
        resources: set to search.
        sets: sets to find.

    Returns:
        int64, shape (sum of the sets' sizes,): position in `resources`, or `ABSENT`.
    """
    some = [one for one in sets if one]
    if not some or not resources:
        return np.full(sum(map(len, some)), ABSENT, dtype=np.int64)
    number_of = {name: number for number, name in enumerate(resources.names)}
    unknown = len(number_of)
    names = chain.from_iterable([one.names for one in some])
    numbers = np.fromiter(map(number_of.get, names, repeat(unknown)), dtype=np.int64)
    row = numbers.repeat(_counts(some))
    wanted = np.concatenate([one.flat_indices for one in some])
    return _found(resources, row, wanted)


def _counts(sets: Sequence[ResourceSet]) -> Int64Array:
    """Return the number of indices of each name of each set."""
    starts = np.concatenate([one.starts for one in sets])
    lasts = np.cumsum([one.starts.size for one in sets]) - 1
    between = np.ones(starts.size - 1, dtype=np.bool_)
    between[lasts[:-1]] = False  # from the end of one set to the start of the next
    counts: Int64Array = np.diff(starts)[between]
    return counts


def _found(resources: ResourceSet, row: Int64Array, wanted: Int32Array) -> Int64Array:
    """Find each index within its name.

    Args:
        resources: set to search, not empty.
        row: int64 (K,): number of the name; one more than the last number for an unknown name.
        wanted: int32 (K,): the index.

    Returns:
        int64 (K,): position, or `ABSENT`.
    """
    starts, indices = resources.starts, resources.flat_indices
    first = np.append(indices[starts[:-1]].astype(np.int64) - starts[:-1], 0)
    last = np.append(starts[1:], 0) - 1
    # The position if its name has all smaller indices.
    places: Int64Array = wanted - first[row]
    np.clip(places, np.append(starts[:-1], 0)[row], last[row], out=places)
    missed = (indices[places] != wanted).nonzero()[0]
    if missed.size:
        keys = _keys(resources.name_numbers, indices)
        sought = _keys(row[missed], wanted[missed])
        places[missed] = np.minimum(keys.searchsorted(sought), keys.size - 1)
        missed = missed[keys[places[missed]] != sought]
    places[missed] = ABSENT
    places[row == len(resources.names)] = ABSENT
    return places


def _keys(numbers: Int64Array, indices: Int32Array) -> Int64Array:
    keys: Int64Array = (numbers << _INDEX_BITS) + indices
    return keys
