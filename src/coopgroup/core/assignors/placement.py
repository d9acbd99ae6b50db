"""`PlacementAssignor`: a placement with limits, from three functions over plain objects.

A subclass says which member may run a resource, how many places a member has, and which member is
better. The order of the steps is the whole idea:

1. A resource stays with its owner if it fits there and the owner has a place for it. Running
   resources go before those that an owner gets back, or that are on their way to it.
2. Free resources take free places, as many of them as possible. A resource that an owner would get
   back goes elsewhere, if another one then has a place. Of equal members, a warm one goes first.
3. One resource at a time goes from a member with a large load to one with a small load.

A place is taken as long as its resource may still run there. So no member runs more resources than
it has places, not even while it stops one of them. For the same reason no resource moves to make
room for another: it would have to stop first.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
from attrs import define, field, frozen

from coopgroup.core.assignors.base import Placement
from coopgroup.core.assignors.pools import subscriber_pools
from coopgroup.core.model import NOBODY
from coopgroup.core.model.pairs import refusals

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coopgroup.core.model.group import GroupMember, GroupSnapshot
    from coopgroup.core.model.resource_set import BoolArray, Int32Array, Int64Array

# Members whose loads differ by less than this share of the mean count as even.
_TOLERANCE: Final = 0.1


@frozen
class ResourceToPlace:
    """A resource, as the functions of a `PlacementAssignor` see it.

    Attributes:
        name: of the resource or topic.
        index: number of the task or partition.
        weight: from the catalogue; 1 without a catalogue.
    """

    name: str
    index: int
    weight: int = 1


class PlacementAssignor:
    """Places resources within the limits of members; override any of the three functions.

    The functions must be pure. They are not asked about a member that does not subscribe to the
    resource, such as a member that hands over. They are Python calls for each pair of a member and
    a resource. For a hundred thousand pairs, write an assignor of arrays.

    Attributes:
        name: name in configuration, command line and logs.
        needs_lags: always False.
        has_limits: always True: a policy never grants a resource to a member of its own choice.
        evens_out: whether resources move to members with a smaller load. If not, a running resource
            stays where it is for as long as it fits.
    """

    name: ClassVar[str] = "placement"
    needs_lags: ClassVar[bool] = False
    has_limits: ClassVar[bool] = True
    evens_out: ClassVar[bool] = True

    def fits(self, member: GroupMember, resource: ResourceToPlace) -> bool:  # noqa: ARG002 - for subclasses
        """Return whether a member may run a resource."""
        return True

    def places(self, member: GroupMember) -> int | None:  # noqa: ARG002 - for subclasses
        """Return how many resources a member can run; None for any number."""
        return None

    def score(self, member: GroupMember, resource: ResourceToPlace) -> float:  # noqa: ARG002 - for subclasses
        """Return how good a member is for a resource; a free one goes to the highest score."""
        return 0.0

    def assign(self, group: GroupSnapshot, lags: Int64Array) -> Placement:  # noqa: ARG002 - the Protocol's
        """Place the resources; the result says of each that has no room why."""
        search = _Search.of(self, group)
        search.keep()
        search.place_free()
        if self.evens_out:
            search.even_out()
        return search.placement()

    def misfits(self, group: GroupSnapshot) -> BoolArray:
        """Return which member could never run which resource: bool (M, R). It has no standby there.

        A member without a free place can have a standby: a place may be free when it is needed.
        """
        search = _Search.of(self, group)
        mask = np.ones((len(group.members), len(group.resources)), dtype=np.bool_)
        for number, members in search.fitting.items():
            mask[[one for one in members if search.limits[one]], number] = False
        return mask


@define(eq=False)
class _Search:
    """The state of one placement; members and resources are their numbers in the group.

    Attributes:
        fitting: the members that each resource fits, and that do not decline it.
        declines: number of members that each resource fits, and that decline it.
        limits: places of each member.
        running: (resource, member) of each claim: the member may run the resource now.
        shares: size of each member: places, or 1 if no member has a limit.
        warm: (resource, member) of each warm member.
        taken: places of each member that are taken, or given away by this search.
        loads: weight that each member is to run, per size.
        holder: the member that is to run each resource.
        expected: resources that another member still runs, and that move to their holder. They do
            not move on before they have arrived.
        free: resources that no member runs, and that have got a place. They may change it.
    """

    assignor: PlacementAssignor
    group: GroupSnapshot
    resources: dict[int, ResourceToPlace]
    fitting: dict[int, list[int]]
    declines: dict[int, int]
    limits: list[float]
    running: set[tuple[int, int]]
    shares: list[float]
    warm: set[tuple[int, int]]
    taken: list[int] = field(init=False)
    loads: list[float] = field(init=False)
    holder: dict[int, int] = field(factory=dict)
    expected: set[int] = field(factory=set)
    free: set[int] = field(factory=set)

    def __attrs_post_init__(self) -> None:
        self.loads = [0.0] * len(self.limits)
        self.taken = [0] * len(self.limits)
        for _, member in self.running:
            self.taken[member] += 1

    @classmethod
    def of(cls, assignor: PlacementAssignor, group: GroupSnapshot) -> _Search:
        """Ask which members each resource fits, and how many places they have."""
        pairs = list(group.resources)
        weights = None if group.weights is None else group.weights.tolist()
        resources: dict[int, ResourceToPlace] = {}
        fitting: dict[int, list[int]] = {}
        declines: dict[int, int] = {}
        declined = set(refusals(group).tolist())
        for pool in subscriber_pools(group):
            subscribers = [(number, group.members[number]) for number in pool.subscribers.tolist()]
            for number in pool.resources.tolist():
                weight = 1 if weights is None else max(1, weights[number])
                name, index = pairs[number]
                resource = resources[number] = ResourceToPlace(name, index, weight)
                fits = [at for at, one in subscribers if assignor.fits(one, resource)]
                first = number * len(group.members)
                fitting[number] = [at for at in fits if first + at not in declined]
                declines[number] = len(fits) - len(fitting[number])
        limits = [
            # a member that leaves may have told nothing about itself
            _limit(member, assignor.places(member)) if group.subscriptions[number] else 0
            for member, number in zip(group.members, group.class_of.tolist(), strict=True)
        ]
        finite = [limit for limit in limits if limit < math.inf]
        most = max(finite, default=1)
        return cls(
            assignor=assignor,
            group=group,
            resources=dict(sorted(resources.items())),
            fitting=fitting,
            declines=declines,
            limits=limits,
            running=_pairs(group.claim_resources, group.claim_members),
            shares=[max(1, min(limit, most)) for limit in limits],
            warm=_pairs(group.warm_resources, group.warm_members),
        )

    # --- steps ----------------------------------------------------------------------------------

    def keep(self) -> None:
        """Leave resources with their owners, the heaviest first if there are too many."""
        kept = [0] * len(self.limits)
        owners = self.group.owner.tolist()
        owned = [one for one in self.resources if owners[one] in self.fitting[one]]
        owned.sort(key=lambda one: (-self.resources[one].weight, one))
        claimed = {number for number, _ in self.running}
        for number in owned:
            owner = owners[number]
            if (number, owner) in self.running and kept[owner] < self.limits[owner]:
                kept[owner] += 1
                self._hold(number, owner)
        for number in owned:
            owner = owners[number]
            if (number, owner) not in self.running and self._has_room(owner):
                (self.expected if number in claimed else self.free).add(number)
                self._hold(number, owner)

    def place_free(self) -> None:
        """Give places to free resources; those that fit the fewest members choose first."""
        waiting = [one for one in self.resources if one not in self.holder]
        waiting.sort(key=lambda one: (len(self.fitting[one]), -self.resources[one].weight, one))
        full: set[int] = set()  # members that no exchange of free resources gives room
        for number in waiting:
            if not any(map(self._has_room, range(len(self.limits)))):
                return
            if not full.issuperset(self.fitting[number]):
                self._place(number, full)

    def even_out(self) -> None:
        """Move resources as long as a move helps; a move never lowers a score."""
        slack = _TOLERANCE * sum(self.loads) / max(1, len(self.loads))
        while (move := self._best_move(slack)) is not None:
            number, receiver = move
            self._release(number)
            self._hold(number, receiver)

    def placement(self) -> Placement:
        """Return the target, and a reason for each resource without a place."""
        target = np.full(len(self.group.resources), NOBODY, dtype=np.int32)
        for number, holder in self.holder.items():
            target[number] = holder
        refused = [one for one in self.resources if one not in self.holder]
        return Placement(
            target=target,
            no_room={
                (self.resources[one].name, self.resources[one].index): self._reason(one)
                for one in refused
            },
        )

    # --- parts of the steps ---------------------------------------------------------------------

    def _hold(self, number: int, member: int) -> None:
        self.holder[number] = member
        self.loads[member] += self._load(number, member)
        self.taken[member] += (number, member) not in self.running

    def _release(self, number: int) -> int | None:
        """Take a resource from its member, and return the member."""
        member = self.holder.pop(number, None)
        if member is not None:
            self.loads[member] -= self._load(number, member)
            self.taken[member] -= (number, member) not in self.running
        return member

    def _load(self, number: int, member: int) -> float:
        return self.resources[number].weight / self.shares[member]

    def _has_room(self, member: int) -> bool:
        return self.taken[member] < self.limits[member]

    def _score(self, number: int, member: int) -> float:
        score = float(self.assignor.score(self.group.members[member], self.resources[number]))
        if math.isnan(score):
            raise ValueError(f"score of {self.resources[number]}: got nan, expected a number")
        return score

    def _place(self, number: int, full: set[int]) -> None:
        """Give a place to a resource; free resources may change their places for it."""
        giver_of: dict[int, int] = {}  # resource by which the search has reached each member
        reached = dict.fromkeys(self.fitting[number], number)
        while reached:
            giver_of |= reached
            if room := [member for member in reached if self._has_room(member)]:
                self._shift(self._best(reached, room), giver_of)
                return
            reached = {
                member: other
                for other in sorted(self.free)
                if self.holder[other] in reached
                for member in self.fitting[other]
                if member not in giver_of
            }
        full |= giver_of.keys()

    def _best(self, reached: dict[int, int], room: Iterable[int]) -> int:
        return min(
            room,
            key=lambda member: (
                -self._score(reached[member], member),
                (reached[member], member) not in self.warm,
                self.loads[member] + self._load(reached[member], member),
                member,
            ),
        )

    def _shift(self, member: int, giver_of: dict[int, int]) -> None:
        """Give the place at the end of a chain, and each place that this sets free."""
        while True:
            number = giver_of[member]
            before = self._release(number)
            self._hold(number, member)
            self.free.add(number)
            if before is None:
                return
            member = before

    def _best_move(self, slack: float) -> tuple[int, int] | None:
        """Return a resource and its receiver; None if no move helps."""
        order = sorted(range(len(self.loads)), key=lambda one: (-self.loads[one], one))
        held: dict[int, list[int]] = {}
        for number, member in sorted(self.holder.items()):
            held.setdefault(member, []).append(number)
        for giver in order:
            for receiver in reversed(order):
                if self.loads[giver] - self.loads[receiver] <= slack:
                    break
                if self._has_room(receiver) and held.get(giver):
                    moves = [
                        (max(after), (number, giver) in self.running, number)
                        for number in held[giver]
                        if number not in self.expected
                        and (after := self._after(number, giver, receiver)) is not None
                    ]
                    if moves:
                        return min(moves)[-1], receiver
        return None

    def _after(self, number: int, giver: int, receiver: int) -> tuple[float, float] | None:
        """Return both loads after a move; None if it does not help."""
        after = (
            self.loads[giver] - self._load(number, giver),
            self.loads[receiver] + self._load(number, receiver),
        )
        helps = max(after) < self.loads[giver] and receiver in self.fitting[number]
        if not helps or self._score(number, receiver) < self._score(number, giver):
            return None
        return after

    def _reason(self, number: int) -> str:
        full, declines = len(self.fitting[number]), self.declines[number]
        count = full + declines
        if not count:
            return "it fits no member"
        is_full = f"{'is' if full == 1 else 'are'} full"
        if full and declines:
            return f"of {count} that fit, {full} {is_full} and {declines} declined it"
        who = "the member that it fits" if count == 1 else f"all {count} that fit"
        return f"{who} {'declined it' if declines else is_full}"


def _limit(member: GroupMember, places: object) -> float:
    if places is None:
        return math.inf
    if type(places) is not int or places < 0:
        expected = "a whole number from 0 up, or None"
        raise ValueError(f"places of {member.member_id}: got {places!r}, expected {expected}")
    return places


def _pairs(resources: Int32Array, members: Int32Array) -> set[tuple[int, int]]:
    return set(zip(resources.tolist(), members.tolist(), strict=True))
