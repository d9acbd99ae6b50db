"""Whether a group is another one for good since its leader looked last.

Only then is there a reason to take anything from an owner that could keep it. A process that is
restarted, an idle member that leaves, or lags that rise and fall are no such reason, however far
the target of the assignor goes with them.

Rules of this file: who joined for good and what expired is known elsewhere (`losses`); here are
the other changes: of subscriptions, of what exists, and owners that are not those which the last
round left: members that bring along what they had though nobody waits for them, say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coopgroup.model import NOBODY
from coopgroup.model.ascending import numbers_in
from coopgroup.policies.stopping import member_numbers, rightful_resources

if TYPE_CHECKING:
    from coopgroup.model import GroupSnapshot, ResourceSet
    from coopgroup.model.resource_set import BoolArray, Int32Array
    from coopgroup.policies.state import PolicyState
    from coopgroup.policies.unclaimed import Unclaimed

__all__ = ["changed_for_good"]


def changed_for_good(
    group: GroupSnapshot, state: PolicyState, unclaimed: Unclaimed, stopping: BoolArray
) -> bool:
    """Whether subscriptions, resources, or who owns any are not what they were.

    Args:
        group: the group with K claims.
        state: what the leader remembers of the last round.
        unclaimed: what `find_unclaimed` said of the group.
        stopping: bool (K,): claims that an earlier round told to be stopped.
    """
    return (
        _resources_changed(group, state, unclaimed)
        or _subscriptions_changed(group, state)
        or _strangers_own(group, state)
        or _others_own(group, state, stopping)
    )


def _resources_changed(group: GroupSnapshot, state: PolicyState, unclaimed: Unclaimed) -> bool:
    # What was granted for the first time and is still free is not new: its owner never heard of it.
    created = group.resources.take(unclaimed.created)
    if created and created - state.granted:
        return True
    # What vanishes while it waits for its owner leaves that one with less than it had.
    return _any_vanished(group, state.holdings.resources) or _any_vanished(
        group, state.lost.resources
    )


def _any_vanished(group: GroupSnapshot, resources: ResourceSet) -> bool:
    if resources == group.resources:
        return not group.assignable.all()
    places = group.resources.positions(resources)
    return bool((places < 0).any() or not group.assignable[places].all())


def _subscriptions_changed(group: GroupSnapshot, state: PolicyState) -> bool:
    if not state.subscriptions:
        return False  # remembered by an earlier release
    before = dict(zip(state.members, state.subscription_of, strict=True))
    known = set(state.subscriptions)
    for member, number in zip(group.members, group.class_of.tolist(), strict=True):
        topics = group.subscriptions[number]
        if not member.readable:
            continue
        if member.member_id in before:
            if state.subscriptions[before[member.member_id]] != topics:
                return True
        elif topics not in known:
            return True
    return False


def _strangers_own(group: GroupSnapshot, state: PolicyState) -> bool:
    """Whether a member that was not there, and is not waited for, rightfully owns anything."""
    waiting = [loss for loss in state.losses if loss.given_ms is None]
    if any(loss.owner is None for loss in waiting):
        return False  # it may be one that is waited for
    expected = {*state.members, *(loss.owner for loss in waiting)}
    instances = {instance for _, instance in state.instance_ids}
    instances.update(loss.instance_id for loss in waiting if loss.instance_id is not None)
    owners = numbers_in(group.owner).tolist()
    return any(
        group.members[number].member_id not in expected
        and group.members[number].instance_id not in instances
        for number in owners
    )


def _others_own(group: GroupSnapshot, state: PolicyState, stopping: BoolArray) -> bool:
    """Whether a member of the last round owns what that did not leave it with.

    Neither what it is slow to stop counts, nor what was left with one that has gone since. A static
    member that is back under another member id has not gone. It is no additional member either, so
    it would stay without a share if another member claims its resources.
    """
    there = member_numbers(group, state.members)
    was_there = np.zeros(len(group.members) + 1, dtype=np.bool_)  # the last one is nobody
    was_there[there[there != NOBODY]] = True
    places = group.resources.positions(state.holdings.resources)
    holder = _also_under_another_id(group, state, there)[state.holdings.holder]
    counts = group.assignable & was_there[group.owner] & ~rightful_resources(group, stopping)
    counts[places[(places >= 0) & (holder == NOBODY)]] = False
    expected = np.full(len(group.resources), NOBODY, dtype=np.int32)
    expected[places[places >= 0]] = holder[places >= 0]
    return bool((counts & (group.owner != expected)).any())


def _also_under_another_id(
    group: GroupSnapshot, state: PolicyState, there: Int32Array
) -> Int32Array:
    """Numbers of the members of the last round, and of static ones that are back: int32 (N + 1,).

    Args:
        group: the group.
        state: what the leader remembers of a last round with N members.
        there: int32 (N + 1,), `member_numbers` of them.
    """
    instance_of = dict(state.instance_ids)
    if not instance_of:
        return there
    by_instance = {m.instance_id: number for number, m in enumerate(group.members)}
    numbers = there.copy()
    for place, member_id in enumerate(state.members):
        if there[place] == NOBODY and member_id in instance_of:
            numbers[place] = by_instance.get(instance_of[member_id], NOBODY)
    return numbers
