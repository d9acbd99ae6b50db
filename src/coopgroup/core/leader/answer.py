"""A leader's whole round: from decoded subscriptions to the bytes for every member.

Every member gets an answer. `assigned` is the complete set after the round and never null, because
Kafka's own tools read it. `revoked` is null for no member if a round follows immediately. Otherwise
it is null for all members, except those that are slow to stop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import numpy as np

from coopgroup.core.leader.belief import Believed, believed_request, remember_given
from coopgroup.core.leader.decision import RoundDecision, decide_round, refused_round
from coopgroup.core.leader.differing import differing
from coopgroup.core.leader.request import RoundRequest, known_claims
from coopgroup.core.model import EMPTY, NOBODY, ResourceSet, resolve_claims
from coopgroup.core.model.group import split_by_member
from coopgroup.core.model.metadata import TopicMetadata
from coopgroup.core.model.plan import revoked_by_member, revoked_claims
from coopgroup.core.protocol.assignment import encode_assignment
from coopgroup.core.protocol.digests import names_digest, resources_digest
from coopgroup.core.protocol.values import Assignment

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from coopgroup.core.assignors.base import Assignor
    from coopgroup.core.model import GroupSnapshot, MemberClaim, RoundPlan
    from coopgroup.core.model.lags import Lags
    from coopgroup.core.model.resource_set import BoolArray
    from coopgroup.core.policies.policy import Policy, RoundContext


def lead(
    request: RoundRequest,
    metadata: TopicMetadata,
    lags: Lags,
    *,
    assignor: Assignor,
    policy: Policy,
    context: RoundContext,
) -> RoundDecision:
    """Decide and encode a round.

    Args:
        request: the members' subscriptions.
        metadata: existing resources of `request.topics`.
        lags: lags for assignors that need them.
        assignor: decides where.
        policy: decides when.
        context: circumstances of the round.
    """
    request, believed = believed_request(request, context)
    request = _of_known_topics(request, metadata.resources, context)
    group = resolve_claims(request.claims, metadata.resources, metadata.racks, metadata.weights)
    decided = decide_round(group, lags, assignor=assignor, policy=policy, context=context)
    return _encoded(request, decided, context, metadata.resources, believed)


def _of_known_topics(
    request: RoundRequest, existing: ResourceSet, context: RoundContext
) -> RoundRequest:
    claims = known_claims(request.claims, existing, context.state)
    same = [claim is before for claim, before in zip(claims, request.claims, strict=True)]
    if all(same):
        return request
    wires = [wire if kept else None for wire, kept in zip(request.owned_wire, same, strict=True)]
    return attrs.evolve(request, claims=claims, owned_wire=tuple(wires))


def fallback_round(
    request: RoundRequest,
    metadata: TopicMetadata | None,
    *,
    assignor: Assignor,
    policy: Policy,
    context: RoundContext,
    reason: str,
) -> RoundDecision:
    """Encode the round that moves nothing, for a host that cannot wait for a better one.

    Args:
        request: the members' subscriptions.
        metadata: existing resources; None if the look-up failed. All claimed and remembered
            resources then count as existing.
        assignor: was not asked, or did not answer in time.
        policy: the same.
        context: circumstances of the round.
        reason: why the round moves nothing, one sentence.
    """
    shared = None if metadata is None else metadata.resources
    request, believed = believed_request(request, context)
    if metadata is None:
        metadata = TopicMetadata(resources=_last_seen(request, context))
    group = resolve_claims(request.claims, metadata.resources, metadata.racks)
    decided = refused_round(group, (reason,), assignor=assignor, policy=policy, context=context)
    return _encoded(request, decided, context, shared, believed)


def member_assignments(
    decided: RoundDecision, claims: Sequence[MemberClaim] = ()
) -> tuple[Assignment, ...]:
    """Return the assignment of each member, in the order of the group's members.

    Args:
        decided: the round.
        claims: input of the decision, if at hand. A member that is assigned exactly what it claims
            gets the same set object.
    """
    group, plan = decided.group, decided.plan
    revoked: Sequence[ResourceSet | None] = (None,) * len(group.members)
    if plan.follow_up:
        revoked = revoked_by_member(group, plan.assigned)
    elif plan.stopping is not None and plan.stopping.any():
        revoked = tuple(stop or None for stop in revoked_by_member(group, plan.assigned))
    return tuple(
        Assignment(
            assigned=assigned,
            revoked=stopped,
            rejoin_in_ms=plan.rejoin_in_ms,
            loss_ends_in_ms=plan.loss_ends_in_ms,
            warmups=warmups,
        )
        for assigned, stopped, warmups in zip(
            _assigned(group, plan, claims), revoked, _warmups(group, plan), strict=True
        )
    )


def _warmups(group: GroupSnapshot, plan: RoundPlan) -> Sequence[ResourceSet]:
    """Return the warm-ups of each member."""
    if not plan.warmup_members.size:
        return (EMPTY,) * len(group.members)
    order = np.argsort(plan.warmup_members, kind="stable")
    return split_by_member(
        group.resources,
        plan.warmup_members[order],
        plan.warmup_resources[order],
        len(group.members),
    )


def _assigned(
    group: GroupSnapshot, plan: RoundPlan, claims: Sequence[MemberClaim]
) -> Sequence[ResourceSet]:
    """Return each member's resources after the round; sets are built only for changed members."""
    if len(claims) != len(group.members):
        return group.by_member(plan.assigned)
    changed = _changed(group, plan)
    held = (plan.assigned != NOBODY).nonzero()[0]
    held = held[changed[plan.assigned[held]]]
    order = held[np.argsort(plan.assigned[held], kind="stable")]
    sets = [claim.owned for claim in claims]
    numbers = changed.nonzero()[0]
    fresh = split_by_member(
        group.resources,
        np.searchsorted(numbers, plan.assigned[order]).astype(np.int32),
        order,
        numbers.size,
    )
    for number, one in zip(numbers.tolist(), fresh, strict=True):
        sets[number] = one
    return sets


def _changed(group: GroupSnapshot, plan: RoundPlan) -> BoolArray:
    """Return which members are assigned something else than they claim: bool (M,)."""
    members = len(group.members)
    held = np.bincount(plan.assigned[plan.assigned != NOBODY], minlength=members)
    claimed = np.bincount(group.claim_members, minlength=members)
    changed: BoolArray = held != claimed
    changed[group.claim_members[revoked_claims(group, plan.assigned)]] = True
    return changed


def _last_seen(request: RoundRequest, context: RoundContext) -> ResourceSet:
    seen = [claim.owned for claim in request.claims]
    if context.state is not None:
        seen.append(context.state.resources.owned)
    return ResourceSet.union_all(seen)


def _encoded(
    request: RoundRequest,
    decided: RoundDecision,
    context: RoundContext,
    shared: ResourceSet | None,
    believed: Believed,
) -> RoundDecision:
    told = member_assignments(decided, request.claims)
    member_ids = decided.group.member_ids
    wires = _known_wire(request, told)
    if not (decided.plan.follow_up or decided.plan.rejoin_in_ms):
        # A refused round shared nothing: a leader that returns to it must start another round.
        known = None if decided.refused else shared
        told = _with_digests(told, request, context.leader_id, known)
    messages = [
        encode_assignment(assignment, index_min=request.index_min, assigned_wire=wire)
        for assignment, wire in zip(told, wires, strict=True)
    ]
    return attrs.evolve(
        decided,
        assignments=tuple(zip(member_ids, messages, strict=True)),
        state=remember_given(
            decided.state, decided.group, believed, [one.assigned for one in told], context
        ),
        records=(
            *request.records,
            *believed.records,
            *differing(request.claims, context.leader_id),
            *decided.records,
        ),
    )


def _with_digests(
    told: Sequence[Assignment], request: RoundRequest, leader_id: str, shared: ResourceSet | None
) -> tuple[Assignment, ...]:
    """Add digests for static members to the last assignments of a rebalance."""

    def noted(assignment: Assignment, claim: MemberClaim, topics: Sequence[str]) -> Assignment:
        if claim.instance_id is None or not claim.readable:
            return assignment
        known = shared if claim.member_id == leader_id else None
        return attrs.evolve(
            assignment,
            topics_digest=names_digest(topics),
            shared_digest=None if known is None else resources_digest(known),
        )

    rows = zip(told, request.claims, request.joined_topics, strict=True)
    return tuple(noted(*row) for row in rows)


def _known_wire(request: RoundRequest, told: Sequence[Assignment]) -> Iterator[bytes | None]:
    """Yield the bytes of each member's assigned resources, if its own subscription has them."""
    if len(request.owned_wire) != len(told):
        return iter((None,) * len(told))
    return (
        wire if assignment.assigned is claim.owned else None
        for assignment, claim, wire in zip(told, request.claims, request.owned_wire, strict=True)
    )
