"""`WeightedAssignor`: total weight as even as possible, by few moves.

It is made for groups of light and heavy connectors and tasks. The weight of a resource replaces
the lag. For partitions it therefore evens out the lag, whatever the counts. A weight below 1 or
unknown counts as 1, so that light resources are spread as well.

Kinds are balanced separately: first the connectors (index -1), then everything else. So a member
with a heavy connector gets its share of tasks, as in Kafka Connect.

For each kind:

1. A resource stays with its owner if the owner subscribes to it.
2. Free resources go to the lightest subscriber, heaviest resource first.
3. If two members differ by more than `tolerance` of the mean, one resource moves, or the two
   exchange one for another, provided that the heavier member gets lighter (package `levelling`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from attrs import field, frozen

from coopgroup.core.assignors.levelling.placing import Placing, Workload
from coopgroup.core.assignors.levelling.steps import exact_shift
from coopgroup.core.assignors.move_budget import MoveBudget
from coopgroup.core.assignors.pools import Pool, subscriber_pools
from coopgroup.core.model import NOBODY
from coopgroup.core.model.options import share

if TYPE_CHECKING:
    from coopgroup.core.model.group import GroupSnapshot
    from coopgroup.core.model.resource_set import BoolArray, Int32Array, Int64Array

_BULK_MIN: Final = 4_096  # single moves are fewer, but each takes some tenths of a millisecond


@frozen(kw_only=True)
class WeightedAssignor:
    """Evens out the total weight of members, separately for connectors and for tasks.

    Attributes:
        tolerance: nothing moves while the heaviest member exceeds the lightest by at most this
            share of the mean load. Free resources are always placed as evenly as possible.

    Raises:
        ConfigurationError: the tolerance is not a number from 0 to 1.
    """

    name = "weighted"
    needs_lags = True

    tolerance: float = field(default=0.1, validator=share)

    def assign(self, group: GroupSnapshot, lags: Int64Array) -> Int32Array:
        """Place every assignable resource; resources stay with `group.owner` where possible.

        The lags are the weights; below 1 they count as 1.
        """
        target = np.full(len(group.resources), NOBODY, dtype=np.int32)
        work = Workload(
            weights=_weights(lags, group.assignable), speeds=np.ones(len(group.members))
        )
        pools = subscriber_pools(group)
        are_connectors = group.resources.flat_indices < 0
        for kind in (are_connectors, ~are_connectors):
            parts = [part for pool in pools if (part := _part(pool, kind)) is not None]
            placed = self._placed(group, parts, work)
            target = np.where(placed == NOBODY, target, placed)
        return target

    def _placed(self, group: GroupSnapshot, parts: list[Pool], work: Workload) -> Int32Array:
        """Place one kind: int32 (R,), member numbers or `NOBODY`."""
        total = sum(int(work.weights[part.resources].sum()) for part in parts)
        placing = Placing(
            pools=parts,
            work=work,
            slack=max(1.0, self.tolerance * total / max(1, len(group.members))),
            bulk_min=_BULK_MIN,
        )
        kept = placing.kept(group)
        target = kept.copy()
        placing.deal_free(target)
        goal = np.zeros(len(group.members))  # only the slack bounds the search
        placing.even_out(target, kept, goal, MoveBudget(gain_min=0.0, moves_left=None))
        return target


def _weights(lags: Int64Array, assignable: BoolArray) -> Int64Array:
    """Return weights from 1 up whose every sum is exact."""
    weights = np.maximum(lags, 1) >> exact_shift(lags, assignable)
    return np.where(assignable, np.maximum(weights, 1), 0)


def _part(pool: Pool, kind: BoolArray) -> Pool | None:
    """Return the resources of one kind in a pool, or None without any."""
    resources = pool.resources[kind[pool.resources]]
    return Pool(subscribers=pool.subscribers, resources=resources) if resources.size else None
