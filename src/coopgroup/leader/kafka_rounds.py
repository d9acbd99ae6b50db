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

from coopgroup.assignors.range.assignor import RangeAssignor
from coopgroup.assignors.round_robin import RoundRobinAssignor
from coopgroup.assignors.sticky.assignor import StickyAssignor
from coopgroup.errors import DecodeError
from coopgroup.leader.belief import Believed, believed_claims, remember_given
from coopgroup.leader.decision import decide_round, refused_round
from coopgroup.leader.request import NO_LAGS, TopicMetadata
from coopgroup.model import EMPTY, MemberClaim, ResourceSet, resolve_claims
from coopgroup.policies.eager import EagerPolicy
from coopgroup.policies.simple import SimplePolicy
from coopgroup.protocol import (
    KafkaAssignment,
    KafkaProtocol,
    decode_cooperative_generation,
    decode_sticky_user_data,
    decode_subscription,
    encode_kafka_assignment,
)
from coopgroup.telemetry import SubscriptionUnreadable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coopgroup.assignors.base import Assignor
    from coopgroup.leader.decision import RoundDecision
    from coopgroup.model.group_api import JoinedMember
    from coopgroup.policies.base import Policy, RoundContext
    from coopgroup.policies.state import PolicyState
    from coopgroup.protocol import Subscription
    from coopgroup.telemetry import Record

__all__ = ["lead_kafka_round"]

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
    protocol: KafkaProtocol,
    metadata: TopicMetadata | None,
    *,
    context: RoundContext,
    failure: str,
) -> RoundDecision:
    """Decide and encode a round.

    Args:
        members: from the answer to JoinGroup, in any order; a repeated member id counts once.
        protocol: protocol that the coordinator chose.
        metadata: existing resources; None if unknown. A cooperative round then moves nothing. An
            eager round, whose members own nothing, assigns the resources of the last round.
        context: circumstances of the round.
        failure: why there is no metadata, for the record.
    """
    rules = _RULES[protocol]
    by_id = {member.member_id: member for member in members}
    told, records = _read(by_id, protocol)
    # In an eager protocol the members have given up everything, and claims are preferences.
    believed = Believed(claims=told) if protocol.is_eager else believed_claims(told, context)
    claims = believed.claims
    if metadata is None and not protocol.is_eager:
        decided = _nothing_moved(claims, rules, context, failure)
    else:
        known = TopicMetadata(resources=_last_seen(context)) if metadata is None else metadata
        decided = decide_round(
            claims, known, NO_LAGS, assignor=rules.assignor, policy=rules.policy, context=context
        )
    shares = decided.group.by_member(np.asarray(decided.plan.assigned))
    if protocol.is_eager:
        believed = Believed(claims=tuple(attrs.evolve(one, owned=EMPTY) for one in claims))
    state = _with_round_to_come(decided, context)
    return attrs.evolve(
        decided,
        assignments=_encoded(decided, shares),
        state=remember_given(state, decided.group, believed, shares, context),
        records=(*records, *believed.records, *decided.records),
        refused=decided.refused or metadata is None,
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
    return EMPTY if state is None else state.known | state.granted


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


def _read(
    members: Mapping[str, JoinedMember], protocol: KafkaProtocol
) -> tuple[tuple[MemberClaim, ...], list[Record]]:
    claims: list[MemberClaim] = []
    records: list[Record] = []
    for member_id in sorted(members):
        member = members[member_id]
        try:
            claims.append(_claim(member, protocol))
        except DecodeError as error:
            claims.append(
                MemberClaim(
                    member_id=member_id,
                    topics=(),
                    instance_id=member.group_instance_id,
                    readable=False,
                )
            )
            records.append(SubscriptionUnreadable(member_id=member_id, reason=str(error)))
    return tuple(claims), records


def _claim(member: JoinedMember, protocol: KafkaProtocol) -> MemberClaim:
    subscription = decode_subscription(member.metadata, skips_rest=True)
    owned, generation = _owned(subscription, protocol)
    return MemberClaim(
        member_id=member.member_id,
        topics=subscription.topics,
        owned=owned,
        generation=generation,
        instance_id=member.group_instance_id,
        rack=subscription.rack,
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
