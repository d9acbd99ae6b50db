"""Level all pools of a group, one after the other.

A subscriber can carry work from several pools. Each pool counts the load that its subscribers carry
from the other pools. The pools take turns until no pool changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from attrs import frozen

from coopgroup.core.assignors.levelling.bulk import level_in_bulk
from coopgroup.core.assignors.levelling.exchange import Exchange
from coopgroup.core.assignors.levelling.steps import Counting, Loads, loads_of
from coopgroup.core.assignors.pools import columns_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coopgroup.core.assignors.move_budget import MoveBudget
    from coopgroup.core.assignors.pools import Pool
    from coopgroup.core.model.group import Float64Array
    from coopgroup.core.model.resource_set import BoolArray, Int32Array, Int64Array

_SWEEPS_MAX: Final = 20


@frozen(kw_only=True, eq=False)
class Levelling:
    """R resources in pools, and M members.

    Attributes:
        pools: the pools.
        weights: int64 (R,): every sum must be exact as a float.
        speeds: float64 (M,): above 0.
        owner: int32 (R,): present owner of each resource; moves are counted against it.
        goal: float64 (M,): times that are even enough.
        entitled: bool (M,): members that must keep at least one resource. None if no count may
            change.
        slack: two members whose times differ by at most this much are left alone.
        bulk_min: many partitions move in one step if their work is at least that of this many mean
            partitions.
    """

    pools: Sequence[Pool]
    weights: Int64Array
    speeds: Float64Array
    owner: Int32Array
    goal: Float64Array
    entitled: BoolArray | None
    slack: float = 0.0
    bulk_min: int = 0

    def run(self, target: Int32Array, budget: MoveBudget) -> None:
        """Move resources until times are even enough or no move helps.

        Args:
            target: int32 (R,): planned owner of each resource; changed.
            budget: what moves must gain; its budget is reduced.
        """
        for _ in range(_SWEEPS_MAX):
            loads = loads_of(self.weights, target, self.speeds.size)
            changes = [self._level(one, target, loads, budget) for one in self.pools]
            if not any(changes):
                return

    def _level(self, pool: Pool, target: Int32Array, loads: Int64Array, budget: MoveBudget) -> bool:
        """Level one pool; changes `target` and `loads`. Return whether anything changed."""
        members = pool.subscribers
        if members.size == 1:
            return False
        now = self._loads(pool, target, loads, budget)
        if np.ptp(now.times) <= self.slack:
            return False
        in_bulk = self.entitled is not None and level_in_bulk(now, budget, self.bulk_min)
        goal = np.sort(self.goal[members])[::-1]
        exchanged = Exchange(now=now, goal=goal, budget=budget).run()
        target[pool.resources] = members[now.holder]
        loads[members] = now.loads
        return in_bulk or exchanged

    def _loads(
        self, pool: Pool, target: Int32Array, loads: Int64Array, budget: MoveBudget
    ) -> Loads:
        members, member_count = pool.subscribers, self.speeds.size
        holder = columns_of(pool, target, member_count).astype(np.int64)
        least = np.zeros(members.size, dtype=np.int64)
        if self.entitled is not None:
            counts = np.bincount(target + 1, minlength=member_count + 1)[1:][members]
            elsewhere = counts - np.bincount(holder, minlength=members.size)
            least += self.entitled[members] & (elsewhere == 0)
        return Loads(
            weights=self.weights[pool.resources],
            owner=columns_of(pool, self.owner, member_count),
            holder=holder,
            loads=loads[members],
            speeds=self.speeds[members],
            counting=Counting.FIXED if self.entitled is None else Counting.FREE,
            least=least,
            gain_min=budget.gain_min,
            slack=self.slack,
        )
