"""Pools: resources with the same subscribers, which every assignor places together.

Most groups have one pool, because all members subscribe to all topics. More members or resources
make a pool larger and rarely add another pool. So assignors loop over pools and use arrays inside a
pool.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from attrs import frozen

from coopgroup.core.model import NOBODY

if TYPE_CHECKING:
    from coopgroup.core.model.group import GroupSnapshot
    from coopgroup.core.model.resource_set import BoolArray, Int32Array, Int64Array


@frozen(kw_only=True, eq=False)
class Pool:
    """Resources to place, and the members that can own them.

    Attributes:
        subscribers: int32 (S,): numbers of the subscribing members, ascending, never empty.
        resources: int64 (P,): numbers of the assignable resources, ascending, never empty.
    """

    subscribers: Int32Array
    resources: Int64Array


def subscriber_pools(group: GroupSnapshot) -> tuple[Pool, ...]:
    """Split the resources to place by their set of subscribers.

    Args:
        group: the group; only assignable resources with a subscriber are placed.

    Returns:
        Pools sorted by number of subscribers, then by first resource.
    """
    table = group.subscribed_names()
    eligible = np.flatnonzero(group.assignable & group.subscribed())
    if not eligible.size:
        return ()
    pool_of_name, patterns = _name_pools(table)
    if len(patterns) == 1:
        split = [eligible]
    else:
        pool_of = pool_of_name[group.resources.name_numbers[eligible]]
        order = np.argsort(pool_of, kind="stable")
        bounds = np.searchsorted(pool_of[order], np.arange(1, len(patterns)))
        split = np.split(eligible[order], bounds)
    pools = [
        Pool(
            subscribers=np.flatnonzero(pattern[group.class_of]).astype(np.int32),
            resources=resources,
        )
        for pattern, resources in zip(patterns, split, strict=True)
        if resources.size
    ]
    return tuple(sorted(pools, key=lambda pool: (pool.subscribers.size, int(pool.resources[0]))))


def owner_columns(group: GroupSnapshot, pool: Pool) -> Int32Array:
    """Return the owners of a pool's P resources among its S subscribers.

    Returns:
        int32 (P,): column (0 to S - 1) of each resource's owner, `NOBODY` without a subscribing
        owner.
    """
    return columns_of(pool, group.owner, len(group.members))


def columns_of(pool: Pool, holder: Int32Array, member_count: int) -> Int32Array:
    """Return the holders of a pool's P resources among its S subscribers.

    Args:
        pool: the pool.
        holder: int32 (R,): member numbers or `NOBODY`.
        member_count: number of members of the group.

    Returns:
        int32 (P,): column (0 to S - 1) of each resource's holder, `NOBODY` without a subscribing
        holder.
    """
    # the last entry is for `NOBODY`
    column_of = np.full(member_count + 1, NOBODY, dtype=np.int32)
    column_of[pool.subscribers] = np.arange(pool.subscribers.size, dtype=np.int32)
    return column_of[holder[pool.resources]]


def _name_pools(table: BoolArray) -> tuple[Int64Array, BoolArray]:
    """Number topic names by their set of subscribers: bool (classes of members, N names).

    Returns:
        int64 (N,): pool of each name, arbitrary for a name without subscribers; bool (pools,
        classes): the classes that subscribe to each pool.
    """
    if table.shape[0] == 1 or bool(table.all()):
        everybody = np.ones((1, table.shape[0]), dtype=np.bool_)
        return np.zeros(table.shape[1], dtype=np.int64), everybody
    packed = np.packbits(table, axis=0).T
    raw, width = packed.tobytes(), packed.shape[1]
    first: dict[bytes, int] = {}  # first name of each pool; `np.unique` of rows takes far longer
    names_alike = [
        first.setdefault(raw[at : at + width], number)
        for number, at in enumerate(range(0, len(raw), width))
    ]
    of_pools = np.array(list(first.values()), dtype=np.int64)  # ascending
    return of_pools.searchsorted(names_alike), table[:, of_pools].T
