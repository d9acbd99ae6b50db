"""The lag-aware proposal's placement, for all topics of a pool together.

Theory of operation: counts grow by levels. With S subscribers, a topic's first S partitions give
each subscriber one, the next S partitions a second one, and so on. Inside a level each subscriber
gets one partition, so the order of a level is fixed when it starts: subscribers by (total lag,
member number). A level is therefore one sort of S keys. A key has the total lag in its upper bits
and the subscriber's column in the lower bits. Adding a lag to a key keeps the column, so the sorted
keys can be used again. Topics with the same few subscribers take a level together, as rows of one
table. Totals that could overflow an int64 are Python integers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from attrs import frozen

from coopgroup.core.assignors.ordering import by_falling_lag, ranks_within

if TYPE_CHECKING:
    from coopgroup.core.model.resource_set import Int64Array

_KEY_BITS_MAX: Final = 62
_TABLE_TOPICS_MIN: Final = 16
_TABLE_SUBSCRIBERS_MAX: Final = 256


def deal_topics(counts: Int64Array, lags: Int64Array, subscriber_count: int) -> Int64Array:
    """Place each topic by itself, as the proposal does.

    Args:
        counts: int64 (T,): partitions of each topic, at least 1.
        lags: int64 (P,): lag of each partition, topic by topic.
        subscriber_count: number of members that subscribe to all of the topics.

    Returns:
        int64 (P,): column (0 to `subscriber_count` - 1) of each partition's owner.
    """
    order = by_falling_lag(counts, lags)
    topics = _Topics(
        counts=counts, starts=np.cumsum(counts) - counts, order=order, lags=lags[order]
    )
    del lags  # frees as much memory as the rest of this function needs
    dealt = _dealt(topics, subscriber_count)
    columns = np.empty_like(dealt)
    columns[topics.order] = dealt
    return columns


@frozen(kw_only=True, eq=False)
class _Topics:
    """The T topics of one pool, topic by topic, partitions in order of decreasing lag.

    Attributes:
        counts: int64 (T,): partitions of each topic, at least 1.
        starts: int64 (T,): position of each topic's first partition.
        order: int64 (P,): number of the pool's resource in each position.
        lags: int64 (P,): lag of each position.
    """

    counts: Int64Array
    starts: Int64Array
    order: Int64Array
    lags: Int64Array


def _dealt(topics: _Topics, subscriber_count: int) -> Int64Array:
    """Give each partition to one of S subscribers.

    Returns:
        int64 (P,): column (0 to S - 1) of the subscriber that takes each position.
    """
    # keys of the first level: all lags are 0, so the column decides
    columns = ranks_within(topics.counts)
    deep = np.flatnonzero(topics.counts > subscriber_count)
    if not deep.size:
        return columns
    deep = deep[np.argsort(-topics.counts[deep], kind="stable")]
    column_bits = (subscriber_count - 1).bit_length()
    levels_max = -(-int(topics.counts[deep[0]]) // subscriber_count)
    lag_max = max(int(topics.lags.max()), -int(topics.lags.min()))
    fits = (lag_max * levels_max).bit_length() + column_bits <= _KEY_BITS_MAX
    steps = topics.lags if fits else topics.lags.astype(object)
    steps <<= column_bits  # in place: the lags are not needed again
    keys = np.repeat(np.arange(subscriber_count, dtype=steps.dtype)[None], deep.size, axis=0)
    level = 0
    if subscriber_count <= _TABLE_SUBSCRIBERS_MAX:
        while keys.shape[0] >= _TABLE_TOPICS_MIN:
            keys = _deal_level(topics, deep[: keys.shape[0]], keys, steps, level, columns)
            level += 1
    for topic, row in zip(deep.tolist(), keys, strict=False):
        low = topics.starts[topic] + level * subscriber_count
        high = topics.starts[topic] + topics.counts[topic]
        _deal_topic(row, steps[low:high], columns[low:high])
    return columns


def _deal_level(
    topics: _Topics,
    deep: Int64Array,
    keys: Int64Array,
    steps: Int64Array,
    level: int,
    columns: Int64Array,
) -> Int64Array:
    """Deal one level of all topics that reach it (`deep`, largest first) into `columns`.

    `keys` has total lag and column of each subscriber, int64 (D, S), and is sorted in place.
    `steps` is how much each partition raises the key of its taker.

    Returns:
        Keys after this level for the topics that reach the next one; these topics come first.
    """
    subscriber_count = keys.shape[1]
    seats = np.arange(subscriber_count)
    keys.sort(axis=1)
    takers = keys & _column_mask(subscriber_count)
    positions = (topics.starts[deep] + level * subscriber_count)[:, None] + seats
    left = topics.counts[deep] - level * subscriber_count
    ongoing = int(np.count_nonzero(left > subscriber_count))
    columns[positions[:ongoing]] = takers[:ongoing]
    taken = seats < left[ongoing:, None]
    columns[positions[ongoing:][taken]] = takers[ongoing:][taken]
    later: Int64Array = keys[:ongoing] + steps[positions[:ongoing]]
    return later


def _deal_topic(keys: Int64Array, steps: Int64Array, columns: Int64Array) -> None:
    """Deal the remaining levels of one topic into `columns`.

    `keys` has total lag and column of each subscriber, int64 or object (S,), and is overwritten.
    `steps` is how much each remaining partition raises the key of its taker.
    """
    subscriber_count = keys.size
    rest = steps.size % subscriber_count
    taken = np.empty_like(steps)
    for low in range(0, steps.size - rest, subscriber_count):
        high = low + subscriber_count
        keys.sort()
        taken[low:high] = keys
        keys += steps[low:high]
    keys.sort()
    taken[steps.size - rest :] = keys[:rest]
    taken &= _column_mask(subscriber_count)
    columns[:] = taken


def _column_mask(subscriber_count: int) -> int:
    return (1 << (subscriber_count - 1).bit_length()) - 1
