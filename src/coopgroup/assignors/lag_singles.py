"""Lag-aware placement of topics that have no more partitions than subscribers.

Nobody gets two of such a topic, so loads are single lags, and lag is as even as it can be whoever
has which. What is owned stays, of several that one member owns the one with the most lag; what is
left goes, in order of decreasing lag, to those that have none, in order of their numbers. That is
the proposal's placement where nobody owns any, and there lags are taken as they are.

Theory of operation: a topic and a column are one number together, and the numbers of what is owned
stand in order. If o is the i-th column that is taken in its topic (from 0), o - i columns before it
are free; so the j-th free column is j plus how many of these differences are j at most: a search
in all topics at once. Nothing here has a cell for each topic and subscriber, of which there may be
far more than partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coopgroup.assignors.lag_topics import by_falling_lag, ranks_within
from coopgroup.model import NOBODY
from coopgroup.model.ascending import distinct

if TYPE_CHECKING:
    from coopgroup.model.resource_set import Int32Array, Int64Array

__all__ = ["place_singles"]


def place_singles(counts: Int64Array, lags: Int64Array, owner: Int32Array, size: int) -> Int32Array:
    """Place T topics with P partitions in all among the same S subscribers.

    Args:
        counts: int64 (T,): how many partitions each topic has, from 1 to S.
        lags: int64 (P,), topic by topic.
        owner: int32 (P,): column of each partition's present owner, or NOBODY; becomes the result.
        size: S.

    Returns:
        int32 (P,): columns.
    """
    taken = _taken(counts, lags, owner, size)
    if taken.size < owner.size:
        _fill(counts, lags, owner, taken, size)
    return owner


def _taken(counts: Int64Array, lags: Int64Array, owner: Int32Array, size: int) -> Int64Array:
    """Leave each member one partition of a topic at most; `owner` follows.

    Returns:
        int64: topic times S plus column of all that is owned then, ascending.
    """
    pairs = np.repeat(np.arange(counts.size) * size, counts)
    pairs += owner
    is_owned = owner != NOBODY
    taken: Int64Array = pairs[is_owned]
    taken.sort()
    several = taken[1:][taken[1:] == taken[:-1]]
    if not several.size:
        return taken
    places = np.flatnonzero(is_owned)
    places = places[np.isin(pairs[places], several)]
    places = places[np.lexsort((places, -np.maximum(lags[places], 0), pairs[places]))]
    owner[places[1:][np.diff(pairs[places]) == 0]] = NOBODY
    return distinct(taken).astype(np.int64, copy=False)


def _fill(
    counts: Int64Array, lags: Int64Array, owner: Int32Array, taken: Int64Array, size: int
) -> None:
    """Place what nobody owns; `owner` follows."""
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
