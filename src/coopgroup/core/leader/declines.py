"""Places a declined resource on a member that does not decline it, with any assignor.

A member whose `start` raised `Decline` tells so with each join, until its time is over. A
`PlacementAssignor` passes such a member over, and counts it in the reason. Any other assignor may
read `GroupMember.declined` itself. If it does not, and gives the resource to such a member, the
resource stays with its owner, unless another member has at least two fewer. Otherwise it goes to
the member with the fewest resources. Such a move makes shares more even, so moves end. If all
members decline it, it has no owner, and the round goes on (`Placement.no_room`). The same holds if
the assignor has limits, because another member might have no room.

So no policy gets a target that a member declines. No plan takes a resource from its owner for a
member that cannot start it, and moves end.

A declined warm-up (`GroupMember.declined_warmups`) forbids nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coopgroup.core.model import NOBODY
from coopgroup.core.model.pairs import holds, pair_keys, refusals

if TYPE_CHECKING:
    from coopgroup.core.model import GroupSnapshot, Resource
    from coopgroup.core.model.resource_set import Int32Array


def passed_on(
    group: GroupSnapshot, target: Int32Array, *, has_limits: bool
) -> tuple[Int32Array, dict[Resource, str]]:
    """Return a target in which no member declines its resources, and the reasons for no room.

    Args:
        group: the group with R resources, as the assignor sees it.
        target: int32 (R,): the assignor's answer, which has passed `check_target`.
        has_limits: whether only the assignor knows which members have room.
    """
    declined = refusals(group)
    if not declined.size:
        return target, {}
    target = target.copy()
    no_room: dict[Resource, str] = {}
    members = np.arange(len(group.members), dtype=np.int32)
    held = (target != NOBODY).nonzero()[0]
    loads = np.bincount(target[held], minlength=members.size)
    for number in held[holds(declined, pair_keys(group, held, target[held]))].tolist():
        every = np.full(members.size, number, dtype=np.int32)
        takers = members[
            group.subscribes(members, every) & ~holds(declined, pair_keys(group, every, members))
        ]
        loads[target[number]] -= 1
        target[number] = NOBODY
        if has_limits:
            no_room[_named(group, number)] = "the member chosen declines it"
        elif takers.size:
            owner, least = group.owner[number], takers[loads[takers].argmin()]
            stays = owner in takers and loads[owner] <= loads[least]  # beside this resource
            target[number] = owner if stays else least
            loads[target[number]] += 1
        else:
            no_room[_named(group, number)] = "all members decline it"
    return target, no_room


def _named(group: GroupSnapshot, number: int) -> Resource:
    return next(iter(group.resources.take(np.arange(len(group.resources)) == number)))
