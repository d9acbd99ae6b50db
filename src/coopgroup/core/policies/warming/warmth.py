"""The facts about warm-ups in a round, before the assignor answers."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import attrs
import numpy as np
from attrs import frozen

from coopgroup.core.model import EMPTY, NOBODY
from coopgroup.core.model.positions import ABSENT, positions_in
from coopgroup.core.policies.stopping import member_numbers, rightful_resources, stopping_claims
from coopgroup.core.policies.waiting.staging import keepable
from coopgroup.core.policies.warming.pairs import (
    NO_KEYS,
    holds,
    keys_in,
    members_of,
    pair_keys,
    resources_of,
    subscribes,
)

if TYPE_CHECKING:
    from coopgroup.core.model import GroupSnapshot
    from coopgroup.core.model.resource_set import BoolArray, Int32Array, Int64Array
    from coopgroup.core.policies.base import RoundContext
    from coopgroup.core.policies.state import PolicyState
    from coopgroup.core.policies.warming.option import Warmup


@frozen(kw_only=True, eq=False, slots=False)
class Warmth:
    """Facts of a round; R resources, M members, pairs as keys of module `pairs`, ascending.

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
        kept_group: the group in which members that hand over may keep what they own.
        may_stay: bool (R,): could stay with its owner in this group, and was not told to stop.
        leaving: bool (R,): such a resource of a member that hands over.
        stopping: bool (R,): its owner was told to stop it, and still claims it.
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
    kept_group: GroupSnapshot
    may_stay: BoolArray
    leaving: BoolArray
    stopping: BoolArray
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
        moves: BoolArray = self.may_stay & (receiver != NOBODY) & (receiver != self.group.owner)
        moves &= self.is_cold(receiver) & ~self.are_among(self._may_move_cold, receiver)
        return moves


def warmth_of(group: GroupSnapshot, context: RoundContext, option: Warmup) -> Warmth:
    """Collect the facts of a round."""
    takes_part = np.array([member.warms for member in group.members], dtype=np.bool_)
    warm = pair_keys(group, group.warm_resources, group.warm_members)
    # Nothing warms up a resource that was deleted, even if a member still claims it.
    warm = warm[subscribes(group, warm) & group.assignable[resources_of(group, warm)]]
    warm = warm[~_is_stale(group, context, warm)]
    owned = group.owner[resources_of(group, warm)] == members_of(group, warm)
    running, since_ms, refused = _remembered(group, context, takes_part, warm)
    stopping = rightful_resources(group, stopping_claims(group, context))
    kept_group = with_leavers(group)
    may_stay = keepable(kept_group) & ~stopping
    receivers = _receivers(group, context.state)
    return Warmth(
        group=group,
        option=option,
        now_ms=context.now_ms,
        remembers=context.state is not None,
        takes_part=takes_part,
        warm=warm[~owned],
        running=running,
        since_ms=since_ms,
        receivers=receivers,
        orphaned=_orphaned(group, context.state, receivers),
        refused=refused,
        declined=_declined(group, warm),
        kept_group=kept_group,
        may_stay=may_stay,
        leaving=may_stay & ~keepable(group),
        stopping=stopping,
        free=group.assignable & group.subscribed() & ~group.claimed(),
    )


def _is_stale(group: GroupSnapshot, context: RoundContext, warm: Int64Array) -> BoolArray:
    """Return the warm pairs that the last round cancelled, in claims older than that round.

    The coordinator can answer for a static member with an old join. The member may be away, and its
    warm-up may be cancelled since. A resource given to it would wait for the whole session.
    """
    state = context.state
    if state is None or not warm.size:
        return np.zeros(warm.size, dtype=np.bool_)
    before = set(state.members)
    old = [
        member.member_id in before and member.generation < context.generation
        for member in group.members
    ]
    kept, _ = keys_in(group, state.warmups.pairs, state.members)
    stale: BoolArray = np.array(old, dtype=np.bool_)[members_of(group, warm)]
    return stale & ~holds(kept, warm)


def _declined(group: GroupSnapshot, warm: Int64Array) -> Int64Array:
    """Return the warm-ups that members declined; a member that became warm has thought better."""
    sets = [member.declined if member.warms else EMPTY for member in group.members]
    if not any(sets):
        return NO_KEYS
    members = np.arange(len(sets), dtype=np.int64).repeat([len(one) for one in sets])
    positions = positions_in(group.resources, sets)
    there = positions != ABSENT
    keys = np.sort(pair_keys(group, positions[there], members[there]))
    counts = subscribes(group, keys) & ~holds(warm, keys)
    counts &= group.owner[resources_of(group, keys)] != members_of(group, keys)
    return keys[counts]


def _remembered(
    group: GroupSnapshot, context: RoundContext, takes_part: BoolArray, warm: Int64Array
) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Return the running warm-ups, when each began, and the refused pairs."""
    state = context.state
    if state is None:
        return NO_KEYS, NO_KEYS, NO_KEYS
    running, there = keys_in(group, state.warmups.pairs, state.members)
    known = state.warmups
    since_ms = np.where(known.warm, context.now_ms, known.since_ms)[there]
    members = members_of(group, running)
    counts = takes_part[members] & subscribes(group, running)
    counts &= group.assignable[resources_of(group, running)]
    counts &= group.owner[resources_of(group, running)] != members
    refused = NO_KEYS
    if state.members == group.member_ids:
        refused, _ = keys_in(group, state.refused, state.members)
        refused = refused[~holds(warm, refused)]
    return running[counts], since_ms[counts], refused


def _receivers(group: GroupSnapshot, state: PolicyState | None) -> Int32Array:
    if state is None:
        return np.full(len(group.resources), NOBODY, dtype=np.int32)
    there = member_numbers(group, state.members)
    receivers = group.aligned(state.receivers.resources, there[state.receivers.holder])
    return np.where(group.may_hold(receivers), receivers, NOBODY).astype(np.int32)


def _orphaned(group: GroupSnapshot, state: PolicyState | None, receivers: Int32Array) -> BoolArray:
    """Return bool (R,): whether a resource had a receiver that cannot have it any more."""
    if state is None:
        return np.zeros(len(group.resources), dtype=np.bool_)
    found: BoolArray = group.mask_of(state.receivers.resources) & (receivers == NOBODY)
    return found


# --- members that hand over -----------------------------------------------------------------------
# They leave permanently, and work until their next owners are warm. Such a member subscribes to
# nothing, so the assignor gives its resources to others. Without warm-ups a policy takes them from
# it at once. With warm-ups it may keep what it owns, until the receiver is warm.


def with_leavers(group: GroupSnapshot) -> GroupSnapshot:
    """Return the group in which members that hand over may keep what they rightfully own.

    If no other member subscribes to a resource, it has no next owner, and is given up at once.
    """
    leavers = [
        number
        for number, member in enumerate(group.members)
        if member.hands_over and not group.subscriptions[group.class_of[number]]
    ]
    if not leavers:
        return group
    subscriptions, class_of = list(group.subscriptions), group.class_of.copy()
    names = group.resources.name_numbers
    for number in leavers:
        owned = np.unique(names[(group.owner == number) & group.subscribed()]).tolist()
        topics = tuple(group.resources.names[name] for name in owned)
        if topics not in subscriptions:
            subscriptions.append(topics)
        class_of[number] = subscriptions.index(topics)
    return attrs.evolve(group, subscriptions=tuple(subscriptions), class_of=class_of)
