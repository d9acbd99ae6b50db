"""Decide the next step of a running group on its way to coopgroup, from its broker's description.

Pure functions. Obstacles come before steps. A broker reports the protocol of a group and its
members' subscriptions in this protocol. It does not report which other protocols members support.
Therefore members of coopgroup are recognised by a signature in their subscription, and the caller
says on which way the group is.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from attrs import frozen

from coopgroup.errors import DecodeError
from coopgroup.kafka.rpc.questions import DescribedGroup, DescribedMember
from coopgroup.protocol import KafkaProtocol, decode_subscription, has_signature, kafka_protocol
from coopgroup.watch.values import GroupView

__all__ = ["Judgement", "judge", "judge_consumer_group"]

OWN: Final = "coopgroup"
_SHOWN_MAX: Final = 10
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


def judge(group_id: str, group: DescribedGroup, *, is_back: bool = False) -> Judgement:
    """Decide the next step of a group, to coopgroup or back to other clients."""
    spoken = f", protocol {group.protocol_name}" if group.protocol_name else ""
    head = f"group {group_id}: {group.state}{spoken}, {_members(len(group.members))}"
    obstacle = _obstacle(group)
    if obstacle is not None:
        return Judgement((head,), obstacle, is_blocked=True)
    if not group.members:
        who = "the previous clients" if is_back else "members of coopgroup"
        return Judgement((head,), (f"next: start {who}",), is_blocked=False)
    seen = [_look(member, group.protocol_name) for member in group.members]
    facts = (head, *_facts(seen))
    unreadable = sum(one.version is None for one in seen)
    if unreadable:
        blocked = f"in the way: subscriptions of {_members(unreadable)} that cannot be read"
        return Judgement(facts, (blocked,), is_blocked=True)
    step = _step_back if is_back else _next_step
    return Judgement(facts, step(group.protocol_name, seen), is_blocked=False)


def judge_consumer_group(view: GroupView) -> Judgement:
    """Decide the next step of a group whose broker assigns (KIP-848).

    The description of such a group does not tell the members of coopgroup from the others.
    """
    facts = [
        f"group {view.group}: {view.state}, the broker assigns, {_members(len(view.members))}",
        *(f"  {one.name} at {one.host}" for one in view.members[:_SHOWN_MAX]),
    ]
    if len(view.members) > _SHOWN_MAX:
        facts.append(f"  and {len(view.members) - _SHOWN_MAX} more")
    advice = (
        "next: restart each member with group.protocol=consumer as coopgroup,",
        "  one after the other. Members of coopgroup are in the group already",
        "  if they run. When the last of the others has left, the group speaks",
        "  coopgroup by itself. To go back, restart each member of coopgroup with",
        "  group.protocol=consumer.",
    )
    return Judgement(tuple(facts), advice, is_blocked=False)


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
    facts += [f"  {one.client_id} at {one.client_host}" for one in others[:_SHOWN_MAX]]
    if len(others) > _SHOWN_MAX:
        facts.append(f"  and {len(others) - _SHOWN_MAX} more")
    return facts


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
