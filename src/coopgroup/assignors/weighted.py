"""`WeightedAssignor`: total weight as even as possible, by few moves.

For groups of connectors and tasks, of which some are heavy and some light: the weight of each
stands where others have its lag (so with partitions it evens the lag out, whatever the counts).
What weighs nothing, or is not known, counts as 1, so that light things are spread, too.

Kinds are balanced separately: connectors themselves (index -1) among the members, then everything
else. So a member with a heavy connector gets its share of tasks, as in Kafka Connect.

Theory of operation, for each kind:

1. What is owned stays, where its owner subscribes to it.
2. What is free goes to the lightest subscriber, heaviest first.
3. While a member is heavier than the lightest one by more than `tolerance` of the mean, and moving
   or swapping one thing between the two makes the heavier of them lighter, that is done: what
   brings them closest to each other first. Each such step lowers the sum of squares of the loads,
   so the steps end; and where they ended they would not begin again.
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

_SUM_BITS_MAX: Final = 61  # a difference of two loads is an int64 in any case
_SWEEPS_MAX: Final = 1_000


@frozen(kw_only=True)
class WeightedAssignor:
    """Evens out the total weight of members, connectors and tasks each by themselves.

    Attributes:
        tolerance: by how much of the mean load the heaviest member may carry more than the
            lightest without anything moving. Free resources are placed as well as can be anyway.

    Raises:
        ConfigurationError: a tolerance that is no share.
    """

    name: ClassVar[str] = "weighted"
    needs_lags: ClassVar[bool] = True

    tolerance: float = field(default=0.1, validator=share)

    def assign(self, group: GroupSnapshot, lags: Int64Array) -> Int32Array:
        """Place every resource that is assignable and that somebody subscribes to.

        Args:
            group: the group with R resources; `group.owner` is what stays where it can.
            lags: int64 (R,): weight of each resource; below 1 counts as 1.

        Returns:
            int32 (R,): number of the member that should hold each resource, or NOBODY.
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
        """Place one kind: `target` follows."""
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
    """Weights from 1 up, and no sum of them too large to be exact."""
    weights = np.where(assignable, np.maximum(lags, 1), 0)
    bits = int(weights.max(initial=0)).bit_length() + int(assignable.sum()).bit_length()
    weights >>= max(0, bits - _SUM_BITS_MAX)
    return np.where(assignable, np.maximum(weights, 1), 0)


def _part(pool: Pool, kind: BoolArray) -> Pool | None:
    """The resources of one kind in a pool, None if there are none."""
    resources = pool.resources[kind[pool.resources]]
    return Pool(subscribers=pool.subscribers, resources=resources) if resources.size else None


def _deal_free(part: Pool, held: Int32Array, weights: Int64Array, loads: Int64Array) -> None:
    """Give what nobody owns to the lightest, heaviest first; `held` and `loads` follow."""
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
    """Level one part; `held` and `loads` follow. Say whether anything moved."""
    carried = loads[part.subscribers]
    moved = level(weights[part.resources], held, carried, slack)
    loads[part.subscribers] = carried
    return moved
