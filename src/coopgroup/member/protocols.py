"""Which protocols a member offers, what it says of itself in each, and how it reads the answer.

The one rule of this file: an eager protocol is offered with empty hands only. The group
coordinator chooses among what all members offer, and a member learns the choice when the round is
complete; under an eager protocol its partitions may be another one's by then. So a member that
holds something offers only such protocols under which it may hold on (KIP-429), and nothing that
others offer can lead to two owners.

Theory of operation. While a member that knows eager protocols only is in the group, the others'
join is refused with INCONSISTENT_GROUP_PROTOCOL, at once, for the coordinator compares what each
offers with what all others did. The member then gives up all that it holds and joins with all of
its protocols: that is an eager round, as Kafka's clients play it. Once the last such member is
gone the join is accepted, and the group goes on without anything being given up. No member has to
know which of the two it will be, or who is in the group.

Kafka's Java client follows another rule: a consumer with any eager assignor in its list is eager
until it is restarted with another list. Then everything is given up in each round until every
member has been restarted twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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

__all__ = ["offered_subscriptions", "offers_more_with_nothing", "read_assignment", "spoken"]


def spoken(config: MemberConfig) -> tuple[str, ...]:
    """Names of all protocols that a member can speak, most wanted first."""
    return config.protocols or (config.protocol_name,)


def offers_more_with_nothing(member: Member) -> bool:
    """Whether it would offer more protocols if it held nothing."""
    return bool(member.owned) and any(map(_is_eager, spoken(member.config)))


def offered_subscriptions(member: Member, now_ms: int) -> tuple[tuple[str, bytes], ...]:
    """What the next join offers: (name, subscription), most wanted first."""
    return tuple(
        (name, _subscription(member, name, now_ms))
        for name in spoken(member.config)
        if not member.owned or not _is_eager(name)
    )


def read_assignment(member: Member, content: bytes) -> Assignment:
    """Read what the leader says, in the protocol that the coordinator chose.

    Kafka's protocols have no list of revocations: what a member claimed and is not assigned it
    must stop, and then it rejoins by itself (KIP-429). If nothing of that is left, no round
    follows that it would have to begin.

    Raises:
        DecodeError: the bytes hold no assignment.
    """
    if kafka_protocol(member.protocol_chosen) is None:
        return decode_assignment(content, index_min=member.config.index_min, skips_rest=True)
    assigned = decode_kafka_assignment(content).assigned
    return Assignment(assigned=assigned, revoked=(member.owned - assigned) or None)


def _is_eager(name: str) -> bool:
    protocol = kafka_protocol(name)
    return protocol is not None and protocol.is_eager


def _subscription(member: Member, name: str, now_ms: int) -> bytes:
    return encode_subscription(
        Subscription(
            topics=member.topics,
            user_data=_user_data(member, kafka_protocol(name), now_ms),
            owned=member.owned,
            generation=member.claim_generation,
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
            return with_mark(encode_cooperative_generation(member.claim_generation))
        case KafkaProtocol.STICKY:
            previous = StickyUserData(
                previous=member.last_assigned, generation=member.claim_generation
            )
            return with_mark(encode_sticky_user_data(previous))
        case KafkaProtocol.RANGE | KafkaProtocol.ROUND_ROBIN:
            return with_mark(b"")
