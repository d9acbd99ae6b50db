"""`DrainTimeAssignor`: everybody done at the same time, for machines are not equal.

Members say how many records they get done in a second of work, and the leader knows how much waits
in each partition and how much comes in. What is evened out is the time that each member needs for
what it holds: fast members take more. What exactly is weighed, and why, stands in `drain_work`.

1. Fresh placement: the longest work first, to who is done first with it (`drain_dealing`).
2. In a group that owns something, all stays where it is that can, and what is free is dealt to it.
   Everybody gets at least one, where there are enough.
3. Where times are uneven by more than a move must gain, compared with a fresh placement, partitions
   are handed over: many at once where shares are off (`drain_levelling`), one by one, and by
   exchange, where single partitions matter (`lag_exchange`).

Where subscriptions differ, pools are dealt and evened out one after the other, each on top of what
its subscribers carry from the others.
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
LOOKS_MAX: Final = 1_000  # a second at most in the largest groups, which go on in their next round


@frozen(kw_only=True)
class DrainTimeAssignor:
    """Evens out the time that members need to drain what they hold.

    Attributes:
        sticky: whether what is owned stays where that is even enough. Without it every round
            places everything anew.
        moves_max: how many partitions may be taken from their owners for the sake of time in one
            round, None for any number. Moves that give everybody one are not counted.
        gain_min: a share of the mean time. Members whose times are off by less are left alone, and
            what single partitions gain must be more, for each that moves.

    Raises:
        ConfigurationError: a number out of its range.
    """

    name: ClassVar[str] = "drain-time"
    needs_lags: ClassVar[bool] = True

    sticky: bool = field(default=True, validator=yes_or_no)
    moves_max: int | None = field(default=None, validator=count_or_none)
    gain_min: float = field(default=0.05, validator=share)

    def assign(self, group: GroupSnapshot, lags: Int64Array) -> Int32Array:
        """Place every resource that is assignable and that somebody subscribes to.

        Args:
            group: the group with R resources; `group.owner` is what stays where it can, and the
                members and `group.arrivals_per_s` say what is known of rates.
            lags: int64 (R,): lag of each resource, 0 where unknown.

        Returns:
            int32 (R,): number of the member that should hold each resource, or NOBODY.
        """
        placing = _Placing.of(group, lags)
        fresh = placing.fresh(self._thrift(None))
        kept = placing.kept(group)
        if not self.sticky or not (kept != NOBODY).any():
            return fresh
        goal = placing.work.times(fresh)
        del fresh  # four megabytes for a million partitions
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
    """What is placed: R resources in pools, among M members.

    Targets are int32 (R,), member numbers or NOBODY.

    Attributes:
        pools: those with the fewest subscribers first.
        work: weights and speeds.
        entitled: bool (M,): who is to have at least one, as it subscribes to a pool that has one
            for each of its subscribers.
    """

    pools: Sequence[Pool]
    work: Work
    entitled: BoolArray

    @classmethod
    def of(cls, group: GroupSnapshot, lags: Int64Array) -> _Placing:
        """See what is to be placed."""
        pools = subscriber_pools(group)
        entitled = np.zeros(len(group.members), dtype=np.bool_)
        for pool in pools:
            if _has_enough(pool):
                entitled[pool.subscribers] = True
        return cls(pools=pools, work=work_of(group, lags), entitled=entitled)

    def fresh(self, thrift: Thrift) -> Int32Array:
        """The placement of a group in which nobody owns anything."""
        target = np.full(self.work.weights.size, NOBODY, dtype=np.int32)
        self.deal_free(target)
        if len(self.pools) > 1:  # dealt one after the other, they do not yet fit together
            nobody = np.full_like(target, NOBODY)
            self.give_everybody_one(target)
            self.even_out(target, nobody, np.zeros(self.work.speeds.size), thrift)
        return target

    def kept(self, group: GroupSnapshot) -> Int32Array:
        """What stays with its owner at first."""
        target = np.full(group.owner.size, NOBODY, dtype=np.int32)
        for pool in self.pools:
            target[pool.resources] = group.owner[pool.resources]
        target[~group.may_hold(group.owner)] = NOBODY
        return target

    def deal_free(self, target: Int32Array) -> None:
        """Deal what nobody holds; `target` follows."""
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
        """Take the smallest partitions from those with more than one; `target` follows."""
        for pool in self.pools:
            lacking = pool.subscribers[self._lacking(target, pool)]
            if not lacking.size:
                continue
            weights, holders = self.work.weights[pool.resources], target[pool.resources]
            given = _lightest(weights, lacking.size, _largest_of_each(weights, holders))[::-1]
            fastest_first = np.argsort(-self.work.speeds[lacking], kind="stable")
            target[pool.resources[given]] = lacking[fastest_first]

    def is_as_even(self, target: Int32Array, goal: Float64Array, gain_min: float) -> bool:
        """Whether times are those of another placement, within what a move must gain."""
        mean = float(self.work.weights.sum() / self.work.speeds.sum())
        between = np.abs(np.sort(self.work.times(target)) - np.sort(goal))
        return float(between.max(initial=0)) <= gain_min * mean

    def even_out(
        self, target: Int32Array, owner: Int32Array, goal: Float64Array, thrift: Thrift
    ) -> None:
        """Hand partitions over until times are even enough or nothing helps; `target` follows.

        Args:
            target: who shall hold what.
            owner: what moves are counted against.
            goal: float64 (M,): times that are even enough.
            thrift: what moves must bring, and their budget.
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
        """Even out one pool once; `target` follows. Say whether anything changed."""
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
        column_of = np.full(self.work.speeds.size + 1, NOBODY, dtype=np.int32)  # the last: NOBODY's
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
        """Work that each member has from other pools, and how many partitions: int64 (M,)."""
        if len(self.pools) == 1:
            nothing = np.zeros(self.work.speeds.size, dtype=np.int64)
            return nothing, nothing
        others = target.copy()
        others[pool.resources] = NOBODY
        return self.work.loads(others), self._counts(others)

    def _lacking(self, target: Int32Array, pool: Pool) -> BoolArray:
        """Which subscribers of a pool that has enough hold nothing at all: bool (S,)."""
        lacking: BoolArray = (self._counts(target) == 0)[pool.subscribers]
        return lacking & _has_enough(pool)

    def _counts(self, target: Int32Array) -> Int64Array:
        """How many each member holds: int64 (M,)."""
        return np.bincount(target + 1, minlength=self.work.speeds.size + 1)[1:]


def _largest_of_each(weights: Int64Array, holders: Int32Array) -> Int64Array:
    """The place of each holder's largest partition, of equal ones the first."""
    largest = np.zeros(int(holders.max()) + 1, dtype=np.int64)
    np.maximum.at(largest, holders, weights)
    places = np.flatnonzero(weights == largest[holders])
    return places[np.unique(holders[places], return_index=True)[1]]


def _lightest(weights: Int64Array, count: int, barred: Int64Array) -> Int64Array:
    """Some places that are not barred, the lightest first, those of equal weight by place."""
    own = weights.copy()
    own[barred] = np.iinfo(np.int64).max
    own.partition(min(count, own.size) - 1)
    light = weights <= own[min(count, own.size) - 1]
    light[barred] = False
    places = np.flatnonzero(light)
    return places[np.argsort(weights[places], kind="stable")][:count]


def _has_enough(pool: Pool) -> bool:
    """Whether there is at least one for each subscriber."""
    return pool.resources.size >= pool.subscribers.size
