"""Places a declined resource on a member that does not decline it, with any assignor.

A member whose `start` raised `Decline` tells so with each join, until its time is over. A
`PlacementAssignor` passes such a member over, and counts it in the reason. Any other assignor may
read `GroupMember.declined` itself. If it does not, and gives the resource to such a member, the
resource stays with its owner. Without an owner, it goes to the member with the fewest resources. If
all members decline, it has no owner, and the round goes on (`Placement`). The same holds if the
assignor has limits, because another member might have no room.

A declined warm-up (`GroupMember.declined_warmups`) forbids nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from attrs import frozen

from coopgroup.core.assignors.base import Assignor, Placement
from coopgroup.core.model import NOBODY, GroupSnapshot, Resource
from coopgroup.core.model.pairs import holds, pair_keys, refusals
from coopgroup.core.model.resource_set import BoolArray, Int32Array, Int64Array


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
        return getattr(self.chosen, "has_limits", False)

    def misfits(self, group: GroupSnapshot) -> BoolArray | None:
        """Return what the application's assignor says, see `PlacementAssignor.misfits`."""
        misfits = getattr(self.chosen, "misfits", None)
        return None if misfits is None else misfits(group)

    def assign(self, group: GroupSnapshot, lags: Int64Array) -> Int32Array | Placement:
        """Place every assignable resource that has a subscriber, see `Assignor.assign`."""
        placed = self.chosen.assign(group, lags)
        declined = refusals(group)
        if not declined.size:
            return placed
        chosen = placed.target if isinstance(placed, Placement) else placed
        if not _names_members(group, chosen):
            return placed  # the round refuses it, and says what is wrong
        target = chosen.copy()
        no_room: dict[tuple[str, int], str] = {}
        if isinstance(placed, Placement):
            no_room.update({(name, index): why for (name, index), why in placed.no_room.items()})
        members = np.arange(len(group.members), dtype=np.int32)
        held = (target != NOBODY).nonzero()[0]
        for number in held[holds(declined, pair_keys(group, held, target[held]))].tolist():
            every = np.full(members.size, number, dtype=np.int32)
            takers = members[
                group.subscribes(members, every)
                & ~holds(declined, pair_keys(group, every, members))
            ]
            target[number] = NOBODY
            if self.has_limits:  # only the assignor knows which other member has room
                no_room[_named(group, number)] = "the member chosen declines it"
            elif group.owner[number] in takers:
                target[number] = group.owner[number]
            elif takers.size:
                loads = np.bincount(target[target != NOBODY], minlength=members.size)
                target[number] = takers[loads[takers].argmin()]
            else:
                no_room[_named(group, number)] = "all members decline it"
        return Placement(target=target, no_room=no_room) if no_room else target


def _names_members(group: GroupSnapshot, target: Any) -> bool:  # noqa: ANN401 - an answer
    is_array = isinstance(target, np.ndarray) and np.issubdtype(target.dtype, np.integer)
    if not is_array or target.shape != (len(group.resources),):
        return False
    return bool(((target >= NOBODY) & (target < len(group.members))).all())


def _named(group: GroupSnapshot, number: int) -> Resource:
    return next(iter(group.resources.take(np.arange(len(group.resources)) == number)))
