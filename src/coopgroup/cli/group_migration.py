"""Decide the next step of a running group on its way to coopgroup, from its broker's description.

Pure functions. Obstacles come before steps. A broker reports the protocol of a group and its
members' subscriptions in this protocol. It does not report which other protocols members support.
Therefore members of coopgroup are recognised by a signature in their subscription.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from attrs import frozen

from coopgroup.errors import DecodeError
from coopgroup.kafka.rpc.questions import DescribedGroup, DescribedMember
from coopgroup.protocol import KafkaProtocol, decode_subscription, has_signature, kafka_protocol

__all__ = ["Judgement", "judge"]

OWN: Final = "coopgroup"
_SHOWN_MAX: Final = 10
# Java consumers with the default list use range, although they support cooperative-sticky.
_ALL_OF_JAVA: Final = (
    " (name all that the others have; Java's default list: coopgroup,cooperative-sticky)"
)


@frozen
class Judgement:
    """The judgement of a group."""

    facts: tuple[str, ...]
    advice: str
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


def judge(group_id: str, group: DescribedGroup) -> Judgement:
    """Decide the next step of a group."""
    spoken = f", protocol {group.protocol_name}" if group.protocol_name else ""
    head = f"group {group_id}: {group.state}{spoken}, {_members(len(group.members))}"
    obstacle = _obstacle(group)
    if obstacle is not None:
        return Judgement((head,), obstacle, is_blocked=True)
    if not group.members:
        return Judgement((head,), "next: start members of coopgroup", is_blocked=False)
    seen = [_look(member, group.protocol_name) for member in group.members]
    facts = (head, *_facts(seen))
    unreadable = sum(one.version is None for one in seen)
    if unreadable:
        blocked = f"in the way: subscriptions of {_members(unreadable)} that cannot be read"
        return Judgement(facts, blocked, is_blocked=True)
    return Judgement(facts, _next_step(group.protocol_name, seen), is_blocked=False)


def _obstacle(group: DescribedGroup) -> str | None:
    if group.state == "Dead":
        return (
            "in the way: there is no such group of the classic protocol "
            "(members with group.protocol=consumer must be restarted with classic first)"
        )
    if group.protocol_type not in {"", "consumer"}:
        return (
            f"in the way: the group is of type {group.protocol_type}, "
            "only groups of consumers can move"
        )
    if group.state not in {"Stable", "Empty"}:
        return "in the way: a round is under way, ask again when the group is Stable"
    known = group.protocol_name == OWN or kafka_protocol(group.protocol_name) is not None
    if group.members and not known:
        names = ", ".join(protocol.value for protocol in KafkaProtocol)
        return (
            f"in the way: coopgroup does not know {group.protocol_name}, "
            f"restart the members with one of {names} first"
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
    facts += [f"  {one.client_id} at {one.client_host}" for one in others[:_SHOWN_MAX]]
    if len(others) > _SHOWN_MAX:
        facts.append(f"  and {len(others) - _SHOWN_MAX} more")
    return facts


def _versions(seen: list[_Seen]) -> list[int | None]:
    return [one.version for one in seen]


def _next_step(protocol: str, seen: list[_Seen]) -> str:
    ours = sum(one.is_ours for one in seen)
    others = len(seen) - ours
    if protocol == OWN:
        return _step_in_ours(seen)
    wanted = f"{OWN},{protocol}"
    if others == 0:
        return (
            f"next: all are coopgroup, and most want {protocol} more; to speak coopgroup restart "
            f"them one after the other with coopgroup.protocols={wanted}, or begin with other "
            "clients if this is the way back"
        )
    left = "the last one" if others == 1 else f"the {others} other clients one after the other"
    found = kafka_protocol(protocol)
    eager = found is not None and found.is_eager
    pause = "; until the last is gone each round stops all members" if eager else ""
    more = _ALL_OF_JAVA if protocol == KafkaProtocol.RANGE.value else ""
    return (
        f"next: restart {left} as coopgroup with coopgroup.protocols={wanted}; when no other "
        f"client is left the group speaks coopgroup by itself{pause}{more}"
    )


def _step_in_ours(seen: list[_Seen]) -> str:
    old = sum(one.version is not None and one.version <= 1 for one in seen)
    if old:
        return (
            f"next: renew {_members(old)} that read assignments of version 1 only; until then "
            "nothing that is lost waits for its owner"
        )
    return (
        "done: all are coopgroup; coopgroup.protocols may go with the next deployment, which ends "
        "the way back in one step"
    )


def _members(count: int) -> str:
    return f"{count} member" if count == 1 else f"{count} members"
