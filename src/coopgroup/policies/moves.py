"""Moves: whether resources may be taken from owners that could keep them, and which go first.

Rules of this file: only what an owner could keep is counted here; what must be stopped anyway, and
what is lost, is no move. The choice is a function of the group alone, so that any leader makes it.

Legend of the table `MOVE_MODES`, one decision a round:

    joined     an additional member joined: one that is not taken for a departed one
    waits      a lost resource waits for its owner
    begun      the group has changed for good, in this round or in one from which on the target was
               never reached; or lost resources never wait, so that nobody is expected back
    blind      the leader did not see what went before what it decides upon now
    returned   somebody got back what it had, or may have done so meanwhile
    uneven     with everybody keeping what it has, counts are less even than in the target
    lagging    the leader asked for the round because lags were uneven for long, and neither are
               earlier moves to be made first nor is it too early for another one

Legend of the table `RATION_ACTIONS`, one decision a round of a policy with a ration:

    wanted     there are moves that the mode allows
    due        the interval since the last round that revoked is over
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

import numpy as np

from coopgroup.model import NOBODY
from coopgroup.policies.table import DecisionTable, Row, _0, _1, __

if TYPE_CHECKING:
    from coopgroup.model import GroupSnapshot
    from coopgroup.model.resource_set import BoolArray, Int32Array, Int64Array

__all__ = [
    "MOVE_MODES",
    "RATION_ACTIONS",
    "MoveMode",
    "RationAction",
    "first_moves",
    "less_even",
]


class MoveMode(Enum):
    """Whether a round moves anything that could stay."""

    MOVE = "towards the target"
    REST = "everybody keeps what it has, but for moves that an earlier round planned"
    BALANCE = "everybody keeps what it has, but for a few moves that even lags out"


class RationAction(Enum):
    """What a ration lets a round do."""

    NOTHING = "there is nothing to move"
    REVOKE = "revoke up to the ration"
    LATER = "wait for the end of the interval"


# fmt: off
MOVE_MODES: Final = DecisionTable(
    columns=("joined", "waits", "begun", "blind", "returned", "uneven", "lagging"),
    rows=(
        #          joined waits begun blind returned uneven lagging
        Row("@A", (_1,    __,   __,   __,   __,      __,    __), MoveMode.MOVE),
        Row("@B", (_0,    _1,   __,   __,   __,      __,    __), MoveMode.REST),
        Row("@C", (_0,    _0,   _1,   __,   __,      __,    __), MoveMode.MOVE),
        Row("@D", (_0,    _0,   _0,   _0,   __,      __,    _0), MoveMode.REST),
        Row("@E", (_0,    _0,   _0,   _0,   __,      __,    _1), MoveMode.BALANCE),
        Row("@F", (_0,    _0,   _0,   _1,   _0,      __,    __), MoveMode.MOVE),
        Row("@G", (_0,    _0,   _0,   _1,   _1,      _0,    __), MoveMode.REST),
        Row("@H", (_0,    _0,   _0,   _1,   _1,      _1,    __), MoveMode.MOVE),
    ),
)
RATION_ACTIONS: Final = DecisionTable(
    columns=("wanted", "due"),
    rows=(
        #          wanted due
        Row("@I", (_0,    __), RationAction.NOTHING),
        Row("@J", (_1,    _1), RationAction.REVOKE),
        Row("@K", (_1,    _0), RationAction.LATER),
    ),
)
# fmt: on
"""
@A: Design II: "Additional members: Reassignment happens immediately via two step revoke + assign".
@B: Design II: "In this case there should be no RevokeTopicPartitions". What was told to stop before
    goes on stopping, and what was put off by a ration goes on at its pace; nothing is added.
@C: What began goes on until the target is reached, also while that changes on the way.
@D: Nothing has happened that lasts. That the target is elsewhere, because lags rose and fell, or
    because an assignor that is not sticky deals by member ids, moves nothing.
@E: Nothing has happened but that lags are uneven, and have been for long: a few moves, and only
    such as are worth it by themselves. The rest of the target is left alone.
@F: The leader has no idea whether anything has begun, so that the target decides.
@G: As far as it can know, the group is as it was before the loss.
@H: The loss was not all that happened.
@I: The interval matters only to moves.
@J: A revoking round, from which the next interval counts.
@K: Put off; the rest of the interval is announced, so that a round comes when it ends.
"""


def less_even(group: GroupSnapshot, kept: Int32Array, target: Int32Array) -> bool:
    """Whether counts are less even in what is kept than in the target.

    Args:
        group: the group with R resources.
        kept: int32 (R,), member numbers or NOBODY.
        target: the same.
    """
    return _roughness(group, kept) > _roughness(group, target)


def first_moves(
    group: GroupSnapshot, target: Int32Array, candidates: BoolArray, count_max: int
) -> BoolArray:
    """Choose which moves go first: those that even out most, spread over who gives and who gets.

    Each candidate ranks by how much its receiver lacks once the better candidates of that receiver
    have arrived, then by how much its owner has too much once its better ones have gone, then by
    its place in the group. So the emptiest receiver is served first until others are as empty.

    Args:
        group: the group with R resources.
        target: int32 (R,): where each is to go.
        candidates: bool (R,): claimed, and to go from the rightful owner to another member.
        count_max: how many to choose.

    Returns:
        bool (R,): the chosen ones.
    """
    places = np.flatnonzero(candidates)
    if places.size <= count_max:
        return candidates
    balance = _counts(group, target) - _counts(group, group.owner)
    givers, getters = group.owner[places], target[places]
    excess = -balance[givers] - _ranks(givers, np.zeros_like(places))
    lack = balance[getters] - _ranks(getters, -excess)
    order = np.lexsort((places, -excess, -lack))
    chosen = np.zeros_like(candidates)
    chosen[places[order[:count_max]]] = True
    return chosen


def _counts(group: GroupSnapshot, holder: Int32Array) -> Int64Array:
    return np.bincount(holder[holder != NOBODY], minlength=len(group.members))


def _roughness(group: GroupSnapshot, holder: Int32Array) -> int:
    counts = _counts(group, holder)
    return int((counts * counts).sum())


def _ranks(groups: Int32Array, keys: Int64Array) -> Int64Array:
    """Rank of each item among those of its group, by key and then by position.

    Args:
        groups: int32 (N,): whose item each is.
        keys: int64 (N,).
    """
    order = np.lexsort((keys, groups))
    ordered = groups[order]
    first = np.flatnonzero(np.diff(ordered, prepend=NOBODY))
    ranks = np.empty(groups.size, dtype=np.int64)
    ranks[order] = np.arange(groups.size) - np.repeat(first, np.diff(first, append=groups.size))
    return ranks
