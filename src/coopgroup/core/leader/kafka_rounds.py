"""Lead a round in a protocol of Kafka's own clients.

The answer follows the rules and the format of Kafka's clients. Every member gets bytes, because
clients fail on an empty answer. The assignor is the protocol's, whatever the group's own assignor
is: other clients would use it as leaders as well, and a second assignor would move partitions at
each change of leaders.

- cooperative-sticky (KIP-429): a resource is not assigned while another member claims it. A member
  that is not assigned a claimed resource stops it and rejoins, and then the resource is free.
- range, roundrobin, sticky: all resources are assigned, because members have given up everything.
  The last assignment that a member of `sticky` reports is only a preference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs
import numpy as np
from attrs import frozen

from coopgroup.core.assignors.range import RangeAssignor
from coopgroup.core.assignors.round_robin import RoundRobinAssignor
from coopgroup.core.assignors.sticky.assignor import StickyAssignor
from coopgroup.core.leader.belief import Believed, believed_claims, remember_given
from coopgroup.core.leader.decision import decide_round, refused_round
from coopgroup.core.leader.request import known_claims
from coopgroup.core.model import EMPTY, NOBODY, MemberClaim, ResourceSet, resolve_claims
from coopgroup.core.model.group import split_by_member
from coopgroup.core.model.lags import NO_LAGS
from coopgroup.core.model.metadata import TopicMetadata
from coopgroup.core.policies.built_in import EagerPolicy, SimplePolicy
from coopgroup.core.protocol.kafka_assignment import encode_kafka_assignment
from coopgroup.core.protocol.kafka_protocols import KafkaProtocol
from coopgroup.core.protocol.sticky_user_data import (
    decode_cooperative_generation,
    decode_sticky_user_data,
)
from coopgroup.core.protocol.values import KafkaAssignment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coopgroup.core.assignors.base import Assignor
    from coopgroup.core.leader.decision import RoundDecision
    from coopgroup.core.leader.request import RoundRequest
    from coopgroup.core.model.group_api import JoinedMember
    from coopgroup.core.policies.memory import PolicyState
    from coopgroup.core.policies.policy import Policy, RoundContext
    from coopgroup.core.protocol.values import Subscription

# All versions have the same fields, and every client reads version 0.
_WRITTEN_VERSION: Final = 0
# From version 2 on a subscription contains the generation of its claims (KIP-792).
_FIRST_WITH_GENERATION: Final = 2
# No member rejoins by itself for resources that an unreadable member may own.
_AGAIN_AFTER_MS: Final = 1_000


@frozen
class _Rules:
    """Rules of a protocol."""

    assignor: Assignor
    policy: Policy


_RULES: Final[Mapping[KafkaProtocol, _Rules]] = {
    KafkaProtocol.COOPERATIVE_STICKY: _Rules(StickyAssignor(), SimplePolicy()),
    KafkaProtocol.RANGE: _Rules(RangeAssignor(), EagerPolicy()),
    KafkaProtocol.ROUND_ROBIN: _Rules(RoundRobinAssignor(), EagerPolicy()),
    KafkaProtocol.STICKY: _Rules(StickyAssignor(), EagerPolicy()),
}


def lead_kafka_round(
    members: Sequence[JoinedMember],
    request: RoundRequest | None,
    protocol: KafkaProtocol,
    metadata: TopicMetadata | None,
    *,
    context: RoundContext,
    failure: str,
) -> RoundDecision:
    """Decide and encode a round.

    Args:
        members: from the answer to JoinGroup, in any order; a repeated member id counts once.
        request: their subscriptions; None if they were not read in time. Each member then keeps
            what this leader gave it in the last round, because a second reading takes as long.
        protocol: protocol that the coordinator chose.
        metadata: existing resources; None if unknown. A cooperative round then moves nothing. An
            eager round, whose members own nothing, assigns the resources of the last round.
        context: circumstances of the round.
        failure: why there is no metadata, for the record.
    """
    rules = _RULES[protocol]
    records = () if request is None else request.records
    claims = _remembered(members, context) if request is None else _claims(request, protocol)
    # In an eager protocol the members have given up everything, and claims are preferences.
    unjudged = protocol.is_eager or request is None
    believed = Believed(claims=claims) if unjudged else believed_claims(claims, context)
    claims = believed.claims
    if request is None or (metadata is None and not protocol.is_eager):
        decided = _nothing_moved(claims, rules, context, failure)
    else:
        known = TopicMetadata(resources=_last_seen(context)) if metadata is None else metadata
        claims = known_claims(claims, known.resources, context.state)
        group = resolve_claims(claims, known.resources, known.racks, known.weights)
        decided = decide_round(
            group, NO_LAGS, assignor=rules.assignor, policy=rules.policy, context=context
        )
    shares = decided.group.by_member(np.asarray(decided.plan.assigned))
    if protocol.is_eager:
        believed = Believed(claims=tuple(attrs.evolve(one, owned=EMPTY) for one in claims))
    state = _with_round_to_come(decided, context)
    state = (
        attrs.evolve(state, given=())
        if request is None  # nobody was heard
        else remember_given(state, decided.group, believed, shares, context)
    )
    return attrs.evolve(
        decided,
        assignments=_encoded(decided, shares),
        state=state,
        records=(*records, *believed.records, *decided.records),
        refused=decided.refused or request is None or metadata is None,
    )


def _nothing_moved(
    claims: Sequence[MemberClaim], rules: _Rules, context: RoundContext, failure: str
) -> RoundDecision:
    existing = ResourceSet.union_all([_last_seen(context), *(claim.owned for claim in claims)])
    group = resolve_claims(claims, existing)
    return refused_round(
        group, (failure,), assignor=rules.assignor, policy=rules.policy, context=context
    )


def _last_seen(context: RoundContext) -> ResourceSet:
    state = context.state
    return EMPTY if state is None else state.resources.owned


def _with_round_to_come(decided: RoundDecision, context: RoundContext) -> PolicyState:
    """Return the memory with the time of a further round that only the leader can start."""
    withheld = decided.plan.waiting & ~decided.group.claimed()
    if not withheld.any():
        return decided.state
    return attrs.evolve(decided.state, next_round_ms=context.now_ms + _AGAIN_AFTER_MS)


def _encoded(
    decided: RoundDecision, shares: Sequence[ResourceSet]
) -> tuple[tuple[str, bytes], ...]:
    return tuple(
        (
            member_id,
            encode_kafka_assignment(KafkaAssignment(assigned=assigned), _WRITTEN_VERSION),
        )
        for member_id, assigned in zip(decided.group.member_ids, shares, strict=True)
    )


# --- what members say ---------------------------------------------------------------------------


def _claims(request: RoundRequest, protocol: KafkaProtocol) -> tuple[MemberClaim, ...]:
    """Return the claims as the protocol understands the members' own words."""
    return tuple(
        claim if said is None else _claim(claim, said, protocol)
        for claim, said in zip(request.claims, request.subscriptions, strict=True)
    )


def _claim(claim: MemberClaim, said: Subscription, protocol: KafkaProtocol) -> MemberClaim:
    owned, generation = _owned(said, protocol)
    return MemberClaim(
        member_id=claim.member_id,
        topics=said.topics,
        owned=owned,
        generation=generation,
        instance_id=claim.instance_id,
        rack=claim.rack,
    )


def _remembered(members: Sequence[JoinedMember], context: RoundContext) -> tuple[MemberClaim, ...]:
    """Return as the claim of each member what this leader gave it in the last round.

    If its own SyncGroup failed, the members may have stayed in the round before.
    """
    state = context.state
    shares: Mapping[str, ResourceSet] = {}
    if state is not None and context.generation > state.generation:
        holder, ids = state.resources.holder, state.members.ids
        order = np.argsort(holder, kind="stable")
        order = order[holder[order] != NOBODY]
        split = split_by_member(state.resources.names, holder[order], order, len(ids))
        shares = dict(zip(ids, split, strict=True))
    return tuple(
        MemberClaim(
            member_id=member_id,
            topics=owned.names,
            owned=owned,
            generation=context.generation,
            instance_id=member.group_instance_id,
        )
        for member_id, member in sorted({member.member_id: member for member in members}.items())
        for owned in (shares.get(member_id, EMPTY),)
    )


def _owned(subscription: Subscription, protocol: KafkaProtocol) -> tuple[ResourceSet, int]:
    """Return a member's claims and their generation; only a preference in `sticky`."""
    match protocol:
        case KafkaProtocol.COOPERATIVE_STICKY if subscription.version >= _FIRST_WITH_GENERATION:
            return _of_topics(subscription), subscription.generation
        case KafkaProtocol.COOPERATIVE_STICKY:
            return _of_topics(subscription), decode_cooperative_generation(subscription.user_data)
        case KafkaProtocol.STICKY:
            told = decode_sticky_user_data(subscription.user_data)
            return told.previous, told.generation
        case KafkaProtocol.RANGE | KafkaProtocol.ROUND_ROBIN:
            return EMPTY, subscription.generation


def _of_topics(subscription: Subscription) -> ResourceSet:
    """Return the claims of subscribed topics; clients give up others before they join (KIP-429)."""
    return subscription.owned.restrict_names(subscription.topics)
