"""`RoundRobinAssignor`: members take turns over all partitions of all topics.

This is Kafka's round-robin assignor. Partitions are in order of topic and number. Members form a
circle: static members by instance id, then dynamic members by member id. Each partition goes to the
next member of the circle that subscribes to its topic. The turn then passes to the member after it.

Theory of operation: consecutive partitions with the same subscribers form a run. Inside a run the
subscribers take turns, so a run needs one line of arithmetic. Only the turn passes from one run to
the next. With equal subscriptions the group has one run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from attrs import frozen

from coopgroup.core.assignors.ordering import members_in_order, seats_of
from coopgroup.core.assignors.pools import subscriber_pools
from coopgroup.core.model import NOBODY

if TYPE_CHECKING:
    from coopgroup.core.assignors.pools import Pool
    from coopgroup.core.model.group import GroupSnapshot
    from coopgroup.core.model.resource_set import Int32Array, Int64Array


@frozen(kw_only=True)
class RoundRobinAssignor:
    """Members take turns over all partitions; ignores the present owners."""

    name = "round-robin"
    needs_lags = False

    def assign(self, group: GroupSnapshot, lags: Int64Array) -> Int32Array:  # noqa: ARG002 - the Protocol's
        """Place every assignable resource; lags are ignored."""
        target = np.full(len(group.resources), NOBODY, dtype=np.int32)
        circle = members_in_order(group)
        pools = subscriber_pools(group)
        seats = [seats_of(pool, circle) for pool in pools]
        turn = 0
        for number, run in _runs(pools, len(group.resources)):
            seated = seats[number]
            # past the last member the circle starts again
            first = int(np.searchsorted(seated, turn))
            takers = seated[(first + np.arange(run.size)) % seated.size]
            target[run] = circle[takers]
            turn = int(takers[-1]) + 1
        return target


def _runs(pools: tuple[Pool, ...], resource_count: int) -> list[tuple[int, Int64Array]]:
    """Cut the sequence of all R resources where the pool changes.

    Returns:
        Number of the pool and numbers of the resources of each run, in the order of resources.
    """
    pool_of = np.full(resource_count, NOBODY, dtype=np.int64)
    for number, pool in enumerate(pools):
        pool_of[pool.resources] = number
    row = np.flatnonzero(pool_of != NOBODY)
    edges = np.flatnonzero(np.diff(pool_of[row])) + 1
    return [(int(pool_of[run[0]]), run) for run in np.split(row, edges) if run.size]
