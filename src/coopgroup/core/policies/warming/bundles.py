"""Bundles: resources that belong together have one owner, and move together (`co_partition`).

Partition i of each listed topic is one bundle. A round with bundles is decided for another group,
in which each bundle is one resource: the part that comes first by name. Assignor, policy and
warm-ups run unchanged on this group. Then the plan is opened: each part goes with its bundle.

Rules of this file:

- A bundle belongs to the member that owns most of its parts; the first part decides a tie. All
  members that claim a part claim the bundle, so no part is granted before all are given up.
- The opened plan never gives a part to a member while another member claims it. Such a part waits.
- A bundle has the parts that exist. If topics have different numbers of partitions, the bundles
  at the end have fewer parts. A topic that does not exist has no part.
- A list of topics applies only if no member subscribes to a part of its existing topics. Otherwise
  these topics have no bundles in the round. So a group whose subscriptions change member by member
  does not move everything to the first member that has changed.
- If the parts of a bundle have different owners, for example when the option is new, the round
  gives all of them to the owner of the bundle: revoke now, assign in the next round. This unites
  the bundles once, and waits neither for a warm-up nor for the ration.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

import attrs
import numpy as np
from attrs import frozen

from coopgroup.core.model import NOBODY
from coopgroup.core.model.group import ReplicaRacks

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from coopgroup.core.model import GroupMember, GroupSnapshot
    from coopgroup.core.model.group import Float64Array
    from coopgroup.core.model.resource_set import BoolArray, Int32Array, Int64Array

_INDEX_BITS: Final = 32
_TOPICS_MIN: Final = 2


def bundles_of(group: GroupSnapshot, co_partition: Sequence[Sequence[str]]) -> Bundles | None:
    """Return the bundles of a group; None if each resource is on its own.

    Args:
        group: the group, claims resolved.
        co_partition: topics whose partitions belong together, each topic once.
    """
    label = _labels(group, co_partition)
    if label is None:
        return None
    names = group.resources.name_numbers
    # A deleted resource is on its own: its owner must stop it.
    keys = np.where(group.assignable, label[names], names + label.size).astype(np.int64)
    keys <<= _INDEX_BITS
    keys += group.resources.flat_indices + 1  # the index of a connector is -1
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    if first.size == keys.size:
        return None
    place = np.empty(first.size, dtype=np.int64)
    order = first.argsort()
    place[order] = np.arange(first.size)
    return Bundles(whole=group, first=first[order], bundle_of=place[inverse])


def _labels(group: GroupSnapshot, co_partition: Sequence[Sequence[str]]) -> Int64Array | None:
    """Return a number for each name, the same for names that belong together; None for none."""
    number_of = {name: number for number, name in enumerate(group.resources.names)}
    exists = np.zeros(len(number_of), dtype=np.bool_)
    exists[group.resources.name_numbers[group.assignable]] = True
    table = group.subscribed_names()
    label = np.arange(len(number_of), dtype=np.int64)
    for topics in co_partition:
        numbers = sorted(number_of[one] for one in topics if one in number_of)
        numbers = [number for number in numbers if exists[number]]
        if len(numbers) < _TOPICS_MIN:
            continue
        wanted = table[:, numbers]
        if (wanted.all(axis=1) == wanted.any(axis=1)).all():
            label[numbers] = numbers[0]
    return label if (label != np.arange(label.size)).any() else None


@frozen(kw_only=True, eq=False, slots=False)
class Bundles:
    """The bundles of a group with R resources, M members and K claims; B bundles.

    Attributes:
        whole: the group with all parts.
        first: int64 (B,): first part of each bundle, ascending.
        bundle_of: int64 (R,): bundle of each part.
    """

    whole: GroupSnapshot
    first: Int64Array
    bundle_of: Int64Array

    @cached_property
    def group(self) -> GroupSnapshot:
        """Return the group in which each bundle is one resource."""
        whole = self.whole
        owner = self.one_of(whole.owner)
        claims = np.unique(self.claim_keys)
        warm_members, warm_resources = self._warm_pairs(owner)
        is_first = np.zeros(len(whole.resources), dtype=np.bool_)
        is_first[self.first] = True
        racks, arrivals = whole.replica_racks, whole.arrivals_per_s
        return attrs.evolve(
            whole,
            members=tuple(self._member(member) for member in whole.members),
            resources=whole.resources.take(is_first),
            assignable=whole.assignable[self.first],
            owner=owner,
            # A bundle with an owner is not contested: only its contested parts stop.
            contested=self.any_of(whole.contested) & (owner == NOBODY),
            claim_members=(claims % max(len(whole.members), 1)).astype(np.int32),
            claim_resources=(claims // max(len(whole.members), 1)).astype(np.int32),
            replica_racks=None if racks is None else _racks_of(racks, self.first),
            arrivals_per_s=None if arrivals is None else self.sum_of(arrivals),
            weights=None if whole.weights is None else self.sum_of(whole.weights).astype(np.int64),
            warm_members=warm_members,
            warm_resources=warm_resources,
        )

    @cached_property
    def claim_keys(self) -> Int64Array:
        """Return bundle and member of each claim as one number: int64 (K,)."""
        whole = self.whole
        return self.bundle_of[whole.claim_resources] * len(whole.members) + whole.claim_members

    @cached_property
    def sizes(self) -> Int64Array:
        """Return the number of parts of each bundle: int64 (B,)."""
        return np.bincount(self.bundle_of, minlength=self.first.size).astype(np.int64)

    @cached_property
    def are_split(self) -> bool:
        """Return whether two members rightfully own parts of one bundle."""
        owner = self.whole.owner
        return bool(((owner != NOBODY) & (self.group.owner[self.bundle_of] != owner)).any())

    def any_of(self, mask: BoolArray) -> BoolArray:
        """Return which bundles have such a part: bool (B,)."""
        found = np.zeros(self.first.size, dtype=np.bool_)
        found[self.bundle_of[mask]] = True
        return found

    def sum_of(self, values: npt.NDArray[np.number]) -> Float64Array:
        """Return the sum over the parts of each bundle: float64 (B,)."""
        weights: Float64Array = values.astype(np.float64)
        sums = np.bincount(self.bundle_of, weights=weights, minlength=self.first.size)
        return sums.astype(np.float64)

    def one_of(self, holder: Int32Array) -> Int32Array:
        """Return the most frequent holder of each bundle's parts, `NOBODY` without one.

        Args:
            holder: int32 (R,); a tie goes to the holder of the first part.

        Returns:
            int32 (B,).
        """
        made = np.full(self.first.size, NOBODY, dtype=np.int32)
        placed = np.flatnonzero(holder != NOBODY)[::-1]
        bundle, held = self.bundle_of[placed], holder[placed]
        made[bundle] = held  # the first part comes last, and counts
        if (made[bundle] == held).all():
            return made
        many = int(held.max()) + 1
        keys, inverse, counts = np.unique(
            bundle * many + held, return_inverse=True, return_counts=True
        )
        first = np.empty(keys.size, dtype=np.int64)
        first[inverse] = placed
        order = np.lexsort((first, -counts, keys // many))
        begins = np.flatnonzero(np.diff(keys[order] // many, prepend=NOBODY))
        best = keys[order[begins]]
        made[best // many] = (best % many).astype(np.int32)
        return made

    def parts_of(self, bundles: npt.NDArray[np.integer]) -> tuple[Int64Array, Int64Array]:
        """Return the parts of N bundles, and for each part which of the N it belongs to."""
        counts = self.sizes[bundles]
        number = np.arange(bundles.size).repeat(counts)
        place = np.arange(number.size) - (counts.cumsum() - counts)[number]
        return self._ordered[self._starts[bundles][number] + place], number

    @cached_property
    def _ordered(self) -> Int64Array:
        return self.bundle_of.argsort(kind="stable")

    @cached_property
    def _starts(self) -> Int64Array:
        return self.sizes.cumsum() - self.sizes

    def _member(self, member: GroupMember) -> GroupMember:
        """Return a member that declines the whole bundle if it declines a part."""
        if not member.declined:
            return member
        mask = np.zeros(len(self.whole.resources), dtype=np.bool_)
        mask[self.first[self.any_of(self.whole.mask_of(member.declined))]] = True
        return attrs.evolve(member, declined=self.whole.resources.take(mask))

    def _warm_pairs(self, owner: Int32Array) -> tuple[Int32Array, Int32Array]:
        """Return member and bundle of each warm pair, without pairs of a bundle and its owner.

        A member is warm for a bundle if no part is cold for it.
        """
        whole, members = self.whole, len(self.whole.members)
        held = np.flatnonzero(whole.owner != NOBODY)
        keys = np.concatenate(
            [
                self.bundle_of[whole.warm_resources] * members + whole.warm_members,
                self.bundle_of[held] * members + whole.owner[held],
            ]
        )
        keys, counts = np.unique(keys, return_counts=True)
        bundle, member = keys // max(members, 1), keys % max(members, 1)
        warm = (counts == self.sizes[bundle]) & (owner[bundle] != member)
        return member[warm].astype(np.int32), bundle[warm].astype(np.int32)


def _racks_of(racks: ReplicaRacks, chosen: Int64Array) -> ReplicaRacks:
    """Return the racks of some resources."""
    counts = np.diff(racks.starts)[chosen]
    starts = np.zeros(chosen.size + 1, dtype=np.int64)
    counts.cumsum(out=starts[1:])
    number = np.arange(chosen.size).repeat(counts)
    place = np.arange(number.size) - starts[number]
    numbers = racks.numbers[racks.starts[chosen][number] + place]
    return ReplicaRacks(racks=racks.racks, starts=starts, numbers=numbers)
