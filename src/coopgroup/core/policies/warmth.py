"""Who is warm for what: the options of warm-ups, and the facts about them in a round.

Pairs of a resource and a member are integers (`core.model.pairs`).
`Warmth` has the facts that are known before the assignor answers; module `warmups` collects them.
`taken_over` and `given_to_warm` give free resources to warm members.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Final

import attrs
import numpy as np
from attrs import field, frozen

from coopgroup.core.model import NOBODY
from coopgroup.core.model.pairs import holds, members_of, pair_keys, resources_of
from coopgroup.errors import ConfigurationError

if TYPE_CHECKING:
    from attrs import Attribute

    from coopgroup.core.model import GroupSnapshot
    from coopgroup.core.model.resource_set import BoolArray, Int32Array, Int64Array


# --- the options ----------------------------------------------------------------------------------


_OPTION_MAX: Final = 2**31 - 1
_TOPICS_MIN: Final = 2


def _count(_: Warmup, attribute: Attribute[int], value: int) -> None:
    least = 0 if attribute.name == "standbys" else 1
    if type(value) is not int or not least <= value <= _OPTION_MAX:
        raise ConfigurationError(
            f"{attribute.name} of warmup", value, f"an integer from {least} to {_OPTION_MAX}"
        )


def _topics_of(value: object) -> tuple[str, ...] | None:
    """Return the topics of one bundle; None if the value is no list of two topics or more."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        return None
    topics = tuple(value)
    if len(topics) < _TOPICS_MIN or not all(isinstance(one, str) and one for one in topics):
        return None
    return topics


def _read_bundles(value: object) -> tuple[tuple[str, ...], ...]:
    """Return the co-partitioned topics, which files give as lists of lists."""
    rows = None
    if not isinstance(value, str | bytes) and isinstance(value, Iterable):
        rows = [_topics_of(one) for one in value]
    bundles = tuple(one for one in rows or () if one is not None)
    topics = list(chain.from_iterable(bundles))
    if rows is None or len(bundles) != len(rows):
        expected = 'lists of two topics or more, for example [("orders", "payments")]'
        raise ConfigurationError("co_partition of warmup", value, expected)
    for topic in sorted(set(topics)):
        if topics.count(topic) > 1:
            expected = f"each topic once; {topic!r} occurs {topics.count(topic)} times"
            raise ConfigurationError("co_partition of warmup", value, expected)
    return bundles


@frozen(kw_only=True)
class Warmup:
    """Move a resource only when its new owner is warm, and keep standbys.

    Attributes:
        max_concurrent: how many cold warm-ups run in the group at the same time. Kafka Streams runs
            2, because each of its rebalances hurts. Our rounds cost retained resources nothing, so
            only the load of restoring counts: 8 by default.
        per_member: how many cold warm-ups one member runs at the same time. With 2, the default,
            a member always restores, and its first resources still move early.
        timeout_ms: how long a warm-up may run, in ms. 10 minutes by default, the probing interval
            of Kafka Streams. Choose several times the longest restore. Then the resource moves to
            the cold member: the group always reaches its balance, and no move is worse than without
            warm-ups. A standby that times out is cancelled. A warm-up that its member declines ends
            at once: another resource is tried, and if there is none, this one moves cold.
        standbys: how many members stay warm for each resource beside its owner.
        co_partition: topics whose partitions belong together, for example
            `[("orders", "payments")]`. Partition i of each listed topic is one bundle: a bundle has
            one owner, and it warms up and moves as a whole. Balance, ration and limits count
            bundles. This applies to all members, also to those without warm-ups. See module
            `bundles` for topics that differ.

    Raises:
        ConfigurationError: a count is not an integer in range, or `co_partition` is no list of
            lists of two topics or more, each topic once.
    """

    max_concurrent: int = field(default=8, validator=_count)
    per_member: int = field(default=2, validator=_count)
    timeout_ms: int = field(default=600_000, validator=_count)
    standbys: int = field(default=0, validator=_count)
    co_partition: tuple[tuple[str, ...], ...] = field(default=(), converter=_read_bundles)


def read_warmup(value: object) -> Warmup | None:
    """Return the option of a policy, which files and the command line give as an object.

    Raises:
        ConfigurationError: the value is not an object with known keys.
    """
    if value is None or isinstance(value, Warmup):
        return value
    if not isinstance(value, Mapping):
        raise ConfigurationError("warmup", value, "an object with options, or null")
    known = sorted(attribute.name for attribute in attrs.fields(Warmup))
    for name in sorted(map(str, value)):
        if name not in known:
            raise ConfigurationError("option of warmup", name, f"one of {', '.join(known)}")
    options: dict[str, object] = dict(value)
    return Warmup(**options)  # type: ignore[arg-type] # the validators check the types


def warmup_of(policy: object) -> Warmup | None:
    """Return the option of a policy: its attribute `warmup`, if it has one."""
    option = getattr(policy, "warmup", None)
    return option if isinstance(option, Warmup) else None


# --- pairs of a resource and a member -------------------------------------------------------------


def keys_of(group: GroupSnapshot, mask: BoolArray, holder: Int32Array) -> Int64Array:
    """Return the pairs of some resources and their holders, without `NOBODY`, ascending.

    Args:
        group: the group with R resources.
        mask: bool (R,).
        holder: int32 (R,).
    """
    resources = np.flatnonzero(mask & (holder != NOBODY))
    return pair_keys(group, resources, holder[resources])


def subscribes(group: GroupSnapshot, keys: Int64Array) -> BoolArray:
    """Return for each pair whether the member subscribes to the resource."""
    names = group.resources.name_numbers[resources_of(group, keys)]
    wanted: BoolArray = group.subscribed_names()[group.class_of[members_of(group, keys)], names]
    return wanted


# --- the facts of a round -------------------------------------------------------------------------


@frozen(kw_only=True, eq=False, slots=False)
class Warmth:
    """Facts of a round; R resources, M members, pairs as ascending keys (`pair_keys`).

    Attributes:
        group: the group.
        option: the options.
        now_ms: the leader's clock.
        remembers: whether the leader led the last round.
        takes_part: bool (M,).
        warm: warm pairs whose member subscribes to the resource, which is assignable.
        running: warm-ups of the last round whose member still takes part, cold or warm.
        since_ms: int64, when each of `running` began.
        receivers: int32 (R,): planned receiver of each unfinished move, `NOBODY` without one.
        orphaned: bool (R,): had a planned receiver that has left, or hands over.
        refused: pairs that timed out or were declined, and were cancelled, while the members are
            the same.
        declined: cold pairs whose member says that its application refused the warm-up.
        barred: pairs for which nothing warms up, because the resource could not start there.
        kept_group: the group in which members that hand over may keep what they own.
        keeps: bool (R,): could stay with its owner in this group, and was not told to stop.
        leaving: bool (R,): such a resource of a member that hands over.
        told: bool (R,): its owner was told to stop it, and still claims it.
        free: bool (R,): assignable, with a subscriber, and not claimed.
    """

    group: GroupSnapshot
    option: Warmup
    now_ms: int
    remembers: bool
    takes_part: BoolArray
    warm: Int64Array
    running: Int64Array
    since_ms: Int64Array
    receivers: Int32Array
    orphaned: BoolArray
    refused: Int64Array
    declined: Int64Array
    barred: Int64Array
    kept_group: GroupSnapshot
    keeps: BoolArray
    leaving: BoolArray
    told: BoolArray
    free: BoolArray

    def is_able(self, member: Int32Array) -> BoolArray:
        """Return bool (R,): whether each resource's member takes part; False for `NOBODY`."""
        able: BoolArray = (member != NOBODY) & self.takes_part[member]
        return able

    def are_among(self, keys: Int64Array, member: Int32Array) -> BoolArray:
        """Return bool (R,): whether each resource and its member are one of the pairs."""
        found = np.zeros(member.size, dtype=np.bool_)
        placed = np.flatnonzero(member != NOBODY)
        found[placed] = holds(keys, pair_keys(self.group, placed, member[placed]))
        return found

    def is_cold(self, member: Int32Array) -> BoolArray:
        """Return bool (R,): whether each resource's member could warm up, and is not warm."""
        return self.is_able(member) & ~self.are_among(self.warm, member)

    def has_warm(self) -> BoolArray:
        """Return bool (R,): whether a member is warm for each resource."""
        mask = np.zeros(len(self.group.resources), dtype=np.bool_)
        mask[resources_of(self.group, self.warm)] = True
        return mask

    @cached_property
    def late(self) -> Int64Array:
        """Return the running warm-ups that are cold after the time-out."""
        late = self.now_ms - self.since_ms >= self.option.timeout_ms
        return self.running[late & ~holds(self.warm, self.running)]

    @cached_property
    def cancelled(self) -> Int64Array:
        """Return the pairs for which no warm-up runs: standbys that timed out, and declined ones.

        A move that timed out is not cancelled: it is made.
        """
        receivers = self.receivers[resources_of(self.group, self.late)]
        moves = receivers == members_of(self.group, self.late)
        return np.union1d(self._known_refused, self.late[~moves])

    @cached_property
    def _known_refused(self) -> Int64Array:
        return np.union1d(self.refused, self.declined)

    @cached_property
    def _may_move_cold(self) -> Int64Array:
        """Return the moves that are made although the receiver is cold.

        These are the moves whose warm-up timed out, and pairs for which no warm-up will run. The
        assignor is asked to avoid the latter, so such a move is made only without another choice.
        """
        # Also a standby that timed out: the move to it would wait for a warm-up that never begins.
        return np.union1d(self.late, self._known_refused)

    def waits_for(self, receiver: Int32Array) -> BoolArray:
        """Return the moves that wait until their receiver is warm: bool (R,).

        A move does not wait if its receiver takes no part, is warm, has timed out, or has declined.

        Args:
            receiver: int32 (R,): the resource moves to it if it is another member than the owner.
        """
        moves: BoolArray = self.keeps & (receiver != NOBODY) & (receiver != self.group.owner)
        moves &= self.is_cold(receiver) & ~self.are_among(self._may_move_cold, receiver)
        return moves


# --- free resources go to warm members ------------------------------------------------------------
# A free resource goes to a member that is warm for it.
#
# A lost resource with a warm member does not wait for its owner, and neither does a resource that a
# cold owner would get back. The assignor places these resources like all free ones. If its choice
# is not warm, the warm member with the fewest resources in the target gets the resource, ties by
# member id. This can exceed an even share. A warm member always goes first, because the resource is
# out of service; the next round levels, and its moves are warmed up.
#
# A resource that an earlier round revoked goes to a warm member only if that member is its planned
# receiver, or if its planned receiver left meanwhile. Otherwise a standby could get each resource
# that moves to a member without warm-ups, and the move would begin again without end.


def taken_over(warmth: Warmth, offered: Int32Array, withheld: BoolArray) -> BoolArray:
    """Return the resources that wait for, or return to, an owner, and that a warm member takes.

    Args:
        warmth: facts of the round.
        offered: int32 (R,): the owners of the policy's offer.
        withheld: bool (R,): the resources that the policy withholds.

    Returns:
        bool (R,).
    """
    waits = warmth.free & withheld
    returns = warmth.free & ~withheld & warmth.is_cold(offered)
    return warmth.has_warm() & (waits | returns)


def shown_owner(warmth: Warmth, offered: Int32Array, taken: BoolArray) -> Int32Array:
    """Return the owners as the assignor should see them: int32 (R,).

    A resource that moves belongs to its receiver in this view, so that the move is finished.

    Args:
        warmth: facts of the round.
        offered: int32 (R,): the owners of the policy's offer.
        taken: bool (R,): see `taken_over`.
    """
    owner = np.where(taken, NOBODY, offered)
    moves = (owner == NOBODY) & (warmth.free | warmth.told)
    moves |= warmth.leaving & (warmth.receivers != NOBODY)
    return np.where(moves, warmth.receivers, owner).astype(np.int32)


def given_to_warm(
    warmth: Warmth, target: Int32Array, returns: BoolArray, released: BoolArray
) -> Int32Array:
    """Return the target with free resources given to warm members.

    Args:
        warmth: facts of the round.
        target: int32 (R,): the assignor's answer.
        returns: bool (R,): has an owner in the policy's offer, which gets it.
        released: bool (R,): revoked by an earlier round and given up.

    Returns:
        int32 (R,).
    """
    leaving = warmth.leaving & ~warmth.are_among(warmth.warm, warmth.receivers)
    open_ = ((warmth.free & ~returns) | leaving) & (target != NOBODY)
    open_ &= ~warmth.are_among(warmth.warm, target)
    planned = (warmth.free & released) | warmth.told
    planned &= (target != NOBODY) & warmth.is_cold(target)
    planned &= warmth.are_among(warmth.warm, warmth.receivers)
    given = np.where(planned, warmth.receivers, target).astype(np.int32)
    return _to_fewest(warmth, given, open_ & (~released | warmth.orphaned) & ~planned)


def _to_fewest(warmth: Warmth, target: Int32Array, open_: BoolArray) -> Int32Array:
    pairs = warmth.warm[open_[resources_of(warmth.group, warmth.warm)]]
    if not pairs.size:
        return target
    given = target.copy()
    resources = resources_of(warmth.group, pairs)
    members = members_of(warmth.group, pairs).astype(np.int32)
    first = np.flatnonzero(np.diff(resources, prepend=NOBODY))
    counts = np.diff(first, append=resources.size)
    single = first[counts == 1]
    given[resources[single]] = members[single]
    loads = _loads(warmth, given, open_)
    for start, count in zip(first[counts > 1].tolist(), counts[counts > 1].tolist(), strict=True):
        best = min(members[start : start + count].tolist(), key=lambda m: (loads[m], m))
        given[resources[start]] = best
        loads[best] += 1
    return given


def _loads(warmth: Warmth, given: Int32Array, open_: BoolArray) -> list[int]:
    """Return how many resources each member has, without those that are still to be given."""
    pairs = resources_of(warmth.group, warmth.warm)
    several = open_ & (np.bincount(pairs, minlength=given.size) > 1)
    counted = given[(given != NOBODY) & ~several]
    loads: Int64Array = np.bincount(counted, minlength=len(warmth.group.members))
    return list(loads.tolist())
