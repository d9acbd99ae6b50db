"""Resolve claims: from the partitions that members claim to the rightful owner of each.

The rule (KIP-792, KAFKA-12984): of several claims to a resource the claim of the highest generation
is rightful. Claims that tie in this generation cancel each other, and the resource has no owner. A
claim of a topic without a subscription loses against a subscriber's: its member may not keep the
resource. A member that hands over may keep its resources for now, so its claim counts like one of a
subscriber.
For safety, a claim that is not rightful still counts as ownership until its member gives it up.
Therefore all claims stay in the snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from attrs import field, frozen

from coopgroup.core.model.choices import MemberChoices
from coopgroup.core.model.group import (
    NO_GENERATION,
    NO_PAIRS,
    NOBODY,
    GroupMember,
    GroupSnapshot,
    ReplicaRacks,
)
from coopgroup.core.model.positions import ABSENT, positions_in
from coopgroup.core.model.replacing import replaced
from coopgroup.core.model.resource_set import (
    EMPTY,
    BoolArray,
    Int32Array,
    Int64Array,
    ResourceSet,
)
from coopgroup.core.model.traits import Traits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coopgroup.core.model.resource_set import BoolArray, Int32Array

_SUBSCRIBED: Final = 2**32  # more than any generation


@frozen(kw_only=True)
class MemberClaim:
    """The content of one member's subscription.

    Attributes:
        topics: subscribed names, ascending and distinct.
        owned: claimed resources; they can be stale, unknown to the group, or claimed twice.
        generation: generation that last confirmed the claim, `NO_GENERATION` if unknown.
        rejoin_in_ms: time until the scheduled rejoin that the member knows of; see `GroupMember`.
        loss_ends_in_ms: remaining wait for a lost owner that the member knows of; None for none.
        consumption_rate_per_s: records that it processes in a second of work, None if unknown.
        catalogue_version: newest version of the group's catalogue that it has seen, None for none.
        warm: resources that it is warm for without owning them; None if it takes no part in
            warm-ups.
        host: machine that runs the process, None if unknown.
        declined: resources that its application declines to start.
        declined_warmups: resources that its application declines to warm up.
        hands_over: whether it leaves permanently, and keeps resources until others are warm.
        traits: what its application tells about it; see `model.traits`.
        choices: its policy and its assignor; None if it does not tell.
        readable: False if the subscription could not be decoded; the other fields are then empty.
    """

    member_id: str
    topics: tuple[str, ...]
    owned: ResourceSet = EMPTY
    generation: int = NO_GENERATION
    instance_id: str | None = None
    rack: str | None = None
    rejoin_in_ms: int | None = None
    loss_ends_in_ms: int | None = None
    consumption_rate_per_s: float | None = None
    catalogue_version: int | None = None
    warm: ResourceSet | None = None
    host: str | None = None
    declined: ResourceSet = EMPTY
    declined_warmups: ResourceSet = EMPTY
    hands_over: bool = False
    traits: Traits = field(factory=dict, hash=False)
    choices: MemberChoices | None = None
    readable: bool = True


def resolve_claims(
    claims: Iterable[MemberClaim],
    existing: ResourceSet,
    racks: Mapping[str, Mapping[int, Sequence[str]]] | None = None,
    weights: Int64Array | None = None,
) -> GroupSnapshot:
    """Build the snapshot of a group from its members' claims.

    Args:
        claims: one per member.
        existing: resources that exist.
        racks: racks of each resource's replicas by name and index; None if unknown.
        weights: int64, in the order of `existing`; None for partitions.
    """
    ordered = sorted(claims, key=lambda claim: claim.member_id)
    owned = [claim.owned for claim in ordered]
    resources, positions = existing, positions_in(existing, owned)
    assignable = np.ones(len(existing), dtype=np.bool_)
    if positions.size and positions.min() == ABSENT:
        resources = ResourceSet.union_all([existing, *owned])
        positions = positions_in(resources, owned)
        assignable = np.zeros(len(resources), dtype=np.bool_)
        assignable[resources.positions(existing)] = True
    claim_members, claim_resources = _claim_pairs(owned, positions, len(resources))
    generations = np.array([claim.generation for claim in ordered], dtype=np.int64)
    subscriptions, class_of = _subscription_classes(ordered)
    group = GroupSnapshot(
        members=tuple(_member(claim) for claim in ordered),
        resources=resources,
        assignable=assignable,
        subscriptions=subscriptions,
        class_of=class_of,
        owner=np.full(len(resources), NOBODY, dtype=np.int32),
        contested=np.zeros(len(resources), dtype=np.bool_),
        claim_members=claim_members,
        claim_resources=claim_resources,
        replica_racks=None if racks is None else ReplicaRacks.build(resources, racks),
        weights=None if weights is None else _spread(weights, assignable),
    )
    owner, contested = _rightful_owners(group, generations)
    warm_members, warm_resources = _warm_pairs(
        [claim.warm or EMPTY for claim in ordered], resources, assignable, owner
    )
    return replaced(
        group,
        owner=owner,
        contested=contested,
        warm_members=warm_members,
        warm_resources=warm_resources,
    )


def _spread(values: Int64Array, places: BoolArray) -> Int64Array:
    spread = np.zeros(places.size, dtype=np.int64)
    spread[places] = values
    return spread


def _member(claim: MemberClaim) -> GroupMember:
    return GroupMember(
        member_id=claim.member_id,
        instance_id=claim.instance_id,
        rack=claim.rack,
        rejoin_in_ms=claim.rejoin_in_ms,
        loss_ends_in_ms=claim.loss_ends_in_ms,
        consumption_rate_per_s=claim.consumption_rate_per_s,
        readable=claim.readable,
        warms=claim.warm is not None,
        host=claim.host,
        declined=claim.declined,
        declined_warmups=claim.declined_warmups,
        hands_over=claim.hands_over,
        traits=claim.traits,
        generation=claim.generation,
    )


def _claim_pairs(
    owned: Sequence[ResourceSet], positions: Int64Array, resource_count: int
) -> tuple[Int32Array, Int32Array]:
    """Return member and resource of each claim: int32, ascending by (resource, member)."""
    members = np.arange(len(owned), dtype=np.int32).repeat([len(one) for one in owned])
    claim_of = np.full(resource_count, NOBODY, dtype=np.int64)
    claim_of[positions] = np.arange(positions.size)
    order = claim_of[claim_of != NOBODY]
    if order.size < positions.size:  # a resource is claimed twice, so a sort is needed
        order = positions.argsort(kind="stable")
    return members[order], positions[order].astype(np.int32)


def _rightful_owners(group: GroupSnapshot, generations: Int64Array) -> tuple[Int32Array, BoolArray]:
    """Return the owner of each resource and whether it is contested."""
    members, positions, owner = group.claim_members, group.claim_resources, group.owner
    if (positions[1:] > positions[:-1]).all():  # the usual case: no resource is claimed twice
        owner[positions] = members
        return owner, group.contested
    hands_over = np.array([member.hands_over for member in group.members], dtype=np.bool_)
    may_keep = group.subscribes(members, positions) | hands_over[members]
    claimed_in = generations[members] + _SUBSCRIBED * may_keep
    newest = np.full(owner.size, np.iinfo(np.int64).min, dtype=np.int64)
    np.maximum.at(newest, positions, claimed_in)
    winning = claimed_in == newest[positions]
    winners = np.bincount(positions[winning], minlength=owner.size)
    contested = winners > 1
    owner[positions[winning]] = members[winning]
    owner[contested] = NOBODY
    return owner, contested


def _subscription_classes(
    claims: Sequence[MemberClaim],
) -> tuple[tuple[tuple[str, ...], ...], Int32Array]:
    number_of: dict[tuple[str, ...], int] = {}
    number_of_list: dict[int, int] = {}  # by identity: most members share the same list object
    class_of = []
    for claim in claims:
        number = number_of_list.get(id(claim.topics))
        if number is None:
            number = number_of.setdefault(claim.topics, len(number_of))
            number_of_list[id(claim.topics)] = number
        class_of.append(number)
    return tuple(number_of), np.array(class_of, dtype=np.int32)


def _warm_pairs(
    warm: Sequence[ResourceSet], resources: ResourceSet, assignable: BoolArray, owner: Int32Array
) -> tuple[Int32Array, Int32Array]:
    """Return member and resource of each warm pair: int32, ascending by (resource, member).

    A pair of a resource and its owner is left out, and so are resources that are not assignable.
    """
    if not any(warm):
        return NO_PAIRS, NO_PAIRS
    members = np.arange(len(warm), dtype=np.int32).repeat([len(one) for one in warm])
    positions = positions_in(resources, warm)
    counts = positions != ABSENT
    counts[counts] = assignable[positions[counts]]
    counts[counts] = owner[positions[counts]] != members[counts]
    members, positions = members[counts], positions[counts]
    order = positions.argsort(kind="stable")
    return members[order], positions[order].astype(np.int32)
