"""From what each member says it owns to who rightfully owns what.

The one rule of this file (KIP-792, KAFKA-12984): of several claims to one resource the one of the
highest generation is rightful; claims tied in that generation cancel each other, and the resource
belongs to nobody. A claim that is not rightful still counts as ownership for safety until its
member gives it up, so all claims stay in the snapshot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from attrs import frozen

from coopgroup.model.group import NOBODY, GroupMember, GroupSnapshot, ReplicaRacks
from coopgroup.model.places import ABSENT, places_in
from coopgroup.model.resource_set import (
    EMPTY,
    BoolArray,
    Int32Array,
    Int64Array,
    ResourceSet,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["NO_GENERATION", "MemberClaim", "resolve_claims"]

NO_GENERATION: Final = -1


@frozen(kw_only=True)
class MemberClaim:
    """What one member's subscription says.

    Attributes:
        member_id: id that the group coordinator gave it.
        topics: subscribed names, ascending and distinct.
        owned: what it holds; may be stale, foreign or overlap with others.
        generation: in which the claim was last confirmed, NO_GENERATION when unknown.
        instance_id: static id, None for a dynamic member.
        rack: rack of the process, None when unknown.
        remaining_delay_ms: scheduled delay that it knows to be running, in ms; None for none.
        remaining_loss_ms: given where that is a pause between moves; see `GroupMember`.
        consumption_rate_per_s: records that it gets done in a second of work, None when unknown.
        catalogue_version: newest version of the group's catalogue that it has seen, None for none.
        readable: False when the subscription could not be decoded; the rest is then empty.
    """

    member_id: str
    topics: tuple[str, ...]
    owned: ResourceSet = EMPTY
    generation: int = NO_GENERATION
    instance_id: str | None = None
    rack: str | None = None
    remaining_delay_ms: int | None = None
    remaining_loss_ms: int | None = None
    consumption_rate_per_s: float | None = None
    catalogue_version: int | None = None
    readable: bool = True


def resolve_claims(
    claims: Iterable[MemberClaim],
    existing: ResourceSet,
    racks: Mapping[str, Mapping[int, Sequence[str]]] | None = None,
) -> GroupSnapshot:
    """Build the snapshot of a group from its members' claims.

    Args:
        claims: one per member, in any order, member ids distinct.
        existing: resources that the leader's metadata knows.
        racks: racks of each resource's replicas by name and index; None when unknown.

    Returns:
        The snapshot, every claim resolved.
    """
    ordered = sorted(claims, key=lambda claim: claim.member_id)
    owned = [claim.owned for claim in ordered]
    resources, places = existing, places_in(existing, owned)
    assignable = np.ones(len(existing), dtype=np.bool_)
    if places.size and places.min() == ABSENT:
        resources = ResourceSet.union_all([existing, *owned])
        places = places_in(resources, owned)
        assignable = np.zeros(len(resources), dtype=np.bool_)
        assignable[resources.positions(existing)] = True
    claim_members, claim_resources = _claim_pairs(owned, places, len(resources))
    generations = np.array([claim.generation for claim in ordered], dtype=np.int64)
    owner, contested = _rightful_owners(claim_members, claim_resources, generations, len(resources))
    subscriptions, class_of = _subscription_classes(ordered)
    return GroupSnapshot(
        members=tuple(_member(claim) for claim in ordered),
        resources=resources,
        assignable=assignable,
        subscriptions=subscriptions,
        class_of=class_of,
        owner=owner,
        contested=contested,
        claim_members=claim_members,
        claim_resources=claim_resources,
        replica_racks=None if racks is None else ReplicaRacks.build(resources, racks),
    )


def _member(claim: MemberClaim) -> GroupMember:
    return GroupMember(
        member_id=claim.member_id,
        instance_id=claim.instance_id,
        rack=claim.rack,
        remaining_delay_ms=claim.remaining_delay_ms,
        remaining_loss_ms=claim.remaining_loss_ms,
        consumption_rate_per_s=claim.consumption_rate_per_s,
        readable=claim.readable,
    )


def _claim_pairs(
    owned: Sequence[ResourceSet], places: Int64Array, resource_count: int
) -> tuple[Int32Array, Int32Array]:
    """Who claims what, ascending by (resource, member).

    Args:
        owned: what each of M members claims.
        places: int64 (K,): position of each claim's resource, member by member.
        resource_count: how many resources there are.
    """
    members = np.arange(len(owned), dtype=np.int32).repeat([len(one) for one in owned])
    claim_of = np.full(resource_count, NOBODY, dtype=np.int64)
    claim_of[places] = np.arange(places.size)
    order = claim_of[claim_of != NOBODY]
    if order.size < places.size:  # something is claimed twice, so it takes a sort
        order = places.argsort(kind="stable")
    return members[order], places[order].astype(np.int32)


def _rightful_owners(
    members: Int32Array, places: Int32Array, generations: Int64Array, resource_count: int
) -> tuple[Int32Array, BoolArray]:
    """Who owns each resource, and which are contested; claims ascend by resource."""
    owner = np.full(resource_count, NOBODY, dtype=np.int32)
    if (places[1:] > places[:-1]).all():  # as in most rounds: nothing is claimed twice
        owner[places] = members
        return owner, np.zeros(resource_count, dtype=np.bool_)
    newest = np.full(resource_count, np.iinfo(np.int64).min, dtype=np.int64)
    np.maximum.at(newest, places, generations[members])
    winning = generations[members] == newest[places]
    winners = np.bincount(places[winning], minlength=resource_count)
    contested = winners > 1
    owner[places[winning]] = members[winning]
    owner[contested] = NOBODY
    return owner, contested


def _subscription_classes(
    claims: Sequence[MemberClaim],
) -> tuple[tuple[tuple[str, ...], ...], Int32Array]:
    number_of: dict[tuple[str, ...], int] = {}
    number_of_list: dict[int, int] = {}  # most members have the same list, not only an equal one
    class_of = []
    for claim in claims:
        number = number_of_list.get(id(claim.topics))
        if number is None:
            number = number_of.setdefault(claim.topics, len(number_of))
            number_of_list[id(claim.topics)] = number
        class_of.append(number)
    return tuple(number_of), np.array(class_of, dtype=np.int32)
