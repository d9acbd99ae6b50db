"""`LagAwareAssignor`: even counts first, then lag as even as the counts allow.

If no partition has an owner, this is exactly the algorithm of the "Lag-Aware Assignor" proposal
(KAFKA-5337) and of its prototype kafka-lag-based-assignor. Each topic is placed by itself, its
partitions in order of decreasing lag. Each partition goes to the subscriber with the fewest
partitions of the topic, then with the least total lag of the topic, then with the first member id.
Partitions of equal lag are placed in order of their numbers.

The proposal considers only lags, and lags change all the time. In a working group each rebalance
would move nearly every partition. So owners keep their partitions as far as the same balance allows
(modules `one_per_member` and `sticky`). Counts are evened out first, then lag, by a few moves that
must each gain something.

A negative lag counts as 0 where owners are weighed. The proposal's own order uses it unchanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs
import numpy as np
from attrs import field, frozen

from coopgroup.core.assignors.lag.one_per_member import place_singles
from coopgroup.core.assignors.lag.sticky import Deals, deal_by_count, given_up, placed_beside_owners
from coopgroup.core.assignors.lag.topics import deal_topics
from coopgroup.core.assignors.levelling.pools import Levelling
from coopgroup.core.assignors.levelling.steps import exact_shift, loads_of
from coopgroup.core.assignors.move_budget import MoveBudget
from coopgroup.core.assignors.pools import owner_columns, subscriber_pools
from coopgroup.core.assignors.quotas import Share, settle_quotas, share_of
from coopgroup.core.model import NOBODY
from coopgroup.core.model.options import count_or_none
from coopgroup.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attrs import Attribute

    from coopgroup.core.assignors.pools import Pool
    from coopgroup.core.model.group import GroupSnapshot
    from coopgroup.core.model.resource_set import Int32Array, Int64Array

_SCOPES: Final = ("topic", "group")


def _known_scope(_: object, attribute: Attribute[str], scope: str) -> None:
    if scope not in _SCOPES:
        raise ConfigurationError(attribute.name, scope, "'topic' or 'group'")


@frozen(kw_only=True)
class LagAwareAssignor:
    """Evens out counts first and lag second.

    Attributes:
        scope: "topic": counts and lags of each topic by itself, as in the proposal. "group": counts
            and lags of all topics together, so that members are also even in a group of many small
            topics.
        moves_max: how many partitions may leave their owner for better lag in one round; None means
            any number. Moves that even out counts do not count. Each such move must reduce the load
            of the heavier member by `GAIN_MIN` of the mean lag of a member. Loads that differ from
            the proposal's placement by less are left alone.

    Raises:
        ConfigurationError: the scope is unknown, or a number is out of its range.
    """

    name = "lag-aware"
    needs_lags = True

    scope: str = field(default="topic", validator=_known_scope)
    moves_max: int | None = field(default=None, validator=count_or_none)

    def assign(self, group: GroupSnapshot, lags: Int64Array) -> Int32Array:
        """Place every assignable resource; resources stay with `group.owner` where possible."""
        target = np.full(len(group.resources), NOBODY, dtype=np.int32)
        pools = subscriber_pools(group)
        shift = exact_shift(lags, group.assignable)
        keeps = bool((group.owner != NOBODY).any())
        budget = MoveBudget(moves_left=self.moves_max) if keeps else None
        if self.scope == "group" and len(pools) > 1:
            weights = _weights(np.where(group.assignable, lags, 0), shift)
            return _place_pools(group, pools, weights, budget)
        for pool in pools:
            columns = self._columns(group, pool, lags, shift, budget)
            target[pool.resources] = pool.subscribers[columns]
        return target

    def _columns(
        self,
        group: GroupSnapshot,
        pool: Pool,
        lags: Int64Array,
        shift: int,
        budget: MoveBudget | None,
    ) -> Int32Array | Int64Array:
        """Place one pool: (P,), columns."""
        size = pool.subscribers.size
        if size == 1:
            return np.zeros(pool.resources.size, dtype=np.int64)
        counts = self._counts(group, pool)
        if budget is None:
            # `deal_topics` frees these lags early
            return deal_topics(counts, lags[pool.resources], size)
        some = lags[pool.resources]
        owner = owner_columns(group, pool)
        single = counts <= size
        if single.all():
            return place_singles(counts, some, owner, size)
        if not single.any():
            return _beside_owners(counts, some, owner, shift, size, budget)
        columns, part = owner.copy(), np.repeat(single, counts)
        columns[part] = place_singles(counts[single], some[part], owner[part], size)
        single, part = ~single, ~part
        columns[part] = _beside_owners(counts[single], some[part], owner[part], shift, size, budget)
        return columns

    def _counts(self, group: GroupSnapshot, pool: Pool) -> Int64Array:
        """Return the size of each deal of a pool: each topic's, or that of all topics together."""
        if self.scope == "group":
            return np.array([pool.resources.size], dtype=np.int64)
        counts = np.bincount(group.resources.name_numbers[pool.resources])
        return counts[counts > 0]


def _beside_owners(
    counts: Int64Array,
    lags: Int64Array,
    owner: Int32Array,
    shift: int,
    size: int,
    budget: MoveBudget,
) -> Int64Array:
    """Place deals of P partitions that can have owners: int64 (P,), columns."""
    fresh = deal_topics(counts, lags, size)
    deals = Deals(counts=counts, lags=_weights(lags, shift), owner=owner, fresh=fresh, size=size)
    return placed_beside_owners(deals, budget)


def _weights(lags: Int64Array, shift: int) -> Int64Array:
    """Return lags for comparing loads, all at least 0; overwrites `lags`."""
    np.maximum(lags, 0, out=lags)
    lags >>= shift
    return lags


# --- different subscriptions ----------------------------------------------------------------------
# Module `quotas` first settles the counts for all pools together. They do not change afterwards.
# Inside each pool, free partitions are dealt by lag to members below their quota, and partitions
# are exchanged one for one. The lag of a member is its lag from all pools.


def _place_pools(
    group: GroupSnapshot, pools: Sequence[Pool], lags: Int64Array, budget: MoveBudget | None
) -> Int32Array:
    """Place all pools of a group, sorted by number of subscribers, fewest first.

    No sum of the lags overflows. Without a budget, the present owners are ignored.
    """
    nobody = np.full_like(group.owner, NOBODY)
    fresh = _placed_by_quota(attrs.evolve(group, owner=nobody), pools, lags)
    if budget is None:
        return fresh
    target = _placed_by_quota(group, pools, lags)
    member_count = len(group.members)
    levelling = Levelling(
        pools=pools,
        weights=lags,
        speeds=np.ones(member_count),
        owner=group.owner,
        goal=loads_of(lags, fresh, member_count).astype(np.float64),
        entitled=None,
    )
    levelling.run(target, budget)
    return target


def _placed_by_quota(group: GroupSnapshot, pools: Sequence[Pool], lags: Int64Array) -> Int32Array:
    shares = [share_of(group, pool) for pool in pools]
    settle_quotas(shares, len(group.members))
    target = np.full(len(group.resources), NOBODY, dtype=np.int32)
    for each in shares:
        kept = given_up(lags[each.pool.resources], each.owner, each.quota)
        target[each.pool.resources] = _members(each, kept)
    loads = loads_of(lags, target, len(group.members))
    for each in shares:
        pool = each.pool
        free = pool.resources[target[pool.resources] == NOBODY]
        if free.size:
            room = each.quota - np.minimum(each.owned, each.quota)
            taken = deal_by_count(lags[free], room, loads[pool.subscribers])
            target[free] = pool.subscribers[taken]
            np.add.at(loads, target[free], lags[free])
    return target


def _members(each: Share, columns: Int64Array) -> Int32Array:
    # the last entry is `NOBODY`
    return np.append(each.pool.subscribers, np.int32(NOBODY))[columns]
