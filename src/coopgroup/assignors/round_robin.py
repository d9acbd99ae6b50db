"""`RoundRobinAssignor`: all partitions of all topics in one row, members taking turns.

As Kafka's assignor of this name: partitions in order of topic and number, members in a circle,
static ones by instance id before dynamic ones by member id; each partition goes to the next
member along the circle that subscribes to its topic, and the turn passes on to the one after it.

Theory of operation: partitions in a row that the same members may hold make a run. Inside a run
the subscribers simply take turns, so a run is one line of arithmetic, and only the member whose
turn it is passes from one run to the next. With equal subscriptions there is one run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
from attrs import frozen

from coopgroup.assignors.member_order import members_in_order, seats_of
from coopgroup.assignors.pools import subscriber_pools
from coopgroup.model import NOBODY

if TYPE_CHECKING:
    from coopgroup.assignors.pools import Pool
    from coopgroup.model.group import GroupSnapshot
    from coopgroup.model.resource_set import Int32Array, Int64Array

__all__ = ["RoundRobinAssignor"]


@frozen(kw_only=True)
class RoundRobinAssignor:
    """Members take turns over all partitions; who owns what now is not looked at."""

    name: ClassVar[str] = "round-robin"
    needs_lags: ClassVar[bool] = False

    def assign(self, group: GroupSnapshot, lags: Int64Array) -> Int32Array:  # noqa: ARG002 - the Protocol's
        """Place every resource that is assignable and that somebody subscribes to.

        Args:
            group: the group with R resources.
            lags: not looked at.

        Returns:
            int32 (R,): number of the member that should hold each resource, or NOBODY.
        """
        target = np.full(len(group.resources), NOBODY, dtype=np.int32)
        circle = members_in_order(group)
        pools = subscriber_pools(group)
        seats = [seats_of(pool, circle) for pool in pools]
        turn = 0
        for number, run in _runs(pools, len(group.resources)):
            seated = seats[number]
            first = int(np.searchsorted(seated, turn))  # past the last one: the circle closes
            takers = seated[(first + np.arange(run.size)) % seated.size]
            target[run] = circle[takers]
            turn = int(takers[-1]) + 1
        return target


def _runs(pools: tuple[Pool, ...], resource_count: int) -> list[tuple[int, Int64Array]]:
    """Cut the row of all R resources to place wherever the next one is of another pool.

    Returns:
        Number of the pool and numbers of the resources of each run, in the order of resources.
    """
    pool_of = np.full(resource_count, NOBODY, dtype=np.int64)
    for number, pool in enumerate(pools):
        pool_of[pool.resources] = number
    row = np.flatnonzero(pool_of != NOBODY)
    edges = np.flatnonzero(np.diff(pool_of[row])) + 1
    return [(int(pool_of[run[0]]), run) for run in np.split(row, edges) if run.size]
