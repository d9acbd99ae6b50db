"""Ignore false claims.

The group protocol has no signatures: a member can claim partitions that it does not own. All rules
against false claims are in this file. `resolve_claims` decides between the remaining claims.

1. A claim of this round's generation, or of a later one, loses against all others. Only a group
   coordinator that was loaded from an older log repeats generations. Then such a claim is true:
   members have completed rounds that the leader missed. A coordinator that fails over before the
   assignments repeats the generation, too. Clients of Kafka's cooperative protocol claim in the
   generation that they joined (KAFKA-14016). The last generation that the leader completed or led
   is no such case: it has been.
2. A leader that led the last round knows what each member may own: the assigned resources, and
   those that it claimed and had to stop. Other claims do not count. If the leader has led rounds
   that it did not complete, perhaps no member has, so a member may also own what it may have owned
   before them.
   Exception: a static member keeps its place even if it misses rounds. Its late join claims what
   it owned before them. A member whose last subscription was unreadable may own what it may have
   owned before. If the leader does not know that, the member may own all that no other member owned
   in the last round.
3. A member that had to stop a resource may still be working, so its claim counts until the member
   gives it up. Exception: the member was never known to own the resource. It claimed the resource
   together with another member, against a newer claim, or without a subscription and without
   handing over. Such a claim counts for three times the leader's `max.poll.interval.ms`, in which
   any honest member gives it up.

A leader without memory believes more: any claim may be true.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import attrs
import numpy as np
from attrs import frozen

from coopgroup.core.model import EMPTY, NOBODY, MemberClaim, ResourceSet
from coopgroup.core.model.group import NO_GENERATION
from coopgroup.core.policies.memory import Given, PolicyState, Revoked
from coopgroup.core.telemetry.records import ClaimRefused

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from coopgroup.core.leader.request import RoundRequest
    from coopgroup.core.model import GroupSnapshot
    from coopgroup.core.policies.policy import RoundContext

__all__ = ["Believed", "believed_claims", "believed_request", "remember_given"]


@frozen(kw_only=True)
class Believed:
    """The claims that count.

    Attributes:
        claims: all members with their claims, in the given order.
        liars: member ids of those whose claims do not all count.
        records: a record for each of them that the leader believed in the last round.
    """

    claims: tuple[MemberClaim, ...]
    liars: frozenset[str] = frozenset()
    records: tuple[ClaimRefused, ...] = ()


def believed_claims(claims: Iterable[MemberClaim], context: RoundContext) -> Believed:
    """Return the claims without those that do not count."""
    last = _LastRound.of(context)
    kept: list[MemberClaim] = []
    refused: list[ClaimRefused] = []
    for claim in claims:
        owned, reason = last.believed(claim)
        if reason:
            count = len(claim.owned) - len(owned)
            refused.append(ClaimRefused(member_id=claim.member_id, count=count, reason=reason))
        if not last.has_been(claim):
            kept.append(attrs.evolve(claim, owned=owned, generation=NO_GENERATION))
        else:
            kept.append(claim if owned is claim.owned else attrs.evolve(claim, owned=owned))
    known = () if context.state is None else context.state.given
    told = {given.member_id for given in known if given.is_refused}
    return Believed(
        claims=tuple(kept),
        liars=frozenset(one.member_id for one in refused),
        records=tuple(one for one in refused if one.member_id not in told),
    )


def believed_request(request: RoundRequest, context: RoundContext) -> tuple[RoundRequest, Believed]:
    """Return the request without the claims that do not count."""
    believed = believed_claims(request.claims, context)
    words = zip(request.owned_wire, request.claims, believed.claims, strict=False)  # or no wires
    wires = tuple(wire if after.owned is said.owned else None for wire, said, after in words)
    return attrs.evolve(request, claims=believed.claims, owned_wire=wires), believed


def remember_given(
    state: PolicyState,
    group: GroupSnapshot,
    believed: Believed,
    assigned: Sequence[ResourceSet],
    context: RoundContext,
) -> PolicyState:
    """Return the memory with what each member may own after the round.

    Args:
        state: memory of the round.
        group: the group, claims resolved.
        believed: the claims that count, in the order of the group's members.
        assigned: what the round assigned to each of them.
        context: circumstances of the round.
    """
    if context.round_generation is None:
        return attrs.evolve(state, given=())
    last = _LastRound.of(context)
    rightful: Sequence[ResourceSet] = ()
    granted: ResourceSet | None = None  # of a large group slow to unite
    given = []
    for number, (claim, share) in enumerate(zip(believed.claims, assigned, strict=True)):
        before, told = last.given_to(claim), claim.owned - share
        if not claim.readable:
            granted = ResourceSet.union_all([EMPTY, *assigned]) if granted is None else granted
            given.append(last.unheard(claim, before, granted))
            continue
        revoked: list[Revoked] = []
        for one in () if before is None else before.revoked:
            still = told & one.resources
            if still:
                revoked.append(attrs.evolve(one, resources=still))
                told -= still
        if told:
            rightful = rightful or _rightful(group)
            known = rightful[number] | (EMPTY if before is None else before.assigned or EMPTY)
            revoked += [
                Revoked(resources=part, since_ms=context.now_ms, is_owner=is_owner)
                for part, is_owner in ((told & known, True), (told - known, False))
                if part
            ]
        given.append(
            Given(
                member_id=claim.member_id,
                instance_id=claim.instance_id,
                assigned=share,
                revoked=tuple(revoked),
                earlier=last.owned_earlier(claim),
                is_refused=claim.member_id in believed.liars,
            )
        )
    return attrs.evolve(
        state,
        given=tuple(given),
        given_in=context.round_generation,
        given_before=tuple(last.given),
        given_before_in=context.generation,
    )


@frozen(kw_only=True, eq=False)
class _LastRound:
    """What a leader knows of the last round.

    Attributes:
        newest: newest generation that has certainly been; None if unknown.
        by_id: what each member may own; None if another member led a round since the last one that
            this leader completed.
        by_instance: the same of static members: one that was fenced has another member id.
    """

    context: RoundContext
    newest: int | None
    by_id: Mapping[str, Given] | None
    by_instance: Mapping[str, Given]

    @property
    def given(self) -> Iterable[Given]:
        return () if self.by_id is None else self.by_id.values()

    @classmethod
    def of(cls, context: RoundContext) -> _LastRound:
        state, generation = context.state, context.round_generation
        given: Sequence[Given] = ()
        led_in = NO_GENERATION if state is None else state.given_in
        # Equal to this round or later if the group coordinator repeats generations.
        if state is not None and generation is not None and led_in >= generation - 1:
            if led_in == context.generation:
                given = state.given
            elif state.given_before and state.given_before_in == context.generation:
                given = _either(state.given_before, state.given)
        return cls(
            context=context,
            newest=None if generation is None else max(generation - 1, context.generation, led_in),
            by_id={one.member_id: one for one in given} or None,
            by_instance={one.instance_id: one for one in given if one.instance_id is not None},
        )

    def given_to(self, claim: MemberClaim) -> Given | None:
        found = (self.by_id or {}).get(claim.member_id)
        if found is None and claim.instance_id is not None:
            return self.by_instance.get(claim.instance_id)
        return found

    def has_been(self, claim: MemberClaim) -> bool:
        return self.newest is None or claim.generation <= self.newest

    def believed(self, claim: MemberClaim) -> tuple[ResourceSet, str]:
        """Return the resources that a member may own, and the reason if it may not own all."""
        given = self.given_to(claim)
        possible = self._may_own(claim, given)
        if possible is None or claim.owned <= possible:
            return claim.owned, ""
        lapsed = given is not None and not all(self._counts(one) for one in given.revoked)
        return claim.owned & possible, "not given up" if lapsed else "never assigned"

    def _may_own(self, claim: MemberClaim, given: Given | None) -> ResourceSet | None:
        """Return what a member may own at most; None if that is unknown."""
        if self.by_id is None:
            return None
        if given is None:
            return EMPTY
        revoked = [one.resources for one in given.revoked if self._counts(one)]
        own = ResourceSet.union_all([given.assigned or EMPTY, *revoked])
        completed = claim.generation >= self.context.generation
        if given.assigned is None or (given.earlier is None and not completed):
            return own | (claim.owned - self.owned)
        return own if completed or given.earlier is None else own | given.earlier

    def unheard(self, claim: MemberClaim, before: Given | None, granted: ResourceSet) -> Given:
        """Return what an unreadable member may own: no more than before this round.

        Args:
            claim: the member.
            before: what it may have owned before; None if that is unknown.
            granted: what this round assigned to any member. A claim could tie with the new owner's.
        """
        if before is None:
            unknown = self.by_id is None
            before = Given(
                member_id=claim.member_id, instance_id=None, assigned=None if unknown else EMPTY
            )
        assigned, revoked = before.assigned, before.revoked
        return attrs.evolve(
            before,
            member_id=claim.member_id,
            instance_id=claim.instance_id,
            assigned=None if assigned is None else assigned - granted,
            revoked=tuple(
                attrs.evolve(one, resources=rest)
                for one in revoked
                if (rest := one.resources - granted)
            ),
        )

    @cached_property
    def owned(self) -> ResourceSet:
        """Everything that a member may own after the last round."""
        parts = ((one.assigned, *(each.resources for each in one.revoked)) for one in self.given)
        return ResourceSet.union_all([one for part in parts for one in part if one is not None])

    def owned_earlier(self, claim: MemberClaim) -> ResourceSet | None:
        """Return what a member may own if it missed this round, None if unknown.

        The group coordinator drops a dynamic member that misses a round.
        """
        generation = self.context.round_generation
        if claim.instance_id is None or claim.generation + 1 == generation:
            return EMPTY
        if self.by_id is None:
            return None
        before = self.given_to(claim)
        if before is None:
            return EMPTY
        if before.assigned is None or before.earlier is None:
            return None
        revoked = (one.resources for one in before.revoked)
        return ResourceSet.union_all([before.assigned, before.earlier, *revoked])

    def _counts(self, revoked: Revoked) -> bool:
        timeout_ms = self.context.rebalance_timeout_ms
        lapses_at_ms = None if timeout_ms is None else revoked.lapses_at_ms(timeout_ms)
        return lapses_at_ms is None or self.context.now_ms < lapses_at_ms


def _either(before: Sequence[Given], after: Sequence[Given]) -> list[Given]:
    """Return what each member may own if it has completed one of two rounds, whichever."""
    known = {one.member_id: one for one in before}
    return [
        one if (old := known.pop(one.member_id, None)) is None else _of_both(old, one)
        for one in after
    ] + list(known.values())


def _of_both(old: Given, new: Given) -> Given:
    revoked = {one.resources: one for one in (*new.revoked, *old.revoked)}
    return attrs.evolve(
        new,
        assigned=_sum(old.assigned, new.assigned),
        revoked=tuple(revoked.values()),
        earlier=_sum(old.earlier, new.earlier),
    )


def _sum(one: ResourceSet | None, other: ResourceSet | None) -> ResourceSet | None:
    return None if one is None or other is None else one | other


def _rightful(group: GroupSnapshot) -> Sequence[ResourceSet]:
    hands_over = np.array([*(one.hands_over for one in group.members), False], dtype=np.bool_)
    keeps = group.may_hold(group.owner) | hands_over[group.owner]  # the last one is of `NOBODY`
    return group.by_member(np.where(keeps, group.owner, NOBODY).astype(np.int32))
