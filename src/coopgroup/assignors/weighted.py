"""`WeightedAssignor`: total weight as even as possible, by few moves.

It is made for groups of light and heavy connectors and tasks. The weight of a resource takes the
place of the lag. For partitions it therefore evens out the lag, whatever the counts. A weight below
1 or unknown counts as 1, so that light resources are spread as well.

Kinds are balanced separately: first the connectors (index -1), then everything else. So a member
with a heavy connector gets its share of tasks, as in Kafka Connect.

Theory of operation, for each kind:

1. A resource stays with its owner if the owner subscribes to it.
2. Free resources go to the lightest subscriber, heaviest resource first.
3. If a member is heavier than the lightest one by more than `tolerance` of the mean, the two move
   or swap one resource, provided that the heavier member gets lighter. The step that brings them
   closest is taken first. Each step lowers the sum of squares of the loads, so the steps end, and
   they do not start again from where they ended.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
from attrs import field, frozen

from coopgroup.assignors.options import share
from coopgroup.assignors.pools import Pool, owner_columns, subscriber_pools
from coopgroup.assignors.weighted_levelling import level
from coopgroup.model import NOBODY

if TYPE_CHECKING:
    from coopgroup.model.group import GroupSnapshot
    from coopgroup.model.resource_set import BoolArray, Int32Array, Int64Array

__all__ = ["WeightedAssignor"]

_SUM_BITS_MAX: Final = 61  # the difference of two loads always fits an int64
_SWEEPS_MAX: Final = 1_000


@frozen(kw_only=True)
class WeightedAssignor:
    """Evens out the total weight of members, separately for connectors and for tasks.

    Attributes:
        tolerance: nothing moves while the heaviest member exceeds the lightest by at most this
            share of the mean load. Free resources are always placed as evenly as possible.

    Raises:
        ConfigurationError: the tolerance is not a number from 0 to 1.
    """

    name: ClassVar[str] = "weighted"
    needs_lags: ClassVar[bool] = True

    tolerance: float = field(default=0.1, validator=share)

    def assign(self, group: GroupSnapshot, lags: Int64Array) -> Int32Array:
        """Place every assignable resource that has a subscriber.

        Args:
            group: the group with R resources. Resources stay with `group.owner` where possible.
            lags: int64 (R,): weight of each resource; below 1 counts as 1.

        Returns:
            int32 (R,): number of the member that should own each resource, or `NOBODY`.
        """
        target = np.full(len(group.resources), NOBODY, dtype=np.int32)
        weights = _weights(lags, group.assignable)
        pools = subscriber_pools(group)
        are_connectors = group.resources.flat_indices < 0
        for kind in (are_connectors, ~are_connectors):
            parts = [part for pool in pools if (part := _part(pool, kind)) is not None]
            self._place(group, parts, weights, target)
        return target

    def _place(
        self, group: GroupSnapshot, parts: list[Pool], weights: Int64Array, target: Int32Array
    ) -> None:
        """Place one kind; changes `target`."""
        loads = np.zeros(len(group.members), dtype=np.int64)
        columns = [owner_columns(group, part) for part in parts]
        for part, held in zip(parts, columns, strict=True):
            own = held != NOBODY
            np.add.at(loads, part.subscribers[held[own]], weights[part.resources[own]])
        for part, held in zip(parts, columns, strict=True):
            _deal_free(part, held, weights, loads)
        total = sum(int(weights[part.resources].sum()) for part in parts)
        slack = int(self.tolerance * total / max(1, len(group.members)))
        for _ in range(_SWEEPS_MAX):
            moved = [
                _levelled(part, held, weights, loads, slack)
                for part, held in zip(parts, columns, strict=True)
            ]
            if len(parts) < 2 or not any(moved):
                break
        for part, held in zip(parts, columns, strict=True):
            target[part.resources] = part.subscribers[held]


def _weights(lags: Int64Array, assignable: BoolArray) -> Int64Array:
    """Return weights from 1 up whose every sum is exact."""
    weights = np.where(assignable, np.maximum(lags, 1), 0)
    bits = int(weights.max(initial=0)).bit_length() + int(assignable.sum()).bit_length()
    weights >>= max(0, bits - _SUM_BITS_MAX)
    return np.where(assignable, np.maximum(weights, 1), 0)


def _part(pool: Pool, kind: BoolArray) -> Pool | None:
    """Return the resources of one kind in a pool, or None without any."""
    resources = pool.resources[kind[pool.resources]]
    return Pool(subscribers=pool.subscribers, resources=resources) if resources.size else None


def _deal_free(part: Pool, held: Int32Array, weights: Int64Array, loads: Int64Array) -> None:
    """Give free resources to the lightest member, heaviest first; changes `held`, `loads`."""
    free = np.flatnonzero(held == NOBODY)
    own = weights[part.resources[free]]
    order = np.argsort(-own, kind="stable")
    line = [(load, column) for column, load in enumerate(loads[part.subscribers].tolist())]
    heapq.heapify(line)
    takers = []
    for weight in own[order].tolist():
        load, column = line[0]
        takers.append(column)
        heapq.heapreplace(line, (load + weight, column))
    held[free[order]] = takers
    for load, column in line:
        loads[part.subscribers[column]] = load


def _levelled(
    part: Pool, held: Int32Array, weights: Int64Array, loads: Int64Array, slack: int
) -> bool:
    """Level one part; changes `held` and `loads`. Return whether anything moved."""
    carried = loads[part.subscribers]
    moved = level(weights[part.resources], held, carried, slack)
    loads[part.subscribers] = carried
    return moved
