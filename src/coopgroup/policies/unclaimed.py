"""Resources that nobody claims: why they are free, and whether they may be given away.

Every policy asks the same two questions here, so that they have one answer:

1. Why does nobody claim it? It was never owned (created), its owner went away (lost), or its
   owner was told to stop it (released).
2. Can somebody own it whose claims could not be read? Then it is withheld for one round.

Theory of operation. A leader that led the last round knows from its state what was ever owned. A
leader without a state goes by the rule of Design II: a topic that is missing from all claims is a
new subscription, and a missing part of a topic is the share of a member that left.

    in state: released  granted  known   departed  topic claimed    it is
              yes       -        -       -         -                released
              no        yes      -       no        -                created  (a missed sync)
              no        yes      -       yes       -                lost
              no        no       yes     -         -                lost
              no        no       no      -         -                created
    no state: -         -        -       -         yes              lost
              -         -        -       -         no               created

`granted` are those that the last round granted for the first time. When all its members are back
and nobody claims one, its new owner missed its SyncGroup and never started it (KAFKA-9848: a missed
sync is no departure).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from attrs import frozen

from coopgroup.model import NOBODY
from coopgroup.model.plan import revoked_claims
from coopgroup.policies.state import Claims, Holdings, PolicyState
from coopgroup.policies.stopping import member_numbers

if TYPE_CHECKING:
    from coopgroup.model import GroupSnapshot, ResourceSet
    from coopgroup.model.resource_set import BoolArray, Int32Array
    from coopgroup.policies.base import RoundContext

__all__ = ["Unclaimed", "departed_members", "find_unclaimed", "remember_round"]


@frozen(kw_only=True, eq=False)
class Unclaimed:
    """Assignable resources with a subscriber that nobody claims, of a group with R resources.

    Each is in exactly one of the first three; `withheld` is a part of their union.

    Attributes:
        created: bool (R,): never owned so far.
        lost: bool (R,): should be owned, its owner is gone.
        released: bool (R,): given up on request.
        withheld: bool (R,): may be owned by a member whose claims could not be read; not to be
            granted in this round.
    """

    created: BoolArray
    lost: BoolArray
    released: BoolArray
    withheld: BoolArray


def find_unclaimed(group: GroupSnapshot, context: RoundContext) -> Unclaimed:
    """Classify what nobody claims; see the table at the top of this module."""
    claimed = group.claimed()
    free = group.assignable & group.subscribed() & ~claimed
    state = context.state
    if state is None:
        topic_is_claimed = _of_claimed_names(group, claimed)
        created, released = free & ~topic_is_claimed, np.zeros_like(free)
    else:
        released = free & _mask(group, state.released)
        created = free & ~released & ~_owned_before(group, context, state)
    lost = free & ~created & ~released
    withheld = free if _unheard_members(group, context) else np.zeros_like(free)
    return Unclaimed(created=created, lost=lost, released=released, withheld=withheld)


def _owned_before(group: GroupSnapshot, context: RoundContext, state: PolicyState) -> BoolArray:
    unproven = _mask(group, state.granted)
    known = _mask(group, state.known)
    return known | unproven if departed_members(group, context) else known & ~unproven


def departed_members(group: GroupSnapshot, context: RoundContext) -> tuple[str, ...]:
    """Members of the last round that this leader led who are not in this one, ascending."""
    if context.state is None:
        return ()
    present = set(group.member_ids)
    return tuple(member for member in context.state.members if member not in present)


def remember_round(
    group: GroupSnapshot, context: RoundContext, unclaimed: Unclaimed, assigned: Int32Array
) -> PolicyState:
    """Write down what the next round of the same leader has to know.

    Args:
        group: the group with R resources.
        context: of the round.
        unclaimed: what `find_unclaimed` said of it.
        assigned: int32 (R,): who holds each resource after the round.
    """
    state = context.state
    claimed = group.claimed()
    known = claimed | unclaimed.lost | unclaimed.released
    given_up = claimed | unclaimed.released
    if state is not None:
        known |= _mask(group, state.known) | _owned_before(group, context, state)
        given_up |= _mask(group, state.released)  # also of what nobody subscribes to for a while
        given_up |= ~group.subscribed() & _of_present_members(group, state)
    homeless = assigned == NOBODY
    return PolicyState(
        generation=context.generation,
        members=group.member_ids,
        known=_set(group, known & group.assignable),
        granted=_set(group, unclaimed.created & ~homeless),
        released=_set(group, given_up & homeless & group.assignable),
        silent=_unreadable_members(group),
        instance_ids=tuple(
            (member.member_id, member.instance_id)
            for member in group.members
            if member.instance_id is not None
        ),
        holdings=Holdings(resources=_set(group, ~homeless), holder=assigned[~homeless]),
        stopping=_told_to_stop(group, assigned),
        subscriptions=group.subscriptions,
        subscription_of=tuple(group.class_of.tolist()),
    )


def _of_present_members(group: GroupSnapshot, state: PolicyState) -> BoolArray:
    """What a member that is here held after the last round, also if it no longer claims it."""
    there = member_numbers(group, state.members)[state.holdings.holder] != NOBODY
    places = group.resources.positions(state.holdings.resources)
    mask = np.zeros(len(group.resources), dtype=np.bool_)
    mask[places[there & (places >= 0)]] = True
    return mask


def _told_to_stop(group: GroupSnapshot, assigned: Int32Array) -> Claims:
    stop = revoked_claims(group, assigned)
    places = group.claim_resources[stop]
    stopped = np.zeros(len(group.resources), dtype=np.bool_)
    stopped[places] = True
    place_of = np.cumsum(stopped, dtype=np.int32) - 1
    return Claims(
        resources=_set(group, stopped),
        resource=place_of[places],
        claimant=group.claim_members[stop],
    )


def _unreadable_members(group: GroupSnapshot) -> tuple[str, ...]:
    return tuple(member.member_id for member in group.members if not member.readable)


def _unheard_members(group: GroupSnapshot, context: RoundContext) -> tuple[str, ...]:
    """Members that may own anything: not readable, and not yet told to hold nothing."""
    told = () if context.state is None else context.state.silent
    return tuple(member for member in _unreadable_members(group) if member not in told)


def _of_claimed_names(group: GroupSnapshot, claimed: BoolArray) -> BoolArray:
    resources = group.resources
    if not resources:
        return claimed
    name_is_claimed = np.logical_or.reduceat(claimed, resources.starts[:-1])
    return np.repeat(name_is_claimed, np.diff(resources.starts))


def _mask(group: GroupSnapshot, resources: ResourceSet) -> BoolArray:
    if resources == group.resources:
        return np.ones(len(resources), dtype=np.bool_)
    mask = np.zeros(len(group.resources), dtype=np.bool_)
    places = group.resources.positions(resources)
    mask[places[places >= 0]] = True
    return mask


def _set(group: GroupSnapshot, mask: BoolArray) -> ResourceSet:
    return group.resources if mask.all() else group.resources.take(mask)
