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

import attrs
import numpy as np

from coopgroup.core.model import NOBODY
from coopgroup.core.model.pairs import holds, pair_keys, refusals
from coopgroup.core.model.plan import revoked_claims
from coopgroup.core.model.replacing import replaced
from coopgroup.core.policies.memory import (
    PairKind,
    Past,
    PolicyState,
    Recalled,
    RememberedMembers,
    RememberedPairs,
    RememberedResources,
    recall,
)
from coopgroup.core.policies.policy import RoundFacts, Unclaimed
from coopgroup.core.policies.tables import CAUSES, Cause

if TYPE_CHECKING:
    from coopgroup.core.model import GroupSnapshot
    from coopgroup.core.model.resource_set import BoolArray, Int32Array
    from coopgroup.core.policies.policy import RoundContext


def may_keep(group: GroupSnapshot) -> BoolArray:
    """Return the resources that could stay with their rightful owner: bool (R,)."""
    return group.may_hold(group.owner) & group.assignable


def may_have(group: GroupSnapshot, holder: Int32Array) -> BoolArray:
    """Return whether each holder subscribes to its resource and accepts it: bool (R,).

    It is False for `NOBODY`.
    """
    able, refused = group.may_hold(holder), refusals(group)
    if refused.size:
        place = np.flatnonzero(able)
        able[place] = ~holds(refused, pair_keys(group, place, holder[place]))
    return able


# --- claims that an earlier round revoked ---------------------------------------------------------
# A heavy resource can need minutes to stop, and its member rejoins meanwhile for the resources that
# have stopped. Such a claim is revoked again for its member only. While only such claims remain, no
# member rejoins immediately; otherwise a slow stop would cause a loop of rounds. The assignor sees
# the resource as free, so that it still goes to its planned owner.


def claims_told(group: GroupSnapshot, recalled: Recalled) -> BoolArray:
    """Return the claims that an earlier round revoked: bool (K,)."""
    told, _ = recalled.pairs_of(PairKind.TOLD)
    return holds(told, pair_keys(group, group.claim_resources, group.claim_members))


def with_holders_rights(
    group: GroupSnapshot, recalled: Recalled, stopping: BoolArray
) -> GroupSnapshot:
    """Return the group with the rights of holders restored against revoked claims.

    A member that rejoins before it has stopped a revoked claim makes the claim in the newest
    generation. The holder that the last round chose is still the owner, if only revoked claims
    stand against it.

    Args:
        group: the group, claims resolved.
        recalled: the memory of the last round.
        stopping: bool (K,): `stopping_claims` of the group.
    """
    if not stopping.any():
        return group
    positions, claimants = group.claim_resources, group.claim_members
    given_up = np.zeros(len(group.resources), dtype=np.bool_)
    given_up[positions[stopping]] = True
    others = np.bincount(positions[~stopping], minlength=len(group.resources))
    claim = (
        ~stopping
        & (claimants == recalled.holder[positions])
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
# 1. Why is it unclaimed? The table `CAUSES` decides.
# 2. Can a member with an unreadable subscription own it? Then it is withheld for one round.
#
# A leader that led the last round knows from its state which resources were ever owned. A leader
# without a state uses the rule of Design II: a topic that is missing from all claims is a new
# subscription, and a missing part of a topic is the share of a departed member. For this rule, a
# catalogue is one topic.


def classify_unclaimed(
    group: GroupSnapshot, context: RoundContext, recalled: Recalled
) -> Unclaimed:
    """Return why each unclaimed resource is unclaimed."""
    free = group.assignable & group.subscribed() & ~group.claimed()
    causes = CAUSES.decide_each(
        released=recalled.past == Past.RELEASED,
        first_grant=recalled.past == Past.FIRST_GRANT,
        departed=np.full(free.size, recalled.has_departed, dtype=np.bool_),
        owned=_owned_by_claims(group) & (not context.after_broker)
        if context.state is None
        else recalled.past != Past.NEVER_OWNED,
    )
    return Unclaimed(
        created=free & causes.are(Cause.CREATED),
        lost=free & causes.are(Cause.LOST),
        released=free & causes.are(Cause.RELEASED),
        withheld=free if _unheard_members(group, context) else np.zeros_like(free),
    )


# --- found once -----------------------------------------------------------------------------------


def facts_of(group: GroupSnapshot, context: RoundContext) -> RoundFacts:
    """Return the leader's facts.

    They are found anew if a policy that wraps another one passes it another group or memory.

    Args:
        group: the group with K claims.
        context: context of the round.
    """
    facts = context.facts
    if facts is not None and facts.group is group and facts.state is context.state:
        return facts
    recalled = recall(group, context.state)
    return _facts(group, context, recalled, claims_told(group, recalled))


def with_facts(group: GroupSnapshot, context: RoundContext) -> tuple[GroupSnapshot, RoundFacts]:
    """Return the group with the rights of holders restored, and its facts.

    Args:
        group: the group, claims resolved.
        context: context of the round.
    """
    recalled = recall(group, context.state)
    told = claims_told(group, recalled)
    group = with_holders_rights(group, recalled, told)
    return group, _facts(group, context, recalled, told)


def _facts(
    group: GroupSnapshot, context: RoundContext, recalled: Recalled, told: BoolArray
) -> RoundFacts:
    found = classify_unclaimed(group, context, recalled)
    for array in (told, found.created, found.lost, found.released, found.withheld):
        array.flags.writeable = False
    return RoundFacts(
        group=group, state=context.state, recalled=recalled, told=told, unclaimed=found
    )


def stopping_claims(group: GroupSnapshot, context: RoundContext) -> BoolArray:
    """Return the claims that an earlier round of this leader revoked: bool (K,)."""
    return facts_of(group, context).told


def find_unclaimed(group: GroupSnapshot, context: RoundContext) -> Unclaimed:
    """Classify the unclaimed resources by the table `CAUSES`."""
    return facts_of(group, context).unclaimed


# --- the memory for the next round ----------------------------------------------------------------


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
    recalled = facts_of(group, context).recalled
    claimed, homeless = group.claimed(), assigned == NOBODY
    owned = claimed | unclaimed.lost | unclaimed.released | (recalled.past >= Past.OWNED)
    if recalled.has_departed:
        owned |= recalled.past == Past.FIRST_GRANT
    # includes resources without a subscriber at present
    given_up = claimed | unclaimed.released | (recalled.past == Past.RELEASED)
    given_up |= ~group.subscribed() & (recalled.holder != NOBODY)
    past = np.select(
        [~group.assignable, given_up & homeless, owned, unclaimed.created & ~homeless],
        [Past.NEVER_OWNED, Past.RELEASED, Past.OWNED, Past.FIRST_GRANT],
        Past.NEVER_OWNED,
    )
    holder = assigned.copy()  # the plan of a user's policy may be an array that it changes later
    if restored_to is not None:
        kept = homeless & unclaimed.withheld
        holder[kept] = restored_to[kept]
    stops = revoked_claims(group, assigned)
    return PolicyState(
        generation=context.generation,
        members=RememberedMembers.of(group),
        resources=attrs.evolve(
            RememberedResources.unknown(group.resources),
            past=past.astype(np.int8),
            holder=holder,
        ),
        pairs=RememberedPairs.of(
            PairKind.TOLD, group.claim_resources[stops], group.claim_members[stops]
        ),
        silent=_unreadable_members(group),
    )


def fitted(group: GroupSnapshot, state: object) -> PolicyState:
    """Return a memory that a policy wrote, with the members and resources of the group.

    A user's policy need not fill in all fields, and may keep an older memory. The leader adds
    receivers and pairs by their numbers in the group.

    Raises:
        TypeError: it is no `PolicyState`.
        ValueError: a position does not exist.
    """
    if not isinstance(state, PolicyState):
        raise TypeError(f"expected a PolicyState, got a {type(state).__name__}")
    rows, pairs = state.resources, state.pairs
    members, names, losses = len(state.members.ids), len(rows.names), len(state.losses)
    for name, positions, least, below in (
        ("holder", rows.holder, NOBODY, members),
        ("receiver", rows.receiver, NOBODY, members),
        ("loss", rows.loss, NOBODY, losses),
        ("member", pairs.member, NOBODY, members),
        ("resource", pairs.resource, 0, names),
    ):
        known = positions.astype(np.int32, casting="same_kind", copy=False)
        if known.size and not least <= known.min() <= known.max() < below:
            raise ValueError(f"{name} of the state: positions from {least} to {below - 1} exist")
    if rows.names == group.resources and state.members.ids == group.member_ids:
        return state
    recalled = recall(group, state)
    return attrs.evolve(
        state,
        members=RememberedMembers.of(group),
        resources=attrs.evolve(
            recalled.remembered, holder=recalled.holder, receiver=recalled.receiver
        ),
        pairs=pairs.renumbered(recalled.place_of[pairs.resource], recalled.number_of[pairs.member]),
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
