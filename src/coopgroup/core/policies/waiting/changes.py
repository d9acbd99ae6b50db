"""Detect permanent changes of a group since its leader's last round.

Only a permanent change justifies taking a resource from an owner that could keep it. A restarted
process, an idle member that leaves, or changing lags do not, however far the assignor's target
moves.

Module `losses` detects additional members and expired losses. This module detects the other
changes: of subscriptions, of existing resources, and owners that the last round did not choose, for
example an unexpected member that brings its own resources.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coopgroup.core.model import NOBODY
from coopgroup.core.model.resource_set import numbers_in
from coopgroup.core.policies.stopping import member_numbers, rightful_resources

if TYPE_CHECKING:
    from coopgroup.core.model import GroupSnapshot, ResourceSet
    from coopgroup.core.model.resource_set import BoolArray
    from coopgroup.core.policies.state import PolicyState
    from coopgroup.core.policies.unclaimed import Unclaimed

__all__ = ["changed_for_good"]


def changed_for_good(
    group: GroupSnapshot, state: PolicyState, unclaimed: Unclaimed, stopping: BoolArray
) -> bool:
    """Return whether subscriptions, resources or their owners have changed permanently.

    Args:
        group: the group with K claims.
        state: the leader's memory of the last round.
        unclaimed: result of `find_unclaimed` for the group.
        stopping: bool (K,): claims that an earlier round revoked.
    """
    return (
        _resources_changed(group, state, unclaimed)
        or _subscriptions_changed(group, state)
        or _strangers_own(group, state)
        or _others_own(group, state, stopping)
    )


def _resources_changed(group: GroupSnapshot, state: PolicyState, unclaimed: Unclaimed) -> bool:
    # A resource that was granted for the first time and is still free is not new: its owner missed
    # the assignment.
    created = group.resources.take(unclaimed.created)
    if created and created - state.granted:
        return True
    # A resource that vanishes while it waits leaves its owner with fewer than before.
    return _any_vanished(group, state.holdings.resources) or _any_vanished(
        group, state.lost.resources
    )


def _any_vanished(group: GroupSnapshot, resources: ResourceSet) -> bool:
    if resources == group.resources:
        return not group.assignable.all()
    positions = group.resources.positions(resources)
    return bool((positions < 0).any() or not group.assignable[positions].all())


def _subscriptions_changed(group: GroupSnapshot, state: PolicyState) -> bool:
    if not state.subscriptions:
        return False  # state of an earlier release
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
    """Return whether a new member that the group does not wait for rightfully owns anything."""
    waiting = [loss for loss in state.losses if loss.given_ms is None]
    if any(loss.owner is None for loss in waiting):
        return False  # it can be a member that the group waits for
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
    """Return whether a member of the last round owns a resource that the round did not leave it.

    Resources that a member is slow to stop do not count. No honest member claims the resources of a
    departed one; if a member does, nothing is lost, but the shares are no longer even.
    """
    there = member_numbers(group, state.members)
    was_there = np.zeros(len(group.members) + 1, dtype=np.bool_)  # the last entry is for `NOBODY`
    was_there[there[there != NOBODY]] = True
    counts = group.assignable & was_there[group.owner] & ~rightful_resources(group, stopping)
    expected = group.aligned(state.holdings.resources, there[state.holdings.holder])
    return bool((counts & (group.owner != expected)).any())
