"""`GroupSnapshot`: everything that a round knows about its group, in arrays.

Members and resources are dense numbers inside a round: member m is `members[m]` (ascending by
member id), resource r is the r-th of `resources` (ascending by name and index). "Who has what" is
then one int32 array of member numbers, and a target, a plan or a rightful owner are all such
arrays.
"""

from __future__ import annotations

from functools import cached_property
from itertools import chain, pairwise, repeat
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import numpy.typing as npt
from attrs import frozen

from coopgroup.model.ascending import distinct
from coopgroup.model.replacing import replaced
from coopgroup.model.resource_set import EMPTY, BoolArray, Int32Array, Int64Array, ResourceSet

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["NOBODY", "NO_LOSS", "GroupMember", "GroupSnapshot", "ReplicaRacks"]

Float64Array: TypeAlias = npt.NDArray[np.float64]

NOBODY: Final = -1
NO_LOSS: Final = -1
"""In place of a time: moves wait for their turn, and nothing waits for a lost owner."""


@frozen(kw_only=True)
class GroupMember:
    """Who a member is, apart from what it subscribes to and owns.

    Attributes:
        member_id: id that the group coordinator gave it.
        instance_id: static id (`group.instance.id`, KIP-345), None for a dynamic member.
        rack: rack of the process (`client.rack`, KIP-881), None when unknown.
        remaining_delay_ms: scheduled delay that the member knows to be running, in ms; 0 when
            it has just run out; None when it knows of none.
        remaining_loss_ms: given where that delay is a pause between moves: what is left of the
            wait for a lost owner, or for a group's first members, in ms; NO_LOSS when the member
            knows of no such wait. None where the delay above is for it.
        consumption_rate_per_s: records that it gets done in a second of work, as it measured it
            itself: smoothed, and only while records waited for it. None when unknown.
        readable: whether its subscription could be decoded. Of a member that is not, neither
            topics nor claims are known.
    """

    member_id: str
    instance_id: str | None = None
    rack: str | None = None
    remaining_delay_ms: int | None = None
    remaining_loss_ms: int | None = None
    consumption_rate_per_s: float | None = None
    readable: bool = True

    @property
    def known_loss_ms(self) -> int | None:
        """What it knows to be left of the wait for a lost owner, in ms; None for no wait."""
        if self.remaining_loss_ms is None:
            return self.remaining_delay_ms
        return None if self.remaining_loss_ms == NO_LOSS else self.remaining_loss_ms


@frozen(kw_only=True, eq=False)
class ReplicaRacks:
    """Racks of each resource's replicas, as a sparse table.

    Attributes:
        racks: rack names, ascending.
        starts: int64, shape (resources + 1,).
        numbers: int32, positions in `racks`; those of resource r are
            `numbers[starts[r]:starts[r + 1]]`, ascending.
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
        """Pack racks given by name and index; resources without any stay empty.

        A million partitions have as many lists of racks: they are read in one pass, not one by one.
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


@frozen(kw_only=True, eq=False, slots=False)  # for `replaced`
class GroupSnapshot:
    """A group at the moment of a round, claims already resolved.

    With M members, R resources, K claims and C distinct subscriptions:

    Attributes:
        members: ascending by member id.
        resources: every resource that exists in the metadata or is claimed by somebody.
        assignable: bool (R,): exists in the metadata, and may be placed by the assignor now.
        subscriptions: the C distinct sets of subscribed names, each ascending, in order of the
            first member that has it. Members with equal subscriptions are one class.
        class_of: int32 (M,): position in `subscriptions` of each member's subscription.
        owner: int32 (R,): number of the rightful owner, NOBODY where there is none.
        contested: bool (R,): claimed twice in the newest generation, so it belongs to nobody and
            is granted to nobody in this round (KIP-792).
        claim_members: int32 (K,): who claims; with `claim_resources` ascending by (resource,
            member).
        claim_resources: int32 (K,): what is claimed, rightfully or not.
        replica_racks: racks of the replicas, None when unknown.
        arrivals_per_s: float64 (R,): records that come in to each resource in a second, 0 where
            that is not known; None where nothing is known of it.
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

    # What follows is asked for many times in a round, and worked out once. It goes along into views
    # of the group, so nothing of it may depend on who owns what or what is assignable. Arrays are
    # handed out as copies: an assignor or a policy may go on to change what it was given.

    @cached_property
    def member_ids(self) -> tuple[str, ...]:
        """Member ids in the order of member numbers."""
        return tuple([member.member_id for member in self.members])

    @cached_property
    def number_of_member(self) -> Mapping[str, int]:
        """Number of each member by its id."""
        return {member_id: number for number, member_id in enumerate(self.member_ids)}

    def subscribed_names(self) -> BoolArray:
        """Which class subscribes to which name: bool, shape (C, len(resources.names))."""
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
        """Which resources at least one member subscribes to: bool, shape (R,)."""
        return self._subscribed.copy()

    @cached_property
    def _subscribed(self) -> BoolArray:
        by_name = self._subscribed_names.any(axis=0)
        starts = self.resources.starts
        return by_name.repeat(starts[1:] - starts[:-1])

    def may_hold(self, holder: Int32Array) -> BoolArray:
        """Whether each resource's holder subscribes to it; False where the holder is NOBODY.

        Args:
            holder: int32 (R,), member numbers or NOBODY.

        Returns:
            bool (R,).
        """
        if not self.members or not self.resources:
            return np.zeros(holder.size, dtype=np.bool_)
        allowed: BoolArray = holder != NOBODY
        if not self._all_subscribe_to_all:
            allowed &= self._subscribed_names[self.class_of[holder], self._name_numbers]
        return allowed

    @cached_property
    def _name_numbers(self) -> Int64Array:
        return self.resources.name_numbers

    def claimed(self) -> BoolArray:
        """Which resources somebody claims, rightfully or not: bool, shape (R,)."""
        return self._claimed.copy()

    @cached_property
    def _claimed(self) -> BoolArray:
        mask = np.zeros(len(self.resources), dtype=np.bool_)
        mask[self.claim_resources] = True
        return mask

    def by_member(self, holder: Int32Array) -> tuple[ResourceSet, ...]:
        """Split the resources by who holds them.

        Args:
            holder: int32 (R,), member numbers or NOBODY.

        Returns:
            One set per member, in the order of `members`.
        """
        # Sorting keys that carry what they order is several times faster than an argsort.
        resource_bits = holder.size.bit_length()
        keys = holder.astype(np.int64) << resource_bits
        keys |= np.arange(holder.size)
        keys = keys[keys >= 0]  # NOBODY's are below
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
        """The same group as the assignor should see it: other owners, fewer resources."""
        return replaced(self, owner=owner, assignable=assignable, arrivals_per_s=arrivals_per_s)


def split_by_member(
    resources: ResourceSet,
    member_numbers: npt.NDArray[np.integer],
    resource_numbers: npt.NDArray[np.integer],
    member_count: int,
) -> tuple[ResourceSet, ...]:
    """Cut (member, resource) pairs, ascending in that order, into one set per member."""
    indices = resources.flat_indices[resource_numbers]
    name_numbers = resources.name_numbers[resource_numbers]
    begins = np.ones(name_numbers.size, dtype=np.bool_)  # a name of a member
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
    """The set with these of the indices of all members, from the first start to the last one."""
    if not names:
        return EMPTY
    return ResourceSet.from_flat(names, starts - starts[0], indices[starts[0] : starts[-1]].copy())
