"""Who runs what in a group of named resources, as its coordinator describes the members.

A member knows its own resources only. The coordinator keeps what each member has joined with and
what the leader assigned to it, and any client may ask for that.
"""

from __future__ import annotations

from attrs import field, frozen

from coopgroup.core.model import Resource
from coopgroup.core.model.choices import MemberChoices
from coopgroup.core.model.traits import Traits
from coopgroup.errors import CoopgroupError
from coopgroup.groups.catalogue import INDEX_MIN
from coopgroup.kafka.rpc.questions import DescribedMember
from coopgroup.protocol import UserData, decode_assignment, decode_subscription, decode_user_data


@frozen(kw_only=True)
class Peer:
    """A member of a group of named resources, as other processes see it.

    Attributes:
        client_id: its `client.id`; the host name by default.
        host: address of its connection.
        instance_id: static id, "" for a dynamic member.
        traits: what it tells about itself (`member=`).
        choices: its policy and its assignor; None if it does not tell.
        resources: what the last round assigned to it, ascending; None if the coordinator does not
            tell, as brokers before Kafka 4 during a round, or if it cannot be read.
        generation: generation of the claims in its last join; None in its first round.
    """

    member_id: str
    client_id: str
    host: str
    instance_id: str = ""
    traits: Traits = field(factory=dict, hash=False)
    choices: MemberChoices | None = None
    resources: tuple[Resource, ...] | None = None
    generation: int | None = None


def peer_of(member: DescribedMember) -> Peer:
    """Return a member, as far as its messages can be read."""
    generation, told = -1, None
    try:
        subscription = decode_subscription(member.metadata, index_min=INDEX_MIN, skips_rest=True)
        generation = subscription.generation
        told = decode_user_data(subscription.user_data, index_min=INDEX_MIN, skips_rest=True)
    except CoopgroupError:
        pass
    return Peer(
        member_id=member.member_id,
        client_id=member.client_id,
        host=member.client_host.lstrip("/"),
        instance_id=member.group_instance_id,
        traits=(told or UserData()).traits,
        choices=(told or UserData()).choices,
        resources=_resources(member.assignment),
        generation=generation if generation >= 0 else None,
    )


def _resources(assignment: bytes) -> tuple[Resource, ...] | None:
    if not assignment:
        return None
    try:
        found = decode_assignment(assignment, index_min=INDEX_MIN, skips_rest=True).assigned
    except CoopgroupError:
        return None
    return tuple(found)
