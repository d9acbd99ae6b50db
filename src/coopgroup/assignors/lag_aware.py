"""`LagAwareAssignor`: counts as even as possible, then lag as even as that allows.

Where nobody owns anything it is the algorithm of the "Lag-Aware Assignor" proposal (KAFKA-5337) and
of its prototype kafka-lag-based-assignor, to the letter: each topic by itself, partitions in order
of decreasing lag, each to the subscriber with the fewest partitions of this topic so far; among
equals to the one with the least total lag of this topic, then to the first member id. Partitions
of equal lag go in the order of their numbers.

The proposal looks at nothing but lags, and these never stay: in a group that works, each rebalance
would place nearly everything anew. What is owned is therefore kept as far as the same balance
allows (modules `lag_singles` and `lag_sticky`): counts first, then lag, by few moves, each of which
must gain something.

Negative lags count as none where owners are weighed; the proposal's order takes them as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
from attrs import field, frozen

from coopgroup.assignors.lag_dealing import Window, deal_by_lag
from coopgroup.assignors.lag_pools import place_pools
from coopgroup.assignors.lag_singles import place_singles
from coopgroup.assignors.lag_sticky import Deals, placed_beside_owners
from coopgroup.assignors.lag_topics import deal_topics
from coopgroup.assignors.options import count, count_or_none, share, yes_or_no
from coopgroup.assignors.pools import owner_columns, subscriber_pools
from coopgroup.assignors.thrift import Thrift
from coopgroup.errors import ConfigurationError
from coopgroup.model import NOBODY

if TYPE_CHECKING:
    from attrs import Attribute

    from coopgroup.assignors.pools import Pool
    from coopgroup.model.group import GroupSnapshot
    from coopgroup.model.resource_set import BoolArray, Int32Array, Int64Array

__all__ = ["LagAwareAssignor"]

_SCOPES: Final = ("topic", "group")
_TOTAL_BITS_MAX: Final = 52  # a float, and so a weighted bincount, holds such sums exactly


def _known_scope(_: object, attribute: Attribute[str], scope: str) -> None:
    if scope not in _SCOPES:
        raise ConfigurationError(attribute.name, scope, "'topic' or 'group'")


@frozen(kw_only=True)
class LagAwareAssignor:
    """Evens out counts first and lag second.

    Attributes:
        scope: "topic": counts and lags are those of one topic, as the proposal says. "group":
            they are those of all topics together, so that members of a group with many small
            topics carry alike.
        sticky: whether what is owned stays where the balance allows. Without it every round
            places everything anew, as the proposal does.
        max_skew: by how many the counts may differ where that evens the lag out; every member
            still has a partition, where there are enough. More than 1 is not looked at with scope
            "group" when subscriptions differ.
        moves_max: how many partitions may be taken from their owners for the sake of lag in one
            round, None for any number. Moves that even counts out are not counted.
        gain_min: what each such move must gain: a share of the mean lag of a member, by which
            the heavier of two members gets lighter. Loads that are uneven by less than this,
            compared to the proposal's placement, are left alone.

    Raises:
        ConfigurationError: an unknown scope, or a number out of its range.
    """

    name: ClassVar[str] = "lag-aware"
    needs_lags: ClassVar[bool] = True

    scope: str = field(default="topic", validator=_known_scope)
    sticky: bool = field(default=True, validator=yes_or_no)
    max_skew: int = field(default=1, validator=count)
    moves_max: int | None = field(default=None, validator=count_or_none)
    gain_min: float = field(default=0.05, validator=share)

    def assign(self, group: GroupSnapshot, lags: Int64Array) -> Int32Array:
        """Place every resource that is assignable and that somebody subscribes to.

        Args:
            group: the group with R resources; `group.owner` is what stays where it can.
            lags: int64 (R,): lag of each resource, 0 where unknown.

        Returns:
            int32 (R,): number of the member that should hold each resource, or NOBODY.
        """
        target = np.full(len(group.resources), NOBODY, dtype=np.int32)
        pools = subscriber_pools(group)
        shift = _shift(lags, group.assignable)
        keeps = self.sticky and bool((group.owner != NOBODY).any())
        thrift = Thrift(gain_min=self.gain_min, moves_left=self.moves_max) if keeps else None
        if self.scope == "group" and len(pools) > 1:
            weights = _weights(np.where(group.assignable, lags, 0), shift)
            return place_pools(group, pools, weights, thrift)
        for pool in pools:
            columns = self._columns(group, pool, lags, shift, thrift)
            target[pool.resources] = pool.subscribers[columns]
        return target

    def _columns(
        self,
        group: GroupSnapshot,
        pool: Pool,
        lags: Int64Array,
        shift: int,
        thrift: Thrift | None,
    ) -> Int32Array | Int64Array:
        """Place one pool: (P,), columns."""
        size = pool.subscribers.size
        if size == 1:
            return np.zeros(pool.resources.size, dtype=np.int64)
        counts = self._counts(group, pool)
        if thrift is None and self.max_skew == 1:
            return deal_topics(counts, lags[pool.resources], size)  # which lets go of these lags
        some = lags[pool.resources]
        if thrift is None:
            return self._fresh(counts, some, shift, size)
        owner = owner_columns(group, pool)
        single = counts <= (size if self.max_skew == 1 else 0)
        if single.all():
            return place_singles(counts, some, owner, size)
        if not single.any():
            return self._beside_owners(counts, some, owner, shift, size, thrift)
        columns, part = owner.copy(), np.repeat(single, counts)
        columns[part] = place_singles(counts[single], some[part], owner[part], size)
        single, part = ~single, ~part
        columns[part] = self._beside_owners(
            counts[single], some[part], owner[part], shift, size, thrift
        )
        return columns

    def _fresh(self, counts: Int64Array, lags: Int64Array, shift: int, size: int) -> Int64Array:
        """Place deals of P partitions of which nothing is owned: int64 (P,), columns."""
        if self.max_skew == 1:
            return deal_topics(counts, lags, size)
        return self._skewed(counts, _weights(lags.copy(), shift), size)

    def _beside_owners(
        self,
        counts: Int64Array,
        lags: Int64Array,
        owner: Int32Array,
        shift: int,
        size: int,
        thrift: Thrift,
    ) -> Int64Array:
        """Place deals of P partitions of which something may be owned: int64 (P,), columns."""
        fresh = self._fresh(counts, lags, shift, size)
        deals = Deals(
            counts=counts, lags=_weights(lags, shift), owner=owner, fresh=fresh, size=size
        )
        return placed_beside_owners(deals, self.max_skew, thrift)

    def _counts(self, group: GroupSnapshot, pool: Pool) -> Int64Array:
        """How many partitions each deal of a pool has: its topics', or all of them."""
        if self.scope == "group":
            return np.array([pool.resources.size], dtype=np.int64)
        counts = np.bincount(group.resources.name_numbers[pool.resources])
        return counts[counts > 0]

    def _skewed(self, counts: Int64Array, weights: Int64Array, size: int) -> Int64Array:
        window = Window(low=0, high=0, skew=self.max_skew)
        nothing = np.zeros(size, dtype=np.int64)
        each = np.split(weights, np.cumsum(counts)[:-1])
        return np.concatenate([deal_by_lag(some, nothing, nothing, window) for some in each])


def _weights(lags: Int64Array, shift: int) -> Int64Array:
    """Lags by which loads are compared, none below 0; the given ones are used up."""
    np.maximum(lags, 0, out=lags)
    lags >>= shift
    return lags


def _shift(lags: Int64Array, assignable: BoolArray) -> int:
    """How many of the lowest bits to leave out, so that no sum of lags is too large to be exact."""
    highest = int(lags.max(where=assignable, initial=0))
    bits = highest.bit_length() + int(np.count_nonzero(assignable)).bit_length()
    return max(0, bits - _TOTAL_BITS_MAX)
