"""Find the positions of many small sets' resources in one large set.

In every round a leader looks up all claims: up to a million resources in ten thousand sets. Names
are looked up one by one, and resources all together. If the indices of a name are consecutive, as
a topic's partitions are, no search is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, repeat
from typing import Final

import numpy as np

from coopgroup.core.model.resource_set import Int32Array, Int64Array, ResourceSet

ABSENT: Final = -1
_INDEX_BITS: Final = 32


def positions_in(resources: ResourceSet, sets: Sequence[ResourceSet]) -> Int64Array:
    """Find the resources of several sets, one set after the other.

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
    starts = np.concatenate([one.starts for one in sets])
    lasts = np.cumsum([one.starts.size for one in sets]) - 1
    between = np.ones(starts.size - 1, dtype=np.bool_)
    between[lasts[:-1]] = False  # from the end of one set to the start of the next
    counts: Int64Array = (starts[1:] - starts[:-1])[between]
    return counts


def _found(resources: ResourceSet, row: Int64Array, wanted: Int32Array) -> Int64Array:
    """Find each index within its name: int64 (K,), `ABSENT` if missing."""
    starts, indices = resources.starts, resources.flat_indices
    first = np.append(indices[starts[:-1]].astype(np.int64) - starts[:-1], 0)
    last = np.append(starts[1:], 0) - 1
    # The position if its name has all smaller indices.
    positions: Int64Array = wanted - first[row]
    np.clip(positions, np.append(starts[:-1], 0)[row], last[row], out=positions)
    missed = (indices[positions] != wanted).nonzero()[0]
    if missed.size:
        keys = _keys(resources.name_numbers, indices)
        sought = _keys(row[missed], wanted[missed])
        positions[missed] = np.minimum(keys.searchsorted(sought), keys.size - 1)
        missed = missed[keys[positions[missed]] != sought]
    positions[missed] = ABSENT
    positions[row == len(resources.names)] = ABSENT
    return positions


def _keys(numbers: Int64Array, indices: Int32Array) -> Int64Array:
    keys: Int64Array = (numbers << _INDEX_BITS) + indices
    return keys
