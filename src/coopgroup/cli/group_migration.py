"""Decide the next step of a running group on its way to coopgroup, from its broker's description.

Pure functions. Obstacles come before steps. A broker reports the protocol of a group and its
members' subscriptions in this protocol. It does not report which other protocols members support.
Therefore members of coopgroup are recognised by a signature in their subscription, and the caller
says on which way the group is.

If the broker assigns (KIP-848), it reports no subscriptions. Then members of coopgroup look like
all others, and the advice is about the group protocol of each member.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from attrs import frozen

from coopgroup.errors import DecodeError
from coopgroup.kafka.rpc.consumer_groups import ConsumerGroup, ConsumerMember
from coopgroup.kafka.rpc.questions import DescribedGroup, DescribedMember
from coopgroup.protocol import KafkaProtocol, decode_subscription, has_signature, kafka_protocol

__all__ = ["Judgement", "judge", "judge_consumer_group"]

OWN: Final = "coopgroup"
_SHOWN_MAX: Final = 10
_CONSUMER: Final = "    group.protocol=consumer"
# Java consumers with the default list use range, although they support cooperative-sticky.
_ALL_OF_JAVA: Final = (
    "  If the others have the default protocols of Java's client, it never stops with",
    "    coopgroup.protocols=coopgroup,cooperative-sticky",
)


@frozen
class Judgement:
    """The judgement of a group.

    Attributes:
        facts: what the broker says about the group, in lines.
        advice: the next step, or the obstacle, in lines for a terminal of 80 columns. The first
            begins with "next", "done" or "in the way".
        is_blocked: whether there is an obstacle.
    """

    facts: tuple[str, ...]
    advice: tuple[str, ...]
    is_blocked: bool


@frozen
class _Seen:
    """A member as seen from outside.

    Attributes:
        version: version of its subscription, None if it cannot be read.
    """

    member: DescribedMember
    version: int | None
    is_ours: bool


def judge(
    group_id: str,
    group: DescribedGroup,
    *,
    is_back: bool = False,
    to_consumer: bool = False,
    knows_consumer: bool = True,
) -> Judgement:
    """Decide the next step of a classic group, to coopgroup or back to other clients.

    Args:
        group_id: its name.
        group: its description.
        is_back: whether it is on its way to other clients.
        to_consumer: whether members of coopgroup are to speak KIP-848.
        knows_consumer: whether the brokers do.
    """
    spoken = f", protocol {group.protocol_name}" if group.protocol_name else ""
    head = f"group {group_id}: {group.state}{spoken}, {_members(len(group.members))}"
    obstacle = _obstacle(group)
    if obstacle is None and to_consumer and not knows_consumer:
        obstacle = (
            "in the way: these brokers refuse group.protocol=consumer",
            "  Brokers have it from Kafka 4.0 on, with the feature group.version=1.",
        )
    if obstacle is not None:
        return Judgement((head,), obstacle, is_blocked=True)
    if not group.members:
        who = "the previous clients" if is_back else "members of coopgroup"
        how = " with group.protocol=consumer" if to_consumer else ""
        return Judgement((head,), (f"next: start {who}{how}",), is_blocked=False)
    seen = [_look(member, group.protocol_name) for member in group.members]
    facts = (head, *_facts(seen))
    unreadable = sum(one.version is None for one in seen)
    if unreadable:
        blocked = f"in the way: subscriptions of {_members(unreadable)} that cannot be read"
        return Judgement(facts, (blocked,), is_blocked=True)
    if to_consumer:
        return Judgement(facts, _first_to_consumer(len(seen)), is_blocked=False)
    step = _step_back if is_back else _next_step
    return Judgement(facts, step(group.protocol_name, seen), is_blocked=False)


def judge_consumer_group(
    group_id: str, group: ConsumerGroup, *, is_back: bool = False, to_consumer: bool = False
) -> Judgement:
    """Decide the next step of a group whose broker assigns (KIP-848); arguments as for `judge`."""
    old = [one for one in group.members if one.is_classic]
    new = [one for one in group.members if not one.is_classic]
    facts = (
        f"group {group_id}: {group.state}, the broker assigns, {_members(len(group.members))}",
        *_speakers("group.protocol=consumer", new),
        *_speakers("group.protocol=classic", old),
    )
    if not group.members:
        who = "the previous clients" if is_back else "members of coopgroup"
        how = " with group.protocol=consumer" if to_consumer else ""
        return Judgement(facts, (f"next: start {who}{how}",), is_blocked=False)
    if is_back:
        advice = (
            "next: restart each member of coopgroup, one after the other, as the",
            "  previous client. The broker does not tell which members these are.",
        )
        return Judgement(facts, advice, is_blocked=False)
    if to_consumer:
        return Judgement(facts, _rest_to_consumer(len(old)), is_blocked=False)
    if not new:
        blocked = (
            "in the way: the broker goes on to assign, although no member needs it",
            "  group.consumer.migration.policy of the brokers forbids the downgrade.",
            "  Stop all members, and start them again.",
        )
        return Judgement(facts, blocked, is_blocked=True)
    return Judgement(facts, _rest_to_classic(len(new)), is_blocked=False)


def _speakers(protocol: str, members: list[ConsumerMember]) -> list[str]:
    if not members:
        return []
    return [f"{protocol}: {_members(len(members))}", *_places(members)]


def _places(members: Sequence[ConsumerMember | DescribedMember]) -> list[str]:
    shown = [f"  {one.client_id} at {one.client_host}" for one in members[:_SHOWN_MAX]]
    more = len(members) - _SHOWN_MAX
    return [*shown, f"  and {more} more"] if more > 0 else shown


def _first_to_consumer(count: int) -> tuple[str, ...]:
    return (
        f"next: restart {_each(count)} as coopgroup with",
        _CONSUMER,
        "  From the first of these restarts on, the broker assigns, and policies rest.",
        "  Before each restart, wait until the group is Stable.",
    )


def _rest_to_consumer(old: int) -> tuple[str, ...]:
    if not old:
        return (
            "done: all members have group.protocol=consumer",
            "  The broker does not tell which of them are coopgroup.",
        )
    return (
        f"next: restart {_each(old)} with group.protocol=classic",
        "  as coopgroup with",
        _CONSUMER,
    )


def _rest_to_classic(new: int) -> tuple[str, ...]:
    return (
        f"next: restart {_each(new)} with group.protocol=consumer",
        "  as coopgroup with group.protocol=classic, the default.",
        "  When the last of them has left, the group speaks coopgroup by itself.",
        "  To have members of coopgroup with group.protocol=consumer instead, ask with",
        "    --protocol consumer",
    )


def _each(count: int) -> str:
    return "the member" if count == 1 else f"the {count} members, one after the other,"


def _obstacle(group: DescribedGroup) -> tuple[str, ...] | None:
    if group.state == "Dead":
        return ("in the way: there is no such group",)
    if group.protocol_type not in {"", "consumer"}:
        return (
            f"in the way: this is a group of type {group.protocol_type}",
            "  Only groups of consumers can move.",
        )
    if group.state not in {"Stable", "Empty"}:
        return ("in the way: a rebalance is in progress; ask again when the group is Stable",)
    known = group.protocol_name == OWN or kafka_protocol(group.protocol_name) is not None
    if group.members and not known:
        names = ", ".join(protocol.value for protocol in KafkaProtocol)
        return (
            f"in the way: coopgroup does not know the protocol {group.protocol_name}",
            f"  First restart the members with {names}.",
        )
    return None


def _look(member: DescribedMember, protocol: str) -> _Seen:
    try:
        subscription = decode_subscription(member.metadata, skips_rest=True)
    except DecodeError:
        return _Seen(member, None, is_ours=False)
    is_ours = protocol == OWN or has_signature(subscription.user_data)
    return _Seen(member, subscription.version, is_ours=is_ours)


def _facts(seen: list[_Seen]) -> list[str]:
    facts = []
    for who, is_ours in (("coopgroup", True), ("other clients", False)):
        some = [one for one in seen if one.is_ours is is_ours]
        if some:
            versions = Counter("unreadable" if v is None else f"v{v}" for v in _versions(some))
            said = ", ".join(f"{version} {count}" for version, count in sorted(versions.items()))
            facts.append(f"{who}: {_members(len(some))} (subscriptions: {said})")
    others = [one.member for one in seen if not one.is_ours]
    return [*facts, *_places(others)]


def _versions(seen: list[_Seen]) -> list[int | None]:
    return [one.version for one in seen]


def _next_step(protocol: str, seen: list[_Seen]) -> tuple[str, ...]:
    ours = sum(one.is_ours for one in seen)
    others = len(seen) - ours
    if protocol == OWN:
        return (
            "done: all members are coopgroup",
            "  coopgroup.protocols may go with the next deployment.",
            "  Without it, the way back takes another deployment.",
            "  On the way back, ask with --back.",
        )
    setting = f"    coopgroup.protocols={OWN},{protocol}"
    if others == 0:
        return (
            f"next: all members are coopgroup, and most of them prefer {protocol}",
            "  To speak coopgroup, restart them one after the other with",
            setting,
            "  On the way back, restart them as other clients.",
        )
    left = (
        "the last other client"
        if others == 1
        else f"the {others} other clients, one after the other,"
    )
    found = kafka_protocol(protocol)
    eager = ("  Until then each rebalance stops all members.",)
    return (
        f"next: restart {left} as coopgroup with",
        setting,
        "  When no other client is left, the group speaks coopgroup by itself.",
        *(eager if found is not None and found.is_eager else ()),
        *(_ALL_OF_JAVA if protocol == KafkaProtocol.RANGE.value else ()),
    )


def _step_back(protocol: str, seen: list[_Seen]) -> tuple[str, ...]:
    ours = sum(one.is_ours for one in seen)
    if ours == 0:
        return ("done: no member is coopgroup",)
    if protocol != OWN:
        return (f"next: restart {_members(ours)} of coopgroup as the previous client",)
    # Nothing shows how many members prefer an eager protocol: they offer it after the last of them.
    eager = f"{KafkaProtocol.RANGE.value},{OWN}"
    return (
        "next: restart all members, one after the other, as the previous client if",
        f"  they have coopgroup.protocols={OWN},{KafkaProtocol.COOPERATIVE_STICKY.value}.",
        "  To go back to an eager protocol such as range, restart them as coopgroup with",
        f"    coopgroup.protocols={eager}",
        "  The group speaks range after the last of these restarts. Then ask again.",
    )


def _members(count: int) -> str:
    return f"{count} member" if count == 1 else f"{count} members"
