"""`GroupSnapshot`: everything that a round knows about its group, in arrays.

Members and resources are dense numbers during a round. Member m is `members[m]` (ascending by
member id). Resource r is the r-th of `resources` (ascending by name and index). A mapping from
resources to members is then one int32 array of member numbers. Owners, targets and plans are such
arrays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import chain, pairwise, repeat
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
from attrs import field, frozen

from coopgroup.core.model.replacing import replaced
from coopgroup.core.model.resource_set import (
    EMPTY,
    BoolArray,
    Int32Array,
    Int64Array,
    ResourceSet,
    distinct,
)
from coopgroup.core.model.traits import Traits

NOBODY: Final = -1
"""Number of a member: a resource has no owner."""
NO_GENERATION: Final = -1
Float64Array: TypeAlias = npt.NDArray[np.float64]

NO_PAIRS: Final[Int32Array] = np.zeros(0, dtype=np.int32)
NO_PAIRS.flags.writeable = False
# As `policies.balance` bounds its trust in a brief measurement.
_RATE_SHARE_MAX: Final = 10.0


@frozen(kw_only=True)
class GroupMember:
    """A member, without its subscription and its claims.

    Attributes:
        instance_id: static id (`group.instance.id`, KIP-345), None for a dynamic member.
        rack: rack of the process (`client.rack`, KIP-881), None if unknown.
        rejoin_in_ms: time until the scheduled rejoin that the member knows of; 0 if it is due; None
            if the member knows of no such rejoin.
        loss_ends_in_ms: remaining wait for a lost owner, or for a group's first members, that the
            member knows of; 0 if it has just ended; None if the member knows of no such wait.
        consumption_rate_per_s: records that the member processes in a second of work. The member
            measures and smooths it, and counts only time in which records waited. None if unknown.
        readable: whether its subscription could be decoded. If not, its topics and claims are
            unknown.
        warms: whether it takes part in warm-ups (KIP-441).
        host: machine that runs the process, None if unknown.
        declined: resources that its application declines to start.
        declined_warmups: resources that its application declines to warm up.
        hands_over: whether it leaves permanently, and keeps resources until others are warm. Such a
            member subscribes to nothing.
        traits: what its application tells about it, for assignors and policies; a JSON object.
        generation: generation that last confirmed its claims, `NO_GENERATION` if unknown.
    """

    member_id: str
    instance_id: str | None = None
    rack: str | None = None
    rejoin_in_ms: int | None = None
    loss_ends_in_ms: int | None = None
    consumption_rate_per_s: float | None = None
    readable: bool = True
    warms: bool = False
    host: str | None = None
    declined: ResourceSet = EMPTY
    declined_warmups: ResourceSet = EMPTY
    hands_over: bool = False
    traits: Traits = field(factory=dict, hash=False)
    generation: int = NO_GENERATION

    @property
    def rejoins_to_move(self) -> bool:
        """Return whether the scheduled rejoin that the member knows of continues paced moves."""
        return self.rejoin_in_ms != self.loss_ends_in_ms


@frozen(kw_only=True, eq=False)
class ReplicaRacks:
    """Racks of each resource's replicas, as a sparse table.

    Attributes:
        racks: rack names, ascending.
        starts: int64, shape (resources + 1,).
        numbers: int32, positions in `racks`, ascending per resource. Resource r has
            `numbers[starts[r]:starts[r + 1]]`.
    """

    racks: tuple[str, ...]
    starts: Int64Array
    numbers: Int32Array

    @classmethod
    def build(
        cls,
        resources: ResourceSet,
        racks_by_name: Mapping[str, Mapping[int, Sequence[str]]],
    ) -> ReplicaRacks:
        """Pack racks given by name and index; a resource can have none.

        A million partitions have a million lists of racks, so one pass reads all of them.
        """
        known = chain.from_iterable(by_index.values() for by_index in racks_by_name.values())
        racks = tuple(sorted(set(chain.from_iterable(known))))
        number_of = {rack: number for number, rack in enumerate(racks)}
        rows: list[Sequence[str]] = []
        for name, indices in resources.items():
            rows += map(racks_by_name.get(name, {}).get, indices.tolist(), repeat(()))
        counts = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
        numbers = np.fromiter(
            map(number_of.__getitem__, chain.from_iterable(rows)),
            dtype=np.int64,
            count=int(counts.sum()),
        )
        numbers += (np.arange(len(rows)) * len(racks)).repeat(counts)
        numbers.sort()
        row_of, numbers = np.divmod(distinct(numbers), max(len(racks), 1))
        starts = np.zeros(len(rows) + 1, dtype=np.int64)
        np.bincount(row_of, minlength=len(rows)).cumsum(out=starts[1:])
        return cls(racks=racks, starts=starts, numbers=numbers.astype(np.int32))


@frozen(kw_only=True, eq=False, slots=False)  # `replaced` keeps the cached values
class GroupSnapshot:
    """A group at the time of a round, with all claims resolved.

    With M members, R resources, K claims and C distinct subscriptions:

    Attributes:
        members: ascending by member id.
        resources: every resource that exists in the metadata or is claimed by a member.
        assignable: bool (R,): exists in the metadata, and the assignor may place it now.
        subscriptions: the C distinct sets of subscribed names, each ascending, in order of the
            first member that has it. Members with equal subscriptions form a class.
        class_of: int32 (M,): position in `subscriptions` of each member's subscription.
        owner: int32 (R,): number of the rightful owner, or `NOBODY`.
        contested: bool (R,): claimed twice in the newest generation. Such a resource has no owner
            and is not granted in this round (KIP-792).
        claim_members: int32 (K,): member of each claim, ascending by (resource, member) together
            with `claim_resources`.
        claim_resources: int32 (K,): resource of each claim, rightful or not.
        replica_racks: racks of the replicas, None if unknown.
        arrivals_per_s: float64 (R,): records that arrive at each resource per second, 0 if unknown;
            None if all rates are unknown.
        weights: int64 (R,): weights of the catalogue, 0 for resources that it does not list; None
            for partitions.
        warm_members: int32 (W,): member of each warm pair, ascending by (resource, member) together
            with `warm_resources`.
        warm_resources: int32 (W,): an existing resource that the member is warm for and does not
            rightfully own. The member may lie, or not subscribe to it.
    """

    members: tuple[GroupMember, ...]
    resources: ResourceSet
    assignable: BoolArray
    subscriptions: tuple[tuple[str, ...], ...]
    class_of: Int32Array
    owner: Int32Array
    contested: BoolArray
    claim_members: Int32Array
    claim_resources: Int32Array
    replica_racks: ReplicaRacks | None = None
    arrivals_per_s: Float64Array | None = None
    weights: Int64Array | None = None
    warm_members: Int32Array = NO_PAIRS
    warm_resources: Int32Array = NO_PAIRS

    # The following values are needed many times in a round and are computed once. Views of the
    # group share them, so they must not depend on owners or on assignable resources. Arrays are
    # returned as copies, because an assignor or a policy may change the array that it receives.

    @cached_property
    def member_ids(self) -> tuple[str, ...]:
        """Return the member ids in the order of member numbers."""
        return tuple([member.member_id for member in self.members])

    @cached_property
    def number_of_member(self) -> Mapping[str, int]:
        """Return the number of each member by its id."""
        return {member_id: number for number, member_id in enumerate(self.member_ids)}

    def rates_per_s(self) -> Float64Array:
        """Return the rate of each member: float64 (M,), NaN if unknown.

        A rate is only told. So it counts as at most ten times the median of the other members: with
        a rate without limit, one member would get nearly all resources.
        """
        told = [member.consumption_rate_per_s for member in self.members]
        rates = np.array(told, dtype=np.float64)  # NaN for None
        known = np.sort(rates[rates > 0])
        if known.size:
            # For a rate above it, this is the median of the others, the upper one of two.
            np.minimum(rates, _RATE_SHARE_MAX * known[(known.size - 1) // 2], out=rates)
        return rates

    def subscribed_names(self) -> BoolArray:
        """Return which class subscribes to which name: bool, shape (C, len(resources.names))."""
        return self._subscribed_names.copy()

    @cached_property
    def _subscribed_names(self) -> BoolArray:
        number_of = {name: number for number, name in enumerate(self.resources.names)}
        table = np.zeros((len(self.subscriptions), len(self.resources.names)), dtype=np.bool_)
        for row, names in enumerate(self.subscriptions):
            table[row, [number_of[name] for name in names if name in number_of]] = True
        return table

    @cached_property
    def _all_subscribe_to_all(self) -> bool:
        return bool(self._subscribed_names.all())

    def subscribed(self) -> BoolArray:
        """Return which resources have a subscriber: bool, shape (R,)."""
        return self._subscribed.copy()

    @cached_property
    def _subscribed(self) -> BoolArray:
        by_name = self._subscribed_names.any(axis=0)
        starts = self.resources.starts
        return by_name.repeat(starts[1:] - starts[:-1])

    def may_hold(self, holder: Int32Array) -> BoolArray:
        """Return bool (R,): whether each holder subscribes to its resource; False for `NOBODY`."""
        if not self.members or not self.resources:
            return np.zeros(holder.size, dtype=np.bool_)
        allowed: BoolArray = holder != NOBODY
        if not self._all_subscribe_to_all:
            allowed &= self._subscribed_names[self.class_of[holder], self._name_numbers]
        return allowed

    def subscribes(self, members: Int32Array, resources: Int32Array) -> BoolArray:
        """Return whether each member subscribes to the resource at the same place: bool (K,)."""
        named: BoolArray = self._subscribed_names[
            self.class_of[members], self._name_numbers[resources]
        ]
        return named

    @cached_property
    def _name_numbers(self) -> Int64Array:
        return self.resources.name_numbers

    def claimed(self) -> BoolArray:
        """Return which resources are claimed, rightfully or not: bool, shape (R,)."""
        return self._claimed.copy()

    @cached_property
    def _claimed(self) -> BoolArray:
        mask = np.zeros(len(self.resources), dtype=np.bool_)
        mask[self.claim_resources] = True
        return mask

    def mask_of(self, resources: ResourceSet) -> BoolArray:
        """Return which of the group's resources are in another set: bool, shape (R,)."""
        if resources == self.resources:
            return np.ones(len(resources), dtype=np.bool_)
        mask = np.zeros(len(self.resources), dtype=np.bool_)
        positions = self.resources.positions(resources)
        mask[positions[positions >= 0]] = True
        return mask

    def by_member(self, holder: Int32Array) -> tuple[ResourceSet, ...]:
        """Return the resources of each member, from int32 (R,) holders."""
        # Sorting keys that contain the resource is several times faster than an argsort.
        resource_bits = holder.size.bit_length()
        keys = holder.astype(np.int64) << resource_bits
        keys |= np.arange(holder.size)
        keys = keys[keys >= 0]  # keys of `NOBODY` are negative
        keys.sort()
        order = keys & ((1 << resource_bits) - 1)
        return split_by_member(self.resources, keys >> resource_bits, order, len(self.members))

    def view(
        self,
        *,
        owner: Int32Array,
        assignable: BoolArray,
        arrivals_per_s: Float64Array | None = None,
    ) -> GroupSnapshot:
        """Return the group as the assignor should see it: other owners, fewer resources."""
        return replaced(self, owner=owner, assignable=assignable, arrivals_per_s=arrivals_per_s)


def split_by_member(
    resources: ResourceSet,
    member_numbers: npt.NDArray[np.integer],
    resource_numbers: npt.NDArray[np.integer],
    member_count: int,
) -> tuple[ResourceSet, ...]:
    """Split ascending (member, resource) pairs into one set per member."""
    indices = resources.flat_indices[resource_numbers]
    name_numbers = resources.name_numbers[resource_numbers]
    begins = np.ones(name_numbers.size, dtype=np.bool_)  # whether a new name of a member begins
    np.not_equal(name_numbers[1:], name_numbers[:-1], out=begins[1:])
    begins[1:] |= member_numbers[1:] != member_numbers[:-1]
    starts = np.append(begins.nonzero()[0], name_numbers.size)
    names = np.array(resources.names, dtype=np.object_)[name_numbers[starts[:-1]]].tolist()
    bounds = member_numbers[starts[:-1]].searchsorted(np.arange(member_count + 1)).tolist()
    return tuple(
        _set_of_rows(tuple(names[low:high]), starts[low : high + 1], indices)
        for low, high in pairwise(bounds)
    )


def _set_of_rows(names: tuple[str, ...], starts: Int64Array, indices: Int32Array) -> ResourceSet:
    if not names:
        return EMPTY
    return ResourceSet.from_flat(names, starts - starts[0], indices[starts[0] : starts[-1]].copy())
