"""Lag-aware placement of topics that have at most as many partitions as subscribers.

Each member gets at most one partition of such a topic, so loads are single lags, and every
placement is equally even. Owners keep their partition; an owner of several keeps the one with the
most lag. The other partitions go in order of decreasing lag to members without one, in order of
their numbers. Without owners this is the proposal's placement, and lags are used unchanged.

Theory of operation: topic and column are combined into one number, and the numbers of the taken
columns are sorted. If o is the i-th taken column of its topic (from 0), o - i columns before it are
free. So the j-th free column is j plus the count of these differences that are at most j. That is
one search for all topics together. No array has a cell for each topic and subscriber: there can be
far more such pairs than partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coopgroup.core.assignors.ordering import by_falling_lag, ranks_within
from coopgroup.core.model import NOBODY
from coopgroup.core.model.resource_set import distinct

if TYPE_CHECKING:
    from coopgroup.core.model.resource_set import Int32Array, Int64Array


def place_singles(counts: Int64Array, lags: Int64Array, owner: Int32Array, size: int) -> Int32Array:
    """Place T topics with P partitions in total among the same S subscribers.

    Args:
        counts: int64 (T,): partitions of each topic, from 1 to S.
        lags: int64 (P,), topic by topic.
        owner: int32 (P,): column of each partition's present owner, or `NOBODY`; becomes the
            result.
        size: S.

    Returns:
        int32 (P,): columns.
    """
    taken = _taken(counts, lags, owner, size)
    if taken.size < owner.size:
        _fill(counts, lags, owner, taken, size)
    return owner


def _taken(counts: Int64Array, lags: Int64Array, owner: Int32Array, size: int) -> Int64Array:
    """Leave each member at most one partition of a topic; changes `owner`.

    Returns:
        int64: topic times S plus column of all owned partitions, ascending.
    """
    pairs = np.repeat(np.arange(counts.size) * size, counts)
    pairs += owner
    is_owned = owner != NOBODY
    taken: Int64Array = pairs[is_owned]
    taken.sort()
    several = taken[1:][taken[1:] == taken[:-1]]
    if not several.size:
        return taken
    positions = np.flatnonzero(is_owned)
    positions = positions[np.isin(pairs[positions], several)]
    positions = positions[
        np.lexsort((positions, -np.maximum(lags[positions], 0), pairs[positions]))
    ]
    owner[positions[1:][np.diff(pairs[positions]) == 0]] = NOBODY
    return distinct(taken).astype(np.int64, copy=False)


def _fill(
    counts: Int64Array, lags: Int64Array, owner: Int32Array, taken: Int64Array, size: int
) -> None:
    """Place the partitions without an owner; changes `owner`."""
    is_free = owner == NOBODY
    free = np.flatnonzero(is_free)
    free_counts = np.add.reduceat(is_free, np.cumsum(counts) - counts, dtype=np.int64)
    bounds = np.searchsorted(taken, np.arange(counts.size + 1) * size)
    topics = np.flatnonzero(free_counts)
    free_counts, taken_counts = free_counts[topics], np.diff(bounds)[topics]
    waiting = lags[free]
    np.maximum(waiting, 0, out=waiting, where=np.repeat(taken_counts > 0, free_counts))
    starts = np.cumsum(taken_counts) - taken_counts
    passed = ranks_within(taken_counts)
    differences = taken[np.repeat(bounds[topics], taken_counts) + passed] - passed
    ranks = ranks_within(free_counts)
    wanted = np.repeat(topics * size, free_counts) + ranks
    ranks += np.searchsorted(differences, wanted, side="right")
    ranks -= np.repeat(starts, free_counts)
    owner[free[by_falling_lag(free_counts, waiting)]] = ranks
