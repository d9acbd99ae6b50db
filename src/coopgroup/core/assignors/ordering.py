"""Orders: fast sorts for the arrays of assignors, and the order of members in Kafka's assignors.

A segment is a part of an array, such as the partitions of one topic. Sorting keys that contain the
position is several times faster than an argsort.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from coopgroup.core.assignors.pools import Pool
    from coopgroup.core.model.group import GroupMember, GroupSnapshot
    from coopgroup.core.model.resource_set import BoolArray, Int32Array, Int64Array

_KEY_BITS_MAX: Final = 62


def by_falling_lag(counts: Int64Array, lags: Int64Array) -> Int64Array:
    """Sort the partitions of each topic by decreasing lag; equal lags by position.

    Args:
        counts: int64 (T,): partitions of each topic, at least 1.
        lags: int64 (P,): lag of each partition, topic by topic.

    Returns:
        int64 (P,): positions, topic by topic.
    """
    starts = np.cumsum(counts) - counts
    highest = int(lags.max())
    rank_bits = (int(counts.max()) - 1).bit_length()
    lag_bits = (highest - int(lags.min())).bit_length()
    topic_bits = (counts.size - 1).bit_length()
    if topic_bits + lag_bits + rank_bits > _KEY_BITS_MAX:
        topic_of = np.repeat(np.arange(counts.size), counts)
        return np.lexsort((~lags, topic_of))  # ~lag falls as lag rises, and never overflows
    # The keys are computed in place: a million partitions are eight megabytes per array.
    keys = highest - lags
    if counts.size > 1:
        keys += np.repeat(np.arange(counts.size) << lag_bits, counts)
    keys <<= rank_bits
    keys += ranks_within(counts)
    keys.sort()
    keys &= (1 << rank_bits) - 1
    if counts.size > 1:
        keys += np.repeat(starts, counts)
    return keys


def by_column(columns: Int64Array, positions: Int64Array) -> Int64Array:
    """Sort some positions by their column; positions of one column keep their order.

    Args:
        columns: int64 (P,): column of each position, at least 0.
        positions: int64 (n,): distinct, in any order.

    Returns:
        int64 (n,): positions.
    """
    rank_bits = positions.size.bit_length()
    keys = columns[positions]
    keys <<= rank_bits
    keys |= np.arange(positions.size, dtype=np.int32)
    keys.sort()
    keys &= (1 << rank_bits) - 1
    order: Int64Array = positions[keys]
    return order


def ranks_within(counts: Int64Array) -> Int64Array:
    """Return the rank of each position inside its segment, from 0: int64 (P,).

    Args:
        counts: int64 (T,): positions of each segment; 0 is allowed.
    """
    ranks = np.arange(int(counts.sum()))
    if counts.size == 1:
        return ranks
    ranks -= np.repeat(np.cumsum(counts) - counts, counts)
    return ranks


def ranks_in_runs(columns: Int32Array | Int64Array) -> Int64Array:
    """Return the rank of each entry inside its run of equal columns, from 0: int64 (n,).

    Args:
        columns: int (n,): ascending, at least 0.
    """
    edges = np.flatnonzero(np.diff(columns, prepend=-1))
    return ranks_within(np.diff(edges, append=columns.size))


def spread_over_runs(
    columns: Int32Array | Int64Array, kept: Int64Array, owned: Int64Array
) -> BoolArray:
    """Choose the entries of each run to give up: spread evenly, never the first.

    Args:
        columns: int (n,): ascending; all resources of each owner that gives up some.
        kept: int64 (S,): how many resources each owner keeps.
        owned: int64 (S,): how many resources each owner has.

    Returns:
        bool (n,): the entries to give up.
    """
    keeps = kept[columns]
    gone: BoolArray = (-ranks_in_runs(columns) * keeps) % owned[columns] >= keeps
    return gone


def members_in_order(group: GroupSnapshot) -> Int32Array:
    """Return static members by instance id, then dynamic members by member id.

    A static member keeps its instance id when it restarts with another member id (KIP-345), so its
    position does not change.

    Returns:
        int32 (M,): member numbers.
    """
    members = group.members
    order = sorted(range(len(members)), key=lambda number: _sort_key(members[number]))
    return np.array(order, dtype=np.int32)


def seats_of(pool: Pool, order: Int32Array) -> Int64Array:
    """Return the positions of a pool's S subscribers in the member order: int64 (S,)."""
    subscribes = np.zeros(order.size, dtype=np.bool_)
    subscribes[pool.subscribers] = True
    return np.flatnonzero(subscribes[order])


def _sort_key(member: GroupMember) -> tuple[bool, str, str]:
    return member.instance_id is None, member.instance_id or "", member.member_id
