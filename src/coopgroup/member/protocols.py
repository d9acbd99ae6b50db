"""Which protocols a member offers, what it says of itself in each, and how it reads the answer.

The one rule of this file: a protocol is offered only by who holds nothing that its leaders may give
away. The group coordinator chooses among what all members offer, and a member learns the choice
when the round is complete; its partitions may be another one's by then. So an eager protocol is
offered with empty hands, the cooperative one by who holds only what it subscribes to (leaders pass
over the claims of others, and Kafka's clients give such partitions up before they join, KIP-429),
and ours always. Then nothing that others offer can lead to two owners.

Theory of operation. While a member that knows eager protocols only is in the group, the others'
join is refused with INCONSISTENT_GROUP_PROTOCOL, at once, for the coordinator compares what each
offers with what all others did. The member then gives up what stands in the way, which is all that
it holds, and joins with all of its protocols: an eager round, as Kafka's clients play it. Once the
last such member is gone the join is accepted, and the group goes on without anything being given
up. No member has to know which of the two it will be, or who is in the group.

Kafka's Java client follows another rule: a consumer with any eager assignor in its list is eager
until it is restarted with another list. Then everything is given up in each round until every
member has been restarted twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coopgroup.model import EMPTY
from coopgroup.protocol import (
    Assignment,
    KafkaProtocol,
    StickyUserData,
    Subscription,
    UserData,
    decode_assignment,
    decode_kafka_assignment,
    encode_cooperative_generation,
    encode_sticky_user_data,
    encode_subscription,
    encode_user_data,
    kafka_protocol,
    with_mark,
)

if TYPE_CHECKING:
    from coopgroup.member.member import Member, MemberConfig
    from coopgroup.model import ResourceSet

__all__ = [
    "in_the_way",
    "joins_in_vain",
    "offered_subscriptions",
    "offers_more",
    "read_assignment",
    "spoken",
]


def spoken(config: MemberConfig) -> tuple[str, ...]:
    """Names of all protocols that a member can speak, most wanted first."""
    return config.protocols or (config.protocol_name,)


def joins_in_vain(member: Member) -> bool:
    """Whether a join could bring it nothing but harm: nothing to hold, nothing to give up.

    A leader of another client may assign to a member without topics what it never asked for
    (Kafka's Java client does, if that member comes first), so such a member stays out of the group.
    """
    return not member.topics and not member.owned and len(spoken(member.config)) > 1


def in_the_way(member: Member) -> ResourceSet:
    """The least that it must give up to offer more protocols; empty where it offers all."""
    needed = (_given_away(member, name) for name in spoken(member.config))
    return min(filter(None, needed), key=len, default=EMPTY)


def offers_more(member: Member) -> bool:
    """Return whether the next join offers a protocol that the last one did not."""
    return any(
        name not in member.joined_protocols and not _given_away(member, name)
        for name in spoken(member.config)
    )


def offered_subscriptions(member: Member, now_ms: int) -> tuple[tuple[str, bytes], ...]:
    """What the next join offers: (name, subscription), most wanted first."""
    return tuple(
        (name, _subscription(member, name, now_ms))
        for name in spoken(member.config)
        if not _given_away(member, name)
    )


def read_assignment(member: Member, content: bytes, *, is_first: bool = False) -> Assignment:
    """Read what the leader says, in the protocol that the coordinator chose.

    Kafka's protocols have no list of revocations: what a member claimed and is not assigned it
    must stop, and then it rejoins by itself (KIP-429). If nothing of that is left, no round
    follows that it would have to begin. No bytes at all are for a member that the leader has left
    out, as librdkafka does where it has nothing for it.

    Args:
        member: the member that synced.
        content: the assignment as the coordinator sent it.
        is_first: whether this is the first assignment of the present membership.

    Raises:
        DecodeError: the bytes hold no assignment.
    """
    if kafka_protocol(member.protocol_chosen) is None:
        return decode_assignment(content, index_min=member.config.index_min, skips_rest=True)
    assigned = decode_kafka_assignment(content).assigned if content else EMPTY
    revoked = (member.owned - assigned) or None
    if revoked is None and is_first and _may_owe_a_round(member, assigned):
        revoked = EMPTY
    return Assignment(assigned=assigned, revoked=revoked)


def _may_owe_a_round(member: Member, assigned: ResourceSet) -> bool:
    """Return whether an earlier membership may have ended before it rejoined for a revocation.

    The process may have died, or the application may have stalled: a static member that lost all
    joins with its instance id, and the coordinator gives it the stored assignment without a round.
    The partitions that it had to revoke then have no owner. Our own assignment names them; in
    Kafka's cooperative protocol only a round finds them.
    """
    return (
        kafka_protocol(member.protocol_chosen) is KafkaProtocol.COOPERATIVE_STICKY
        and (member.config.instance_id is not None or member.config.keeps_identity)
        and bool(assigned)
        and not member.owned
    )


def _given_away(member: Member, name: str) -> ResourceSet:
    """What a leader of a protocol may give to others though the member claims it."""
    protocol = kafka_protocol(name)
    if protocol is None or not member.owned:
        return EMPTY
    if protocol.is_eager:
        return member.owned
    return member.owned - member.owned.restrict_names(member.topics)


# Kafka's clients claim in the generation that they joined, though their sync of it may have failed:
# what they claimed in that join nobody else was given (KAFKA-14016). Leaders before 3.5 or so pass
# over all claims of an earlier one.
def _subscription(member: Member, name: str, now_ms: int) -> bytes:
    protocol = kafka_protocol(name)
    return encode_subscription(
        Subscription(
            topics=member.topics,
            user_data=_user_data(member, protocol, now_ms),
            owned=member.owned,
            generation=member.claim_generation if protocol is None else member.generation,
            rack=member.config.rack,
        ),
        index_min=member.config.index_min,
    )


def _user_data(member: Member, protocol: KafkaProtocol | None, now_ms: int) -> bytes:
    match protocol:
        case None:
            return encode_user_data(
                UserData(
                    remaining_delay_ms=member.remaining_delay_ms(now_ms),
                    remaining_loss_ms=member.remaining_loss_ms(now_ms),
                    consumption_rate_per_s=member.consumption_rate_per_s,
                    catalogue_version=member.catalogue_version,
                )
            )
        case KafkaProtocol.COOPERATIVE_STICKY:
            return with_mark(encode_cooperative_generation(member.generation))
        case KafkaProtocol.STICKY:
            previous = StickyUserData(
                previous=member.last_assigned, generation=member.claim_generation
            )
            return with_mark(encode_sticky_user_data(previous))
        case KafkaProtocol.RANGE | KafkaProtocol.ROUND_ROBIN:
            return with_mark(b"")
