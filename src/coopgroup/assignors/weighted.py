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

from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

import numpy as np
from attrs import field, frozen

from coopgroup.assignors.options import share
from coopgroup.assignors.pools import Pool, owner_columns, subscriber_pools
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
                _level(part, held, weights, loads, slack)
                for part, held in zip(parts, columns, strict=True)
            ]
            if len(parts) < 2 or not any(moved):
                break
        for part, held in zip(parts, columns, strict=True):
            target[part.resources] = part.subscribers[held]


class _Step(NamedTuple):
    """One thing goes from one column to another, and perhaps one comes back; places in the part."""

    given: int
    taken: int | None


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
    own = weights[part.resources]
    for place in free[np.lexsort((free, -own[free]))].tolist():
        column = int(np.argmin(loads[part.subscribers]))
        held[place] = column
        loads[part.subscribers[column]] += own[place]


def _level(
    part: Pool, held: Int32Array, weights: Int64Array, loads: Int64Array, slack: int
) -> bool:
    """Move and swap until nobody can give the lightest member anything; whether any moved."""
    own = weights[part.resources]
    moved = False
    while True:
        step = _next_step(part, held, own, loads, slack)
        if step is None:
            return moved
        moved = True
        given = int(held[step.given])
        column = int(np.argmin(loads[part.subscribers]))
        gain = int(own[step.given])
        held[step.given] = column
        if step.taken is not None:
            gain -= int(own[step.taken])
            held[step.taken] = given
        loads[part.subscribers[given]] -= gain
        loads[part.subscribers[column]] += gain


def _next_step(
    part: Pool, held: Int32Array, own: Int64Array, loads: Int64Array, slack: int
) -> _Step | None:
    """What the heaviest member that can does with the lightest one."""
    here = loads[part.subscribers]
    lightest = int(np.argmin(here))
    least = int(here[lightest])
    theirs = np.flatnonzero(held == lightest)
    theirs = theirs[np.lexsort((theirs, own[theirs]))]
    for column in np.lexsort((np.arange(here.size), -here)).tolist():
        ahead = int(here[column]) - least
        if ahead <= max(1, slack):
            return None
        mine = np.flatnonzero(held == column)
        step = _best_step(mine, theirs, own, ahead)
        if step is not None:
            return step
    return None


def _best_step(mine: Int64Array, theirs: Int64Array, own: Int64Array, ahead: int) -> _Step | None:
    """The step that brings two members closest: one that moves alone before one that swaps.

    Args:
        mine: int64: places of what the heavier one has, ascending.
        theirs: int64: places of what the lighter one has, by weight.
        own: int64 (P,): weight of each place.
        ahead: by how much it is heavier.
    """
    if not mine.size:
        return None
    # A weight w makes the difference |ahead - 2w|; only w < ahead makes the heavier one lighter.
    rest = np.abs(ahead - 2 * own[mine])
    place = int(np.argmin(rest))
    best = int(rest[place])
    step = _Step(int(mine[place]), None) if best < ahead else None
    if not theirs.size:
        return step
    lightest_of_all = own[theirs]
    # For each of mine the one of theirs that comes closest to half of the difference.
    wanted = own[mine] - (ahead + 1) // 2
    near = np.searchsorted(lightest_of_all, wanted)
    for nearest in (np.maximum(near - 1, 0), np.minimum(near, theirs.size - 1)):
        rest = np.abs(ahead - 2 * (own[mine] - lightest_of_all[nearest]))
        place = int(np.argmin(rest))
        if int(rest[place]) < min(best, ahead):
            best = int(rest[place])
            step = _Step(int(mine[place]), int(theirs[nearest[place]]))
    return step
