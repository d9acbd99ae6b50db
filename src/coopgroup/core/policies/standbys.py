"""Standbys: members that stay warm for a resource beside its owner (KIP-441).

Members that are warm already come first, then members in another rack than the owner's, then those
on another host, then members with the fewest standbys, then the smallest member id. Standbys are
balanced by themselves. They do not count in the balance of owners. A warm standby is never given up
for a better place, because its state would have to be restored elsewhere.

The previous owner of a resource that moves is a good standby: it has the state already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from attrs import define, frozen

from coopgroup.core.model import NOBODY
from coopgroup.core.model.pairs import holds, members_of, resources_of
from coopgroup.core.policies.warmth import keys_of

if TYPE_CHECKING:
    from coopgroup.core.model.resource_set import BoolArray, Int32Array, Int64Array
    from coopgroup.core.policies.warmth import Warmth, Warmup


@define(eq=False)
class Slots:
    """How many cold warm-ups may still run.

    Attributes:
        left: in the group.
        left_of: int64 (M,): of each member.
    """

    left: int
    left_of: Int64Array

    @classmethod
    def of(cls, option: Warmup, member_count: int) -> Slots:
        """Return the slots of a group without running warm-ups."""
        return cls(option.max_concurrent, np.full(member_count, option.per_member, dtype=np.int64))

    def fill(self, keys: Int64Array) -> Int64Array:
        """Return the first pairs that find a slot, and use these slots.

        Args:
            keys: keys of pairs (`core.model.pairs`), in order of preference.
        """
        if not keys.size:
            return keys
        members = keys % self.left_of.size
        order = np.argsort(members, kind="stable")
        ordered = members[order]
        rank = np.empty(keys.size, dtype=np.int64)
        rank[order] = np.arange(keys.size) - ordered.searchsorted(ordered)
        chosen = keys[rank < self.left_of[members]][: self.left]
        self.left -= chosen.size
        self.left_of -= np.bincount(chosen % self.left_of.size, minlength=self.left_of.size)
        return chosen

    def open_members(self) -> list[int]:
        """Return the members that may begin a warm-up."""
        return np.flatnonzero(self.left_of > 0).tolist() if self.left > 0 else []

    def use(self, member: int) -> None:
        """Use a slot of a member."""
        self.left -= 1
        self.left_of[member] -= 1


@frozen(kw_only=True, eq=False)
class Standbys:
    """The standbys of a round; R resources.

    Attributes:
        warmth: facts of the round.
        assigned: int32 (R,): owners after the round.
        receiver: int32 (R,): receivers of unfinished moves, `NOBODY` without one.
        refused: pairs that must not warm up.
    """

    warmth: Warmth
    assigned: Int32Array
    receiver: Int32Array
    refused: Int64Array

    def kept(self) -> tuple[Int64Array, Int64Array]:
        """Return the standbys that are kept: those with the state, and the cold ones."""
        warmth, group = self.warmth, self.warmth.group
        leaves = (self.assigned != group.owner) & group.may_hold(group.owner) & group.assignable
        leaves &= warmth.is_able(group.owner)
        ready = np.union1d(warmth.warm, keys_of(group, leaves, group.owner))
        keys = self._allowed(np.union1d(ready, warmth.running))
        is_ready = holds(ready, keys)
        keys = keys[is_ready | ~holds(self.refused, keys)]
        is_ready = holds(ready, keys)
        resources, members = resources_of(group, keys), members_of(group, keys)
        order = np.lexsort((members, self._nearness(keys), ~is_ready, resources))
        rank = np.empty(keys.size, dtype=np.int64)
        ordered = resources[order]
        rank[order] = np.arange(keys.size) - ordered.searchsorted(ordered)
        chosen = rank < warmth.option.standbys
        return keys[chosen & is_ready], keys[chosen & ~is_ready]

    def added(self, kept: Int64Array, slots: Slots) -> Int64Array:
        """Return new standbys for the resources that lack some, as far as the slots allow.

        Args:
            kept: the standbys so far.
            slots: how many warm-ups may still begin; updated.
        """
        group = self.warmth.group
        missing = self._missing(kept)
        taken = {*kept.tolist(), *self.refused.tolist(), *self.warmth.barred.tolist()}
        loads = np.bincount(members_of(group, kept), minlength=len(group.members)).tolist()
        able = _able_by_name(self.warmth)
        names = group.resources.name_numbers
        places = [(member.rack, member.host) for member in group.members]
        added: list[int] = []
        open_ = slots.open_members()
        for resource in np.flatnonzero(missing > 0).tolist():
            if not open_:
                break
            owner, receiver = int(self.assigned[resource]), int(self.receiver[resource])
            for _ in range(int(missing[resource])):
                candidates = [
                    member
                    for member in open_
                    if member in able[names[resource]]
                    and member not in (owner, receiver)
                    and resource * len(group.members) + member not in taken
                ]
                if not candidates:
                    break
                near = [_nearness(places[member], places[owner]) for member in candidates]
                _, _, best = min(
                    (far, loads[m], m) for far, m in zip(near, candidates, strict=True)
                )
                key = resource * len(group.members) + best
                added.append(key)
                taken.add(key)
                loads[best] += 1
                slots.use(best)
                open_ = slots.open_members()
        return np.array(sorted(added), dtype=np.int64)

    def _allowed(self, keys: Int64Array) -> Int64Array:
        """Remove pairs whose member owns or receives the resource, or could not start it."""
        group = self.warmth.group
        resources, members = resources_of(group, keys), members_of(group, keys)
        other: BoolArray = (self.assigned[resources] != members) & (
            self.receiver[resources] != members
        )
        return keys[other & ~holds(self.warmth.barred, keys)]

    def _nearness(self, keys: Int64Array) -> Int64Array:
        """Return how near each pair's member is to the owner, as `_nearness` of the module."""
        group = self.warmth.group
        racks = _numbered([member.rack for member in group.members])
        hosts = _numbered([member.host for member in group.members])
        members, owner = members_of(group, keys), self.assigned[resources_of(group, keys)]
        near = 2 * (racks[members] == racks[owner]) + (hosts[members] == hosts[owner])
        nearness: Int64Array = np.where(owner == NOBODY, 0, near).astype(np.int64)
        return nearness

    def _missing(self, kept: Int64Array) -> Int64Array:
        """Return how many standbys each resource lacks: int64 (R,), at most the possible ones."""
        warmth, group = self.warmth, self.warmth.group
        table = group.subscribed_names()[group.class_of]
        possible = (table & warmth.takes_part[:, np.newaxis]).sum(axis=0)[
            group.resources.name_numbers
        ]
        possible = possible - warmth.is_able(self.assigned)
        receives = warmth.is_able(self.receiver) & (self.receiver != self.assigned)
        possible = possible - receives
        wanted = np.minimum(possible, warmth.option.standbys)
        wanted[(self.assigned == NOBODY) | ~group.assignable] = 0
        missing: Int64Array = wanted - np.bincount(
            resources_of(group, kept), minlength=len(group.resources)
        )
        return missing


def _numbered(places: list[str | None]) -> Int64Array:
    """Return a number for each place; unknown places have the same number."""
    numbers = {place: number for number, place in enumerate(dict.fromkeys(places))}
    return np.array([numbers[place] for place in places], dtype=np.int64)


def _nearness(one: tuple[str | None, str | None], other: tuple[str | None, str | None]) -> int:
    """Return how much would fail together: 0 nothing, 1 the host, 2 the rack, 3 both.

    Members of which neither rack nor host is known count as near.
    """
    return 2 * (one[0] == other[0]) + (one[1] == other[1])


def _able_by_name(warmth: Warmth) -> list[frozenset[int]]:
    """Return the members that take part and subscribe to each name."""
    group = warmth.group
    table = group.subscribed_names()
    able: list[frozenset[int]] = []
    by_class: dict[bytes, frozenset[int]] = {}
    for name in range(len(group.resources.names)):
        classes = table[:, name]
        known = by_class.get(classes.tobytes())
        if known is None:
            members = np.flatnonzero(classes[group.class_of] & warmth.takes_part)
            known = by_class[classes.tobytes()] = frozenset(members.tolist())
        able.append(known)
    return able
