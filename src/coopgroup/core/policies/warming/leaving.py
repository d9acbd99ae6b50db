"""Members that hand over: they leave permanently, and work until their next owners are warm.

Such a member subscribes to nothing, so the assignor gives its resources to others. Without warm-ups
a policy takes them from it at once. With warm-ups the policy stages a second round for a group in
which the member may keep what it owns. Then its moves are like all others: a move to a cold member
waits for its warm-up, also under a policy that otherwise rests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import numpy as np

if TYPE_CHECKING:
    from coopgroup.core.model import GroupSnapshot
    from coopgroup.core.policies.base import RoundContext

__all__ = ["with_leavers", "with_pending_moves"]


def with_leavers(group: GroupSnapshot) -> GroupSnapshot:
    """Return the group in which members that hand over may keep what they rightfully own.

    If no other member subscribes to a resource, it has no next owner, and is given up at once.
    """
    leavers = [
        number
        for number, member in enumerate(group.members)
        if member.hands_over and not group.subscriptions[group.class_of[number]]
    ]
    if not leavers:
        return group
    subscriptions, class_of = list(group.subscriptions), group.class_of.copy()
    names = group.resources.name_numbers
    for number in leavers:
        owned = np.unique(names[(group.owner == number) & group.subscribed()]).tolist()
        topics = tuple(group.resources.names[name] for name in owned)
        if topics not in subscriptions:
            subscriptions.append(topics)
        class_of[number] = subscriptions.index(topics)
    return attrs.evolve(group, subscriptions=tuple(subscriptions), class_of=class_of)


def with_pending_moves(context: RoundContext) -> RoundContext:
    """Return the context of a leader that knows that moves are to be made."""
    if context.state is None:
        return context
    return attrs.evolve(context, state=attrs.evolve(context.state, moves_pending=True))
