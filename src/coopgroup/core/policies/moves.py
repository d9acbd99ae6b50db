"""Permanent changes of a group, and the order of moves.

A move takes a resource from an owner that could keep it. This module answers three questions. Has
the group changed permanently since the last round (`changed_for_good`)? Would the counts of
resources be less even without moves (`less_even`)? Which moves come first (`first_moves`)?

Module `stage` decides by the table `MOVE_MODES` whether resources may move in a round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coopgroup.core.model import NOBODY
from coopgroup.core.model.positions import ABSENT
from coopgroup.core.model.resource_set import numbers_in
from coopgroup.core.policies.facts import rightful_resources
from coopgroup.core.policies.memory import Past

if TYPE_CHECKING:
    from coopgroup.core.model import GroupSnapshot
    from coopgroup.core.model.resource_set import BoolArray, Int32Array, Int64Array
    from coopgroup.core.policies.memory import PolicyState
    from coopgroup.core.policies.policy import RoundFacts


# --- permanent changes ----------------------------------------------------------------------------
# Only a permanent change justifies taking a resource from an owner that could keep it. A restarted
# process, an idle member that leaves, or changing lags do not, however far the assignor's target
# moves.
#
# Module `losses` detects additional members and expired losses. This module detects the other
# changes: of subscriptions, of existing resources, and owners that the last round did not choose,
# for example an unexpected member that brings its own resources.


def changed_for_good(group: GroupSnapshot, state: PolicyState, facts: RoundFacts) -> bool:
    """Return whether subscriptions, resources or their owners have changed permanently.

    Args:
        group: the group.
        state: the leader's memory of the last round.
        facts: facts of the group.
    """
    return (
        _resources_changed(group, state, facts)
        or _subscriptions_changed(group, state)
        or _strangers_own(group, state)
        or _others_own(group, facts)
    )


def _resources_changed(group: GroupSnapshot, state: PolicyState, facts: RoundFacts) -> bool:
    # A resource that was granted for the first time and is still free is not new: its owner missed
    # the assignment.
    recalled = facts.recalled
    if (facts.unclaimed.created & (recalled.past != Past.FIRST_GRANT)).any():
        return True
    # A resource that vanishes while it waits leaves its owner with fewer than before.
    mattered = (state.resources.holder != NOBODY) | (state.resources.loss != NOBODY)
    place = recalled.place_of[mattered]
    return bool((place == ABSENT).any() or not group.assignable[place].all())


def _subscriptions_changed(group: GroupSnapshot, state: PolicyState) -> bool:
    members = state.members
    if not members.subscriptions:
        return False  # written by a user's policy, which need not fill in all fields
    # A static member that restarts has another id, and may have another subscription.
    keys = (static or one for one, static in zip(members.ids, members.instance_ids, strict=True))
    before = dict(zip(keys, members.class_of, strict=True))
    place_of = {names: place for place, names in enumerate(members.subscriptions)}
    classes = [place_of.get(names) for names in group.subscriptions]
    return any(
        classes[number] is None
        or before.get(member.instance_id or member.member_id, classes[number]) != classes[number]
        for member, number in zip(group.members, group.class_of.tolist(), strict=True)
        if member.readable
    )


def _strangers_own(group: GroupSnapshot, state: PolicyState) -> bool:
    """Return whether a new member that the group does not wait for rightfully owns anything."""
    waiting = [loss for loss in state.losses if loss.given_ms is None]
    if any(loss.owner is None for loss in waiting):
        return False  # it can be a member that the group waits for
    expected = {*state.members.ids, *(loss.owner for loss in waiting)}
    instances = {*state.members.instance_ids, *(loss.instance_id for loss in waiting)} - {None}
    owners = numbers_in(group.owner).tolist()
    return any(
        group.members[number].member_id not in expected
        and group.members[number].instance_id not in instances
        for number in owners
    )


def _others_own(group: GroupSnapshot, facts: RoundFacts) -> bool:
    """Return whether a member of the last round owns a resource that the round did not leave it.

    Resources that a member is slow to stop do not count. No honest member claims the resources of a
    departed one; if a member does, nothing is lost, but the shares are no longer even.
    """
    number_of = facts.recalled.number_of
    was_there = np.zeros(len(group.members) + 1, dtype=np.bool_)  # the last entry is for `NOBODY`
    was_there[number_of[number_of != NOBODY]] = True
    counts = group.assignable & was_there[group.owner] & ~rightful_resources(group, facts.told)
    return bool((counts & (group.owner != facts.recalled.holder)).any())


# --- how much moves even out, and which move first ------------------------------------------------
# A resource that must be stopped anyway, or that is lost, is not a move. The choice depends only on
# the group, so that every leader makes the same choice.


def less_even(group: GroupSnapshot, kept: Int32Array, target: Int32Array) -> bool:
    """Return whether the counts of `kept` are less even than those of the target.

    Args:
        group: the group with R resources.
        kept: int32 (R,), member numbers or `NOBODY`.
        target: the same.
    """
    return _roughness(group, kept) > _roughness(group, target)


def first_moves(
    group: GroupSnapshot, target: Int32Array, candidates: BoolArray, count_max: int
) -> BoolArray:
    """Choose the first moves: those that even out most, spread over owners and receivers.

    Each candidate is ranked by how much its receiver lacks after the better candidates of that
    receiver have arrived, then by its owner's surplus after the better ones have left, then by its
    position in the group. So the emptiest receiver is served first until others are as empty.

    Args:
        group: the group with R resources.
        target: int32 (R,): target of each resource.
        candidates: bool (R,): claimed, with another member than the rightful owner as target.
        count_max: maximum number of moves.

    Returns:
        bool (R,): the chosen resources.
    """
    positions = np.flatnonzero(candidates)
    if positions.size <= count_max:
        return candidates
    balance = _counts(group, target) - _counts(group, group.owner)
    givers, getters = group.owner[positions], target[positions]
    excess = -balance[givers] - _ranks(givers, np.zeros_like(positions))
    lack = balance[getters] - _ranks(getters, -excess)
    order = np.lexsort((positions, -excess, -lack))
    chosen = np.zeros_like(candidates)
    chosen[positions[order[:count_max]]] = True
    return chosen


def _counts(group: GroupSnapshot, holder: Int32Array) -> Int64Array:
    return np.bincount(holder[holder != NOBODY], minlength=len(group.members))


def _roughness(group: GroupSnapshot, holder: Int32Array) -> int:
    counts = _counts(group, holder)
    return int((counts * counts).sum())


def _ranks(groups: Int32Array, keys: Int64Array) -> Int64Array:
    """Return the rank of each item within its group, by key, then by position.

    Args:
        groups: int32 (N,): group of each item.
        keys: int64 (N,).
    """
    order = np.lexsort((keys, groups))
    ordered = groups[order]
    first = np.flatnonzero(np.diff(ordered, prepend=NOBODY))
    ranks = np.empty(groups.size, dtype=np.int64)
    ranks[order] = np.arange(groups.size) - np.repeat(first, np.diff(first, append=groups.size))
    return ranks
