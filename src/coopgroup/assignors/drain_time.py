"""`DrainTimeAssignor`: all members finish their backlog at the same time, on unequal machines.

Members report how many records they process in a second of work. The leader knows the lag of each
partition and how fast it grows. The assignor evens out the time that each member needs to drain its
partitions, so fast members get more. Module `drain_work` defines that time and why.

1. Fresh placement: the longest work first, each partition to the member that finishes it first
   (`drain_dealing`).
2. If members own partitions, each keeps what it can, and the free partitions are dealt. Every
   member gets at least one if there are enough.
3. If times are less even than in a fresh placement, by more than a move must gain, partitions move:
   many in one step where shares differ (`drain_levelling`), single ones and exchanges where single
   partitions matter (`lag_exchange`).

If subscriptions differ, pools are dealt and levelled one after the other. Each pool counts the load
that its subscribers carry from the other pools.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
from attrs import field, frozen

from coopgroup.assignors.drain_dealing import deal_by_time
from coopgroup.assignors.drain_levelling import PoolWork, level
from coopgroup.assignors.drain_work import work_of
from coopgroup.assignors.lag_exchange import Exchange
from coopgroup.assignors.lag_steps import Loads
from coopgroup.assignors.options import count_or_none, share, yes_or_no
from coopgroup.assignors.pools import subscriber_pools
from coopgroup.assignors.thrift import Thrift
from coopgroup.model import NOBODY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coopgroup.assignors.drain_work import Work
    from coopgroup.assignors.pools import Pool
    from coopgroup.model.group import Float64Array, GroupSnapshot
    from coopgroup.model.resource_set import BoolArray, Int32Array, Int64Array

__all__ = ["LOOKS_MAX", "DrainTimeAssignor"]

_SWEEPS_MAX: Final = 20
LOOKS_MAX: Final = 1_000  # about a second in the largest groups; the next round continues


@frozen(kw_only=True)
class DrainTimeAssignor:
    """Evens out the time that members need to drain their partitions.

    Attributes:
        sticky: whether owners keep their partitions if that is even enough. If false, every round
            places everything anew.
        moves_max: how many partitions may leave their owner for better times in one round; None
            means any number. Moves that give a member its first partition do not count.
        gain_min: share of the mean time. Members whose times differ by less are left alone, and
            each single move must gain more.

    Raises:
        ConfigurationError: a number is out of its range.
    """

    name: ClassVar[str] = "drain-time"
    needs_lags: ClassVar[bool] = True

    sticky: bool = field(default=True, validator=yes_or_no)
    moves_max: int | None = field(default=None, validator=count_or_none)
    gain_min: float = field(default=0.05, validator=share)

    def assign(self, group: GroupSnapshot, lags: Int64Array) -> Int32Array:
        """Place every assignable resource that has a subscriber.

        Args:
            group: the group with R resources. Resources stay with `group.owner` where possible; the
                members and `group.arrivals_per_s` give the known rates.
            lags: int64 (R,): lag of each resource, 0 where unknown.

        Returns:
            int32 (R,): number of the member that should own each resource, or `NOBODY`.
        """
        placing = _Placing.of(group, lags)
        fresh = placing.fresh(self._thrift(None))
        kept = placing.kept(group)
        if not self.sticky or not (kept != NOBODY).any():
            return fresh
        goal = placing.work.times(fresh)
        del fresh  # frees four megabytes for a million partitions
        target = kept.copy()
        placing.deal_free(target)
        placing.give_everybody_one(target)
        if not placing.is_as_even(target, goal, self.gain_min):
            placing.even_out(target, kept, goal, self._thrift(self.moves_max))
        return target

    def _thrift(self, moves_max: int | None) -> Thrift:
        return Thrift(gain_min=self.gain_min, moves_left=moves_max, looks_left=LOOKS_MAX)


@frozen(kw_only=True, eq=False)
class _Placing:
    """R resources in pools, to be placed among M members.

    Targets are int32 (R,): member numbers or `NOBODY`.

    Attributes:
        pools: sorted by number of subscribers, fewest first.
        work: weights and speeds.
        entitled: bool (M,): members that must get at least one resource, because they subscribe to
            a pool with enough for all its subscribers.
    """

    pools: Sequence[Pool]
    work: Work
    entitled: BoolArray

    @classmethod
    def of(cls, group: GroupSnapshot, lags: Int64Array) -> _Placing:
        """Read the group's pools, work and entitlements."""
        pools = subscriber_pools(group)
        entitled = np.zeros(len(group.members), dtype=np.bool_)
        for pool in pools:
            if _has_enough(pool):
                entitled[pool.subscribers] = True
        return cls(pools=pools, work=work_of(group, lags), entitled=entitled)

    def fresh(self, thrift: Thrift) -> Int32Array:
        """Place everything as if the group owned nothing."""
        target = np.full(self.work.weights.size, NOBODY, dtype=np.int32)
        self.deal_free(target)
        # pools that were dealt one after the other are not yet level together
        if len(self.pools) > 1:
            nobody = np.full_like(target, NOBODY)
            self.give_everybody_one(target)
            self.even_out(target, nobody, np.zeros(self.work.speeds.size), thrift)
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
        self, target: Int32Array, owner: Int32Array, goal: Float64Array, thrift: Thrift
    ) -> None:
        """Move partitions until times are even enough or no move helps; changes `target`.

        Args:
            target: planned owner of each resource.
            owner: present owner of each resource; moves are counted against it.
            goal: float64 (M,): times that are even enough.
            thrift: what moves must gain, and their budget.
        """
        for _ in range(_SWEEPS_MAX):
            changes = [self._evened_out(target, owner, one, goal, thrift) for one in self.pools]
            if not any(changes):
                return

    def _evened_out(
        self,
        target: Int32Array,
        owner: Int32Array,
        pool: Pool,
        goal: Float64Array,
        thrift: Thrift,
    ) -> bool:
        """Level one pool once; changes `target`. Return whether anything changed."""
        if pool.subscribers.size == 1:
            return False
        shares = self._pool_work(target, owner, pool)
        levelled = level(shares, thrift)
        now = Loads(
            weights=shares.weights,
            owner=shares.owner,
            holder=shares.holder,
            loads=shares.loads,
            speeds=shares.speeds,
            skew=shares.weights.size,
            least=shares.keeps_one.astype(np.int64),
            gain_min=thrift.gain_min,
        )
        goals = np.sort(goal[pool.subscribers])[::-1]
        exchanged = Exchange(now=now, goal=goals, thrift=thrift).run()
        target[pool.resources] = pool.subscribers[shares.holder]
        return levelled or exchanged

    def _pool_work(self, target: Int32Array, owner: Int32Array, pool: Pool) -> PoolWork:
        members, resources = pool.subscribers, pool.resources
        # the last entry is the column of `NOBODY`
        column_of = np.full(self.work.speeds.size + 1, NOBODY, dtype=np.int32)
        column_of[members] = np.arange(members.size, dtype=np.int32)
        ground, held = self._elsewhere(target, pool)
        return PoolWork(
            weights=self.work.weights[resources],
            owner=column_of[owner[resources]],
            holder=column_of[target[resources]].astype(np.int64),
            speeds=self.work.speeds[members],
            ground=ground[members],
            keeps_one=(self.entitled & (held == 0))[members],
        )

    def _elsewhere(self, target: Int32Array, pool: Pool) -> tuple[Int64Array, Int64Array]:
        """Return each member's work and number of partitions from other pools: int64 (M,) each."""
        if len(self.pools) == 1:
            nothing = np.zeros(self.work.speeds.size, dtype=np.int64)
            return nothing, nothing
        others = target.copy()
        others[pool.resources] = NOBODY
        return self.work.loads(others), self._counts(others)

    def _lacking(self, target: Int32Array, pool: Pool) -> BoolArray:
        """Return subscribers without resources, if the pool has enough for all: bool (S,)."""
        lacking: BoolArray = (self._counts(target) == 0)[pool.subscribers]
        return lacking & _has_enough(pool)

    def _counts(self, target: Int32Array) -> Int64Array:
        """Return the number of resources of each member: int64 (M,)."""
        return np.bincount(target + 1, minlength=self.work.speeds.size + 1)[1:]


def _largest_of_each(weights: Int64Array, holders: Int32Array) -> Int64Array:
    """Return the place of each holder's largest partition; the first place among equal ones."""
    largest = np.zeros(int(holders.max()) + 1, dtype=np.int64)
    np.maximum.at(largest, holders, weights)
    places = np.flatnonzero(weights == largest[holders])
    return places[np.unique(holders[places], return_index=True)[1]]


def _lightest(weights: Int64Array, count: int, barred: Int64Array) -> Int64Array:
    """Return the lightest places that are not barred, by weight, then by place."""
    own = weights.copy()
    own[barred] = np.iinfo(np.int64).max
    own.partition(min(count, own.size) - 1)
    light = weights <= own[min(count, own.size) - 1]
    light[barred] = False
    places = np.flatnonzero(light)
    return places[np.argsort(weights[places], kind="stable")][:count]


def _has_enough(pool: Pool) -> bool:
    """Return whether the pool has at least one resource for each subscriber."""
    return pool.resources.size >= pool.subscribers.size
