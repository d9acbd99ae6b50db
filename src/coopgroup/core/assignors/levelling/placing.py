"""Place the resources of a group by weight, beside their owners.

Free resources are dealt, the heaviest first. Every member gets at least one if there are enough.
Then resources move where the times of members are less even than a goal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from attrs import define, field, frozen

from coopgroup.core.assignors.levelling.longest_first import deal_by_time
from coopgroup.core.assignors.levelling.pools import Levelling
from coopgroup.core.assignors.levelling.steps import loads_of
from coopgroup.core.model import NOBODY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coopgroup.core.assignors.move_budget import MoveBudget
    from coopgroup.core.assignors.pools import Pool
    from coopgroup.core.model.group import Float64Array, GroupSnapshot
    from coopgroup.core.model.resource_set import BoolArray, Int32Array, Int64Array


@frozen(kw_only=True, eq=False)
class Workload:
    """Jobs and machines of a group with R resources and M members.

    Attributes:
        weights: int64 (R,): work of each resource in an arbitrary unit; at least 1 if the resource
            is to be placed, else 0. The sum is exact as a float.
        speeds: float64 (M,): speed of each member as a share of the mean rate, above 0.
    """

    weights: Int64Array
    speeds: Float64Array

    def loads(self, holder: Int32Array) -> Int64Array:
        """Return the work of each member: int64 (M,)."""
        return loads_of(self.weights, holder, self.speeds.size)

    def times(self, holder: Int32Array) -> Float64Array:
        """Return the drain time of each member: float64 (M,), in the unit of `weights`.

        Args:
            holder: int32 (R,): member numbers or `NOBODY`.
        """
        times: Float64Array = self.loads(holder) / self.speeds
        return times


@define(kw_only=True, eq=False)
class Placing:
    """R resources in pools, to be placed among M members.

    Targets are int32 (R,): member numbers or `NOBODY`.

    Attributes:
        pools: sorted by number of subscribers, fewest first.
        work: weights and speeds.
        entitled: bool (M,): members that must get at least one resource, because they subscribe to
            a pool with enough for all its subscribers.
        slack: two members whose times differ by at most this much are left alone.
        bulk_min: many resources move in one step if their work is at least that of this many mean
            resources.
    """

    pools: Sequence[Pool]
    work: Workload
    slack: float = 0.0
    bulk_min: int = 0
    entitled: BoolArray = field(init=False)

    def __attrs_post_init__(self) -> None:
        """Find the entitled members."""
        self.entitled = np.zeros(self.work.speeds.size, dtype=np.bool_)
        for pool in self.pools:
            if _has_enough(pool):
                self.entitled[pool.subscribers] = True

    def fresh(self, budget: MoveBudget) -> Int32Array:
        """Place everything as if the group owned nothing."""
        target = np.full(self.work.weights.size, NOBODY, dtype=np.int32)
        self.deal_free(target)
        # pools that were dealt one after the other are not yet level together
        if len(self.pools) > 1:
            nobody = np.full_like(target, NOBODY)
            self.give_everybody_one(target)
            self.even_out(target, nobody, np.zeros(self.work.speeds.size), budget)
        return target

    def kept(self, group: GroupSnapshot) -> Int32Array:
        """Return the target in which subscribers keep what they own and everything else is free."""
        target = np.full(group.owner.size, NOBODY, dtype=np.int32)
        for pool in self.pools:
            target[pool.resources] = group.owner[pool.resources]
        target[~group.may_hold(group.owner)] = NOBODY
        return target

    def deal_free(self, target: Int32Array) -> None:
        """Deal the free resources; changes `target`."""
        for pool in self.pools:
            is_free = target[pool.resources] == NOBODY
            free = pool.resources if is_free.all() else pool.resources[is_free]
            if free.size:
                members = pool.subscribers
                columns = deal_by_time(
                    self.work.weights[free],
                    self.work.times(target)[members],
                    self.work.speeds[members],
                    self._lacking(target, pool),
                )
                target[free] = members[columns]

    def give_everybody_one(self, target: Int32Array) -> None:
        """Give each entitled member a small partition of a larger one; changes `target`."""
        for pool in self.pools:
            lacking = pool.subscribers[self._lacking(target, pool)]
            if not lacking.size:
                continue
            weights, holders = self.work.weights[pool.resources], target[pool.resources]
            given = _lightest(weights, lacking.size, _largest_of_each(weights, holders))[::-1]
            fastest_first = np.argsort(-self.work.speeds[lacking], kind="stable")
            target[pool.resources[given]] = lacking[fastest_first]

    def is_as_even(self, target: Int32Array, goal: Float64Array, gain_min: float) -> bool:
        """Return whether the times are as even as `goal`, within the gain that a move must have."""
        mean = float(self.work.weights.sum() / self.work.speeds.sum())
        between = np.abs(np.sort(self.work.times(target)) - np.sort(goal))
        return float(between.max(initial=0)) <= gain_min * mean

    def even_out(
        self, target: Int32Array, owner: Int32Array, goal: Float64Array, budget: MoveBudget
    ) -> None:
        """Move resources until times are even enough or no move helps; changes `target`.

        Args:
            target: planned owner of each resource.
            owner: present owner of each resource; moves are counted against it.
            goal: float64 (M,): times that are even enough.
            budget: what moves must gain, and their budget.
        """
        levelling = Levelling(
            pools=self.pools,
            weights=self.work.weights,
            speeds=self.work.speeds,
            owner=owner,
            goal=goal,
            entitled=self.entitled,
            slack=self.slack,
            bulk_min=self.bulk_min,
        )
        levelling.run(target, budget)

    def _lacking(self, target: Int32Array, pool: Pool) -> BoolArray:
        """Return subscribers without resources, if the pool has enough for all: bool (S,)."""
        lacking: BoolArray = (self._counts(target) == 0)[pool.subscribers]
        return lacking & _has_enough(pool)

    def _counts(self, target: Int32Array) -> Int64Array:
        """Return the number of resources of each member: int64 (M,)."""
        return np.bincount(target + 1, minlength=self.work.speeds.size + 1)[1:]


def _largest_of_each(weights: Int64Array, holders: Int32Array) -> Int64Array:
    """Return the position of each holder's largest partition; the first one among equals."""
    largest = np.zeros(int(holders.max()) + 1, dtype=np.int64)
    np.maximum.at(largest, holders, weights)
    positions = np.flatnonzero(weights == largest[holders])
    return positions[np.unique(holders[positions], return_index=True)[1]]


def _lightest(weights: Int64Array, count: int, barred: Int64Array) -> Int64Array:
    """Return the lightest positions that are not barred, by weight, then by position."""
    own = weights.copy()
    own[barred] = np.iinfo(np.int64).max
    own.partition(min(count, own.size) - 1)
    light = weights <= own[min(count, own.size) - 1]
    light[barred] = False
    positions = np.flatnonzero(light)
    return positions[np.argsort(weights[positions], kind="stable")][:count]


def _has_enough(pool: Pool) -> bool:
    """Return whether the pool has at least one resource for each subscriber."""
    return pool.resources.size >= pool.subscribers.size
