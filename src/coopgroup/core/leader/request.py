"""The input of a round: the members' subscriptions, the metadata, the lags.

No member can fail the round: an undecodable subscription becomes an unreadable claim and a record.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

import attrs
from attrs import field, frozen

from coopgroup.core.model import MemberClaim, ResourceSet
from coopgroup.core.protocol.subscription import read_subscription
from coopgroup.core.protocol.user_data import decode_user_data
from coopgroup.core.protocol.values import UserData
from coopgroup.core.telemetry.records import SubscriptionUnreadable, UserDataUnreadable
from coopgroup.errors import DecodeError, RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coopgroup.core.model.group_api import JoinedMember
    from coopgroup.core.policies.memory import PolicyState
    from coopgroup.core.protocol.values import Subscription
    from coopgroup.core.telemetry.records import Record


@frozen(kw_only=True)
class RoundRequest:
    """All subscriptions, decoded once.

    Attributes:
        claims: one per member, ascending by member id.
        topics: names with a subscriber, ascending; the host looks them up.
        records: a `SubscriptionUnreadable` or `UserDataUnreadable` for each undecodable part.
        index_min: smallest index of a resource: 0 for partitions, -1 in groups of connectors.
        owned_wire: bytes of each claim in the subscription; None if we would encode it differently.
            A member that keeps exactly its claims gets the same bytes back.
        joined_topics: subscription of each claim as the member sent it, even if the host has
            replaced it.
        subscriptions: each claim's subscription; None if it is unreadable.
    """

    claims: tuple[MemberClaim, ...]
    topics: tuple[str, ...]
    records: tuple[Record, ...] = ()
    index_min: int = 0
    owned_wire: tuple[bytes | None, ...] = field(default=(), eq=False, repr=False)
    joined_topics: tuple[tuple[str, ...], ...] = ()
    subscriptions: tuple[Subscription | None, ...] = field(default=(), eq=False, repr=False)

    @property
    def passed_on(self) -> ResourceSet:
        """Resources whose owners decline to start them.

        The host leaves them out of the metadata of one round: every policy makes their owners give
        them up immediately. In the next round they are new, and go to other members.
        """
        return ResourceSet.union_all([claim.owned & claim.declined for claim in self.claims])


_NO_USER_DATA: Final = UserData()
# Honest members may claim a few deleted topics.
_TOPICS_BELIEVED: Final = 1_000


def read_members(members: Sequence[JoinedMember], *, index_min: int = 0) -> RoundRequest:
    """Decode every member's subscription.

    Args:
        members: as JoinGroup answered, in any order.
        index_min: see `RoundRequest`.

    Raises:
        RemoteProtocolError: the group coordinator names one member id twice.
    """
    ordered = sorted(members, key=lambda member: member.member_id)
    for before, after in pairwise(ordered):
        if before.member_id == after.member_id:
            raise RemoteProtocolError(
                f"members: got {after.member_id!r} twice, expected every member id once"
            )
    claims: list[MemberClaim] = []
    records: list[Record] = []
    wires: list[bytes | None] = []
    subscriptions: list[Subscription | None] = []
    for member in ordered:
        wire = subscription = None
        try:
            subscription, wire = read_subscription(
                member.metadata, index_min=index_min, skips_rest=True
            )
        except DecodeError as error:
            claims.append(
                MemberClaim(
                    member_id=member.member_id,
                    topics=(),
                    instance_id=member.group_instance_id,
                    readable=False,
                )
            )
            records.append(SubscriptionUnreadable(member_id=member.member_id, reason=str(error)))
        else:
            try:
                ours = decode_user_data(
                    subscription.user_data, index_min=index_min, skips_rest=True
                )
            except DecodeError as error:
                ours = None
                records.append(UserDataUnreadable(member_id=member.member_id, reason=str(error)))
            claims.append(_claim(member, subscription, ours or _NO_USER_DATA))
        wires.append(wire)
        subscriptions.append(subscription)
    lists = {id(claim.topics): claim.topics for claim in claims}  # most have the same list
    return RoundRequest(
        claims=tuple(claims),
        topics=tuple(sorted({topic for topics in lists.values() for topic in topics})),
        records=tuple(records),
        index_min=index_min,
        owned_wire=tuple(wires),
        joined_topics=tuple(claim.topics for claim in claims),
        subscriptions=tuple(subscriptions),
    )


def known_claims(
    claims: Sequence[MemberClaim], existing: ResourceSet, state: PolicyState | None
) -> tuple[MemberClaim, ...]:
    """Leave out claims of topics that neither exist nor existed in the last round, if many.

    Any member can invent such topics, and a leader would make arrays of all of them. Topics without
    a subscriber are not looked up, so they count as missing. A member with few topics keeps its
    claims: it must learn that a deleted topic is revoked.
    """
    known = set(existing.names)
    if state is not None:
        known.update(state.resources.owned.names)
    return tuple(
        claim
        if len(claim.owned.names) <= _TOPICS_BELIEVED or known.issuperset(claim.owned.names)
        else attrs.evolve(claim, owned=claim.owned.restrict_names(known))
        for claim in claims
    )


def _claim(member: JoinedMember, subscription: Subscription, ours: UserData) -> MemberClaim:
    return MemberClaim(
        member_id=member.member_id,
        topics=subscription.topics,
        owned=subscription.owned,
        generation=subscription.generation,
        instance_id=member.group_instance_id,
        rack=subscription.rack,
        rejoin_in_ms=ours.rejoin_in_ms,
        loss_ends_in_ms=ours.loss_ends_in_ms,
        consumption_rate_per_s=ours.consumption_rate_per_s,
        catalogue_version=ours.catalogue_version,
        warm=ours.warm,
        host=ours.host,
        declined=ours.declined,
        declined_warmups=ours.declined_warmups,
        hands_over=ours.hands_over,
        traits=ours.traits,
        choices=ours.choices,
    )
