"""Places a declined resource on a member that does not decline it, with any assignor.

A member whose `start` raised `Decline` tells so with each join, until its time is over. An assignor
with limits reads `GroupMember.declined` itself. If another assignor gives the resource to such a
member, the resource goes to the member with the fewest resources. If all members decline, it has no
owner, and the round goes on (`Placement`).
"""

from __future__ import annotations

import numpy as np
from attrs import frozen

from coopgroup.core.assignors.base import Assignor, Placement
from coopgroup.core.model import NOBODY, GroupSnapshot, Resource
from coopgroup.core.model.resource_set import Int32Array, Int64Array


@frozen
class Passing:
    """An assignor that passes declined resources on.

    Attributes:
        chosen: the application's assignor.
    """

    chosen: Assignor

    @property
    def name(self) -> str:
        """Name of the application's assignor."""
        return self.chosen.name

    @property
    def needs_lags(self) -> bool:
        """Whether the application's assignor reads the lags."""
        return self.chosen.needs_lags

    @property
    def has_limits(self) -> bool:
        """Whether the application's assignor has limits, see `PlacementAssignor`."""
        return bool(getattr(self.chosen, "has_limits", False))

    def assign(self, group: GroupSnapshot, lags: Int64Array) -> Int32Array | Placement:
        """Place every assignable resource that has a subscriber, see `Assignor.assign`."""
        placed = self.chosen.assign(group, lags)
        if self.has_limits or not any(member.declined for member in group.members):
            return placed
        target = placed.target.copy() if isinstance(placed, Placement) else placed.copy()
        no_room: dict[tuple[str, int], str] = {}
        if isinstance(placed, Placement):
            no_room.update({(name, index): why for (name, index), why in placed.no_room.items()})
        refusals = np.array([group.mask_of(one.declined) for one in group.members])
        held = (target != NOBODY).nonzero()[0]
        for number in held[refusals[target[held], held]].tolist():
            members = np.arange(len(group.members), dtype=np.int32)
            every = np.full(members.size, number, dtype=np.int32)
            free = members[group.subscribes(members, every) & ~refusals[:, number]]
            target[number] = NOBODY
            if free.size:
                loads = np.bincount(target[target != NOBODY], minlength=members.size)
                target[number] = free[loads[free].argmin()]
            else:
                no_room[_named(group, number)] = "all members decline it"
        return Placement(target=target, no_room=no_room) if no_room else target


def _named(group: GroupSnapshot, number: int) -> Resource:
    return next(iter(group.resources.take(np.arange(len(group.resources)) == number)))
