"""The facts of a round, before any decision.

Three questions about the claims of a group, each answered once:

- Which resources may their owners keep (`may_keep`)?
- Which claims were revoked by an earlier round, and still exist (`stopping_claims`)?
- Which resources are unclaimed, and why (`find_unclaimed`)?

The leader asks the last two once a round, and passes the answers on (`RoundFacts`).
`remember_round` writes the memory from which the next round answers them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from attrs import frozen

from coopgroup.core.model import NOBODY
from coopgroup.core.model.plan import revoked_claims
from coopgroup.core.model.replacing import replaced
from coopgroup.core.policies.memory import Claims, Holdings, PolicyState, member_numbers
from coopgroup.core.policies.tables import CAUSES, Cause

if TYPE_CHECKING:
    from coopgroup.core.model import GroupSnapshot, ResourceSet
    from coopgroup.core.model.resource_set import BoolArray, Int32Array
    from coopgroup.core.policies.policy import RoundContext


def may_keep(group: GroupSnapshot) -> BoolArray:
    """Return the resources that could stay with their rightful owner: bool (R,)."""
    return group.may_hold(group.owner) & group.assignable


# --- claims that an earlier round revoked ---------------------------------------------------------
# A heavy resource can need minutes to stop, and its member rejoins meanwhile for the resources that
# have stopped. Such a claim is revoked again for its member only. While only such claims remain, no
# member rejoins immediately; otherwise a slow stop would cause a loop of rounds. The assignor sees
# the resource as free, so that it still goes to its planned owner.


def stopping_claims(group: GroupSnapshot, context: RoundContext) -> BoolArray:
    """Return the claims that an earlier round of this leader revoked: bool (K,)."""
    state = context.state
    claimed = np.zeros(group.claim_members.size, dtype=np.bool_)
    if state is None or not state.stopping.resource.size or not claimed.size:
        return claimed
    members = member_numbers(group, state.members)[state.stopping.claimant].astype(np.int64)
    positions = group.resources.positions(state.stopping.resources)[state.stopping.resource]
    there = (members != NOBODY) & (positions >= 0)
    # Both ascend, because resources and member ids have one order under any numbering.
    told = positions[there] * len(group.members) + members[there]
    claims = group.claim_resources.astype(np.int64) * len(group.members) + group.claim_members
    found = np.searchsorted(claims, told)
    found = np.minimum(found, claims.size - 1)
    claimed[found[claims[found] == told]] = True
    return claimed


def with_holders_rights(
    group: GroupSnapshot, context: RoundContext, stopping: BoolArray
) -> GroupSnapshot:
    """Return the group with the rights of holders restored against revoked claims.

    A member that rejoins before it has stopped a revoked claim makes the claim in the newest
    generation. The holder that the last round chose is still the owner, if only revoked claims
    stand against it.

    Args:
        group: the group, claims resolved.
        context: context of the round.
        stopping: bool (K,): `stopping_claims` of the group.
    """
    if context.state is None or not stopping.any():
        return group
    positions, claimants = group.claim_resources, group.claim_members
    given_up = np.zeros(len(group.resources), dtype=np.bool_)
    given_up[positions[stopping]] = True
    others = np.bincount(positions[~stopping], minlength=len(group.resources))
    held = context.state.holdings
    there = member_numbers(group, context.state.members)
    holder = group.aligned(held.resources, there[held.holder])
    claim = (
        ~stopping
        & (claimants == holder[positions])
        & given_up[positions]
        & (others[positions] == 1)
    )
    owner, contested = group.owner.copy(), group.contested.copy()
    owner[positions[claim]] = claimants[claim]
    contested[positions[claim]] = False
    return replaced(group, owner=owner, contested=contested)


def rightful_resources(group: GroupSnapshot, claims: BoolArray) -> BoolArray:
    """Return the resources that the rightful owner claims by one of the given claims.

    Args:
        group: the group with K claims and R resources.
        claims: bool (K,).

    Returns:
        bool (R,).
    """
    mask = np.zeros(len(group.resources), dtype=np.bool_)
    positions = group.claim_resources[claims]
    mask[positions[group.owner[positions] == group.claim_members[claims]]] = True
    return mask


def offered_owner(group: GroupSnapshot, stopping: BoolArray) -> Int32Array:
    """Return the owners as the assignor should see them: int32 (R,).

    Args:
        group: the group.
        stopping: bool (K,): `stopping_claims` of the group.
    """
    if not stopping.any():
        return group.owner
    owner: Int32Array = np.where(rightful_resources(group, stopping), NOBODY, group.owner)
    return owner.astype(np.int32)


# --- unclaimed resources --------------------------------------------------------------------------
# Every policy needs two answers about an unclaimed resource:
#
# 1. Why is it unclaimed? The table `CAUSES` says so.
# 2. Can a member with an unreadable subscription own it? Then it is withheld for one round.
#
# A leader that led the last round knows from its state which resources were ever owned. A leader
# without a state uses the rule of Design II: a topic that is missing from all claims is a new
# subscription, and a missing part of a topic is the share of a departed member. For this rule, a
# catalogue is one topic.


@frozen(kw_only=True, eq=False)
class Unclaimed:
    """Unclaimed assignable resources with a subscriber, of a group with R resources.

    Each is in exactly one of the first three arrays; `withheld` is a subset of their union.

    Attributes:
        created: bool (R,): never owned.
        lost: bool (R,): should be owned, and its owner has departed.
        released: bool (R,): given up because it was revoked.
        withheld: bool (R,): a member with an unreadable subscription may own it; not granted in
            this round.
    """

    created: BoolArray
    lost: BoolArray
    released: BoolArray
    withheld: BoolArray


def find_unclaimed(group: GroupSnapshot, context: RoundContext) -> Unclaimed:
    """Classify the unclaimed resources by the table `CAUSES`."""
    free = group.assignable & group.subscribed() & ~group.claimed()
    causes = CAUSES.decide_each(**_past(group, context))
    return Unclaimed(
        created=free & causes.are(Cause.CREATED),
        lost=free & causes.are(Cause.LOST),
        released=free & causes.are(Cause.RELEASED),
        withheld=free if _unheard_members(group, context) else np.zeros_like(free),
    )


def _past(group: GroupSnapshot, context: RoundContext) -> dict[str, BoolArray]:
    """Return the facts of `CAUSES`: bool (R,) each."""
    state, never = context.state, np.zeros(len(group.resources), dtype=np.bool_)
    if state is None:
        owned = _owned_by_claims(group) & (not context.after_broker)
        return {"released": never, "first_grant": never, "departed": never, "owned": owned}
    first_grant = group.mask_of(state.granted)
    departed = bool(departed_members(group, context))
    return {
        "released": group.mask_of(state.released),
        "first_grant": first_grant,
        "departed": np.full(never.size, departed, dtype=np.bool_),
        "owned": group.mask_of(state.known) | first_grant,
    }


def departed_members(group: GroupSnapshot, context: RoundContext) -> tuple[str, ...]:
    """Return the members of this leader's last round that are absent, ascending."""
    if context.state is None:
        return ()
    present = set(group.member_ids)
    return tuple(member for member in context.state.members if member not in present)


# --- revoked claims and unclaimed resources, found once -------------------------------------------


@frozen(kw_only=True, eq=False)
class RoundFacts:
    """The facts of one group in one round; their arrays are read-only.

    A round of bundles has two groups, one of parts and one of bundles, each with its own facts.

    Attributes:
        group: the group.
        state: the leader's memory from which the facts follow.
        told: bool (K,): `stopping_claims`.
        unclaimed: `find_unclaimed`.
    """

    group: GroupSnapshot
    state: PolicyState | None
    told: BoolArray
    unclaimed: Unclaimed


def facts_of(
    group: GroupSnapshot, context: RoundContext, told: BoolArray | None = None
) -> RoundFacts:
    """Return the leader's facts.

    They are found here if the leader asks for the first time, or if a policy that wraps another one
    passes it another group or another memory.

    Args:
        group: the group with K claims.
        context: context of the round.
        told: bool (K,): `stopping_claims`, if they were found already.
    """
    facts = context.facts
    if isinstance(facts, RoundFacts) and facts.group is group and facts.state is context.state:
        return facts
    told = stopping_claims(group, context) if told is None else told
    found = find_unclaimed(group, context)
    for array in (told, found.created, found.lost, found.released, found.withheld):
        array.flags.writeable = False
    return RoundFacts(group=group, state=context.state, told=told, unclaimed=found)


def remember_round(
    group: GroupSnapshot,
    context: RoundContext,
    unclaimed: Unclaimed,
    assigned: Int32Array,
    restored_to: Int32Array | None = None,
) -> PolicyState:
    """Return the memory for the same leader's next round.

    Args:
        group: the group with R resources.
        context: context of the round.
        unclaimed: result of `find_unclaimed` for the group.
        assigned: int32 (R,): owner of each resource after the round.
        restored_to: int32 (R,): member that is, or counts as, the owner of an unclaimed resource.
            It is remembered as the holder of a withheld one, because the next round knows it as a
            member of this round. Otherwise another newcomer would get its share. None for no such
            member.
    """
    state = context.state
    claimed = group.claimed()
    known = claimed | unclaimed.lost | unclaimed.released
    given_up = claimed | unclaimed.released
    if state is not None:
        known |= group.mask_of(state.known)
        if departed_members(group, context):
            known |= group.mask_of(state.granted)
        # includes resources without a subscriber at present
        given_up |= group.mask_of(state.released)
        given_up |= ~group.subscribed() & _of_present_members(group, state)
    homeless = assigned == NOBODY
    holder = assigned
    if restored_to is not None:
        holder = np.where(homeless & unclaimed.withheld, restored_to, assigned).astype(np.int32)
    held = holder != NOBODY
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
        holdings=Holdings(resources=_set(group, held), holder=holder[held]),
        stopping=_told_to_stop(group, assigned),
        subscriptions=group.subscriptions,
        subscription_of=tuple(group.class_of.tolist()),
    )


def _of_present_members(group: GroupSnapshot, state: PolicyState) -> BoolArray:
    """Return what present members owned after the last round, also if they no longer claim it."""
    holder = member_numbers(group, state.members)[state.holdings.holder]
    owned: BoolArray = group.aligned(state.holdings.resources, holder) != NOBODY
    return owned


def _told_to_stop(group: GroupSnapshot, assigned: Int32Array) -> Claims:
    stop = revoked_claims(group, assigned)
    positions = group.claim_resources[stop]
    stopped = np.zeros(len(group.resources), dtype=np.bool_)
    stopped[positions] = True
    place_of = np.cumsum(stopped, dtype=np.int32) - 1
    return Claims(
        resources=_set(group, stopped),
        resource=place_of[positions],
        claimant=group.claim_members[stop],
    )


def _unreadable_members(group: GroupSnapshot) -> tuple[str, ...]:
    return tuple(member.member_id for member in group.members if not member.readable)


def _unheard_members(group: GroupSnapshot, context: RoundContext) -> tuple[str, ...]:
    """Return the unreadable members that may own resources.

    If the last round already assigned nothing to an unreadable member, it owns nothing.
    """
    told = () if context.state is None else context.state.silent
    return tuple(member for member in _unreadable_members(group) if member not in told)


def _owned_by_claims(group: GroupSnapshot) -> BoolArray:
    """Return which resources were owned before, as the present claims show: bool (R,).

    A topic of which a part is claimed was owned. A name of a catalogue often has one resource only,
    so a claim to any resource of the catalogue shows that all had owners.
    """
    resources, claimed = group.resources, group.claimed()
    if not resources:
        return claimed
    if group.weights is not None:
        return np.full(claimed.size, claimed.any(), dtype=np.bool_)
    name_is_claimed = np.logical_or.reduceat(claimed, resources.starts[:-1])
    return np.repeat(name_is_claimed, np.diff(resources.starts))


def _set(group: GroupSnapshot, mask: BoolArray) -> ResourceSet:
    return group.resources if mask.all() else group.resources.take(mask)
