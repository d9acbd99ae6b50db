"""The protocols that a member offers, its subscription in each, and how it reads the assignment.

Rule of this file: a member offers a protocol only if it owns no resource that the protocol's
leaders may give away. The group coordinator chooses a protocol that all members offer. A member
learns the choice when the round is complete. By then another member may own its partitions. So a
member offers an eager protocol only if it owns no partition. It offers the cooperative protocol if
it owns only partitions of subscribed topics. Leaders ignore other claims, and Kafka's clients give
up other partitions before they join (KIP-429). It always offers coopgroup's own protocol. Then no
offer of another member can lead to two owners.

Theory of operation. While the group has a member that knows only eager protocols, the coordinator
refuses the join of the other members immediately, with INCONSISTENT_GROUP_PROTOCOL. The coordinator
compares each offer with those of all members. The refused member then gives up the resources that
prevent an offer, which are all it owns. It joins with all of its protocols: an eager round, as
Kafka's clients do it. After the last eager member has left, the join is accepted, and the group
continues without these revocations. No member has to know in advance which case applies, or which
members are in the group.

Kafka's Java client follows another rule: a consumer with any eager assignor in its list is eager
until it is restarted with another list. Then each round revokes all partitions until every member
has been restarted twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coopgroup.core.model import EMPTY
from coopgroup.core.protocol.assignment import decode_assignment
from coopgroup.core.protocol.kafka_assignment import decode_kafka_assignment, is_kafka_assignment
from coopgroup.core.protocol.kafka_protocols import KafkaProtocol, kafka_protocol, with_signature
from coopgroup.core.protocol.sticky_user_data import (
    StickyUserData,
    encode_cooperative_generation,
    encode_sticky_user_data,
)
from coopgroup.core.protocol.subscription import encode_subscription
from coopgroup.core.protocol.user_data import encode_user_data
from coopgroup.core.protocol.values import Assignment, Subscription, UserData
from coopgroup.errors import DecodeError

if TYPE_CHECKING:
    from coopgroup.core.member.config import MemberConfig
    from coopgroup.core.member.member import Member
    from coopgroup.core.model import ResourceSet


def spoken(config: MemberConfig) -> tuple[str, ...]:
    """Return the names of all protocols that a member can speak, the preferred one first."""
    return config.protocols or (config.protocol_name,)


def joins_in_vain(member: Member) -> bool:
    """Return whether a join would only harm: the member has no topics and no owned resources.

    A leader of another client may assign partitions to a member without topics. (Kafka's Java
    client does, if that member comes first.) So such a member stays out of the group.
    """
    return not member.next_join.topics and not member.owned and len(spoken(member.config)) > 1


def in_the_way(member: Member) -> ResourceSet:
    """Return the fewest resources to give up for one more protocol; empty if all are offered."""
    needed = (_given_away(member, name) for name in spoken(member.config))
    return min(filter(None, needed), key=len, default=EMPTY)


def offers_more(member: Member) -> bool:
    """Return whether the next join offers a protocol that the last one did not."""
    return any(
        name not in member.last_join.protocols and not _given_away(member, name)
        for name in spoken(member.config)
    )


def offered_subscriptions(member: Member, now_ms: int) -> tuple[tuple[str, bytes], ...]:
    """Return the subscriptions for the next join: (name, subscription), the preferred one first."""
    return tuple(
        (name, _subscription(member, name, now_ms))
        for name in spoken(member.config)
        if not _given_away(member, name)
    )


def read_assignment(
    member: Member, content: bytes, *, is_first: bool = False
) -> tuple[Assignment, bool]:
    """Decode an assignment, and return also whether the group coordinator wrote it.

    It writes the assignments while the group has members of KIP-848, in Kafka's format. It does not
    know the protocol whose name it uses: the first one of the member.

    Kafka's protocols have no list of revocations. A member must stop each partition that it claimed
    and was not assigned, and then it rejoins by itself (KIP-429). If no such partition is left, it
    need not begin a round. The leader sends no bytes to a member that it left out, as librdkafka
    does if it has no partition for the member.

    Args:
        member: the member that synced.
        content: the assignment as the coordinator sent it.
        is_first: whether this is the first assignment of the current membership.

    Raises:
        DecodeError: the bytes are not an assignment.
    """
    round_ = member.round
    if not round_.by_broker and kafka_protocol(round_.protocol) is None:
        try:
            own = decode_assignment(
                content,
                index_min=member.config.index_min,
                skips_rest=True,
                has_catalogue=not member.config.shares_partitions,
            )
        except DecodeError:
            # A member that returns by its kept identity syncs without a join. So only the bytes
            # tell who wrote them.
            if not is_kafka_assignment(content):
                raise
            by_broker = True
        else:
            return own, False
    else:
        by_broker = round_.by_broker
    assigned = decode_kafka_assignment(content).assigned if content else EMPTY
    revoked = (member.owned - assigned) or None
    if revoked is None and not by_broker and is_first and _may_owe_a_round(member, assigned):
        revoked = EMPTY
    return Assignment(assigned=assigned, revoked=revoked), by_broker


def _may_owe_a_round(member: Member, assigned: ResourceSet) -> bool:
    """Return whether an earlier membership may have ended before it rejoined for a revocation.

    The process may have died, or the application may have stalled. A static member that lost all
    resources joins with its instance id, and the coordinator returns the stored assignment without
    a round. The partitions that it had to revoke then have no owner. coopgroup's own assignment
    names them; in Kafka's cooperative protocol only a round finds them.
    """
    return (
        kafka_protocol(member.round.protocol) is KafkaProtocol.COOPERATIVE_STICKY
        and (member.config.instance_id is not None or member.config.keeps_identity)
        and bool(assigned)
        and not member.owned
    )


def _given_away(member: Member, name: str) -> ResourceSet:
    """Return the claimed resources that a leader of this protocol may give to other members."""
    protocol = kafka_protocol(name)
    if protocol is None or not member.owned:
        return EMPTY
    if protocol.is_eager:
        return member.owned
    return member.owned - member.owned.restrict_names(member.next_join.topics)


# Kafka's clients claim in the generation that they joined, even if their sync failed. No other
# member was given the partitions that they claimed in that join (KAFKA-14016). Leaders before about
# 3.5 ignore all claims of an earlier generation.
def _subscription(member: Member, name: str, now_ms: int) -> bytes:
    protocol = kafka_protocol(name)
    return encode_subscription(
        Subscription(
            topics=member.next_join.topics,
            user_data=_user_data(member, protocol, now_ms),
            owned=member.owned,
            generation=member.claim_generation if protocol is None else member.generation,
            rack=member.config.rack,
        ),
        index_min=member.config.index_min,
    )


def _user_data(member: Member, protocol: KafkaProtocol | None, now_ms: int) -> bytes:
    warmups = member.next_join.warmups
    match protocol:
        case None:
            return encode_user_data(
                UserData(
                    rejoin_in_ms=member.delay.rejoin_in_ms(now_ms),
                    loss_ends_in_ms=member.delay.loss_ends_in_ms(now_ms),
                    consumption_rate_per_s=member.next_join.consumption_rate_per_s,
                    catalogue_version=member.next_join.catalogue_version,
                    warm=None if warmups is None else warmups.warm,
                    host=None if warmups is None else member.config.host,
                    declined=member.next_join.declined,
                    declined_warmups=EMPTY if warmups is None else warmups.failed,
                    hands_over=member.next_join.hands_over,
                    traits=member.config.traits,
                    choices=member.config.choices,
                ),
                index_min=member.config.index_min,
            )
        case KafkaProtocol.COOPERATIVE_STICKY:
            return with_signature(encode_cooperative_generation(member.generation))
        case KafkaProtocol.STICKY:
            previous = StickyUserData(
                previous=member.last_assignment.resources, generation=member.claim_generation
            )
            return with_signature(encode_sticky_user_data(previous))
        case KafkaProtocol.RANGE | KafkaProtocol.ROUND_ROBIN:
            return with_signature(b"")
