"""From a target to a round, resource by resource, for every waiting policy.

A claim counts as ownership until it is given up. A resource that could stay with its owner moves
only if moves are allowed. A free resource is granted immediately. This module does not know why a
resource waits or how many moves are allowed.

Legend of the table `RESOURCE_ACTIONS`, one decision for each resource:

    claimed   a member claims it, rightfully or not
    keepable  it has a rightful owner that subscribes to it, and it exists
    wanted    the target is that owner
    moves     it may be taken from its owner in this round
    waits     it is lost and waits for its owner
    forming   it was never owned, and the first members of the group wait for others
    withheld  a member with an unreadable subscription may own it
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

import numpy as np
from attrs import frozen

from coopgroup.core.model import NOBODY, RoundPlan
from coopgroup.core.model.plan import revoked_claims
from coopgroup.core.policies.table import DecisionTable, Row, _0, _1, __

if TYPE_CHECKING:
    from coopgroup.core.model import GroupSnapshot
    from coopgroup.core.model.resource_set import BoolArray, Int32Array
    from coopgroup.core.policies.unclaimed import Unclaimed

__all__ = ["RESOURCE_ACTIONS", "ResourceAction", "Staging", "keepable", "stage_resources"]

_TIMEOUT_MS_MAX: Final = 2**31 - 1


class ResourceAction(Enum):
    """The decision about a resource in a round."""

    KEEP = "stays with its owner"
    STOP = "is stopped by all members that claim it"
    GRANT = "is granted"
    DEFER = "waits for the owner that lost it"
    HOLD = "waits while the group forms"
    WITHHOLD = "waits until a member that could not be read has been assigned nothing"


# fmt: off
RESOURCE_ACTIONS: Final = DecisionTable(
    columns=("claimed", "keepable", "wanted", "moves", "waits", "forming", "withheld"),
    rows=(
        #          claimed keepable wanted moves waits forming withheld
        Row("@A", (_1,     _1,      _1,    __,   __,   __,     __), ResourceAction.KEEP),
        Row("@B", (_1,     _1,      _0,    _0,   __,   __,     __), ResourceAction.KEEP),
        Row("@C", (_1,     _1,      _0,    _1,   __,   __,     __), ResourceAction.STOP),
        Row("@D", (_1,     _0,      __,    __,   __,   __,     __), ResourceAction.STOP),
        Row("@E", (_0,     __,      __,    __,   _1,   __,     __), ResourceAction.DEFER),
        Row("@F", (_0,     __,      __,    __,   _0,   _1,     __), ResourceAction.HOLD),
        Row("@G", (_0,     __,      __,    __,   _0,   _0,     _1), ResourceAction.WITHHOLD),
        Row("@H", (_0,     __,      __,    __,   _0,   _0,     _0), ResourceAction.GRANT),
    ),
)
# fmt: on
"""
@A: Retained. Its owner continues to work during the rebalance. Other claims are stale, and those
    members stop it.
@B: The target is another member, but the move must wait: for the return of a lost owner (Design II,
    "In this case there should be no RevokeTopicPartitions") or for its turn (Design III).
@C: The first of the two steps of a move: revoke now, assign when no member claims it any more.
@D: Mandatory. It no longer exists, its owner no longer subscribes, or equal claims cancel each
    other (KIP-792). No delay and no ration postpones this.
@E: Lost, and its owner is still expected.
@F: KIP-134: the first member of a group does not start with everything.
@G: A member with an unreadable subscription may be working on it.
@H: Free: created, given up, or lost by an owner that returned or did not return in time.
"""


@frozen(kw_only=True, eq=False)
class Staging:
    """The policy's decisions before the table is applied; R resources, K claims.

    Attributes:
        target: int32 (R,): where the assignor wants each resource, or `NOBODY`.
        recipient: int32 (R,): member that gets the resource if it is free.
        keepable: bool (R,): `keepable` of the group.
        moves: bool (R,): may be taken from an owner that could keep it.
        settled: whether a resource that goes elsewhere than to its target stays there for now.
        waits: bool (R,): waits for its owner.
        waiting_for_members: bool (R,): withheld while the group forms.
        stopping: bool (K,): claims that an earlier round revoked.
        due_ms: when the next round should start even if nothing happens, None for never.
        wait_ends_ms: end of the first wait for a lost owner or for the group's first members; None
            without one. An earlier `due_ms` is for moves.
        now_ms: the leader's clock.
    """

    target: Int32Array
    recipient: Int32Array
    keepable: BoolArray
    moves: BoolArray
    settled: bool
    waits: BoolArray
    waiting_for_members: BoolArray
    stopping: BoolArray
    due_ms: int | None
    wait_ends_ms: int | None
    now_ms: int


def keepable(group: GroupSnapshot) -> BoolArray:
    """Return the resources that could stay with their rightful owner: bool (R,)."""
    return group.may_hold(group.owner) & group.assignable


def stage_resources(group: GroupSnapshot, unclaimed: Unclaimed, staging: Staging) -> RoundPlan:
    """Apply the table to every resource and return the plan.

    Args:
        group: the group.
        unclaimed: result of `find_unclaimed` for the group.
        staging: the decisions so far.
    """
    claimed = group.claimed()
    facts = {
        "claimed": claimed,
        "keepable": staging.keepable,
        "wanted": group.owner == staging.target,
        "moves": staging.moves,
        "waits": staging.waits,
        "forming": staging.waiting_for_members,
        "withheld": unclaimed.withheld,
    }
    assigned = np.full(len(group.resources), NOBODY, dtype=np.int32)
    kept = RESOURCE_ACTIONS.decide_each(ResourceAction.KEEP, **facts)
    assigned[kept] = group.owner[kept]
    granted = RESOURCE_ACTIONS.decide_each(ResourceAction.GRANT, **facts)
    assigned[granted] = staging.recipient[granted]
    waiting_for_members = RESOURCE_ACTIONS.decide_each(ResourceAction.HOLD, **facts)
    lost = RESOURCE_ACTIONS.decide_each(ResourceAction.DEFER, **facts) & group.subscribed()
    stops = revoked_claims(group, assigned)
    again = stops & staging.stopping
    waiting = (
        (staging.target != NOBODY) & (assigned != staging.target) & ~waiting_for_members & ~lost
    )
    soon = waiting & (unclaimed.withheld | (granted & (not staging.settled)))
    if staging.settled:
        waiting &= ~granted  # already granted, so no member has to release it
    follow_up = bool((stops & ~again).any() or soon.any())
    silent = follow_up or again.any()
    rejoin_in_ms = None if silent else _remaining_ms(staging.due_ms, staging.now_ms)
    loss_ends_in_ms = None if silent else _remaining_ms(staging.wait_ends_ms, staging.now_ms)
    return RoundPlan(
        target=staging.target,
        assigned=assigned,
        follow_up=follow_up,
        rejoin_in_ms=rejoin_in_ms,
        loss_ends_in_ms=loss_ends_in_ms,
        lost=lost,
        created=unclaimed.created & (assigned != NOBODY),
        waiting=waiting,
        waiting_for_members=waiting_for_members & group.subscribed(),
        stopping=again,
    )


def _remaining_ms(until_ms: int | None, now_ms: int) -> int | None:
    """Return the remaining time to announce: at least 1, or None."""
    return None if until_ms is None else min(max(until_ms - now_ms, 1), _TIMEOUT_MS_MAX)
