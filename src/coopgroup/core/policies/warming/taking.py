"""A free resource goes to a member that is warm for it.

A lost resource with a warm member does not wait for its owner, and neither does a resource that a
cold owner would get back. The assignor places these resources like all free ones. If its choice is
not warm, the warm member with the fewest resources in the target gets the resource, ties by member
id. This can exceed an even share. A warm member always goes first, because the resource is out of
service; the next round levels, and its moves are warmed up.

A resource that an earlier round revoked goes to a warm member only if that member is its planned
receiver, or if its planned receiver left meanwhile. Otherwise a standby could get each resource
that moves to a member without warm-ups, and the move would begin again without end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coopgroup.core.model import NOBODY
from coopgroup.core.policies.warming.pairs import members_of, resources_of

if TYPE_CHECKING:
    from coopgroup.core.model.resource_set import BoolArray, Int32Array, Int64Array
    from coopgroup.core.policies.warming.warmth import Warmth


def taken_over(warmth: Warmth, offered: Int32Array, withheld: BoolArray) -> BoolArray:
    """Return the resources that wait for, or return to, an owner, and that a warm member takes.

    Args:
        warmth: facts of the round.
        offered: int32 (R,): the owners of the policy's offer.
        withheld: bool (R,): the resources that the policy withholds.

    Returns:
        bool (R,).
    """
    waits = warmth.free & withheld
    returns = warmth.free & ~withheld & warmth.is_cold(offered)
    return warmth.has_warm() & (waits | returns)


def shown_owner(warmth: Warmth, offered: Int32Array, taken: BoolArray) -> Int32Array:
    """Return the owners as the assignor should see them: int32 (R,).

    A resource that moves belongs to its receiver in this view, so that the move is finished.

    Args:
        warmth: facts of the round.
        offered: int32 (R,): the owners of the policy's offer.
        taken: bool (R,): see `taken_over`.
    """
    owner = np.where(taken, NOBODY, offered)
    moves = (owner == NOBODY) & (warmth.free | warmth.stopping)
    moves |= warmth.leaving & (warmth.receivers != NOBODY)
    return np.where(moves, warmth.receivers, owner).astype(np.int32)


def given_to_warm(
    warmth: Warmth, target: Int32Array, returns: BoolArray, released: BoolArray
) -> Int32Array:
    """Return the target with free resources given to warm members.

    Args:
        warmth: facts of the round.
        target: int32 (R,): the assignor's answer.
        returns: bool (R,): has an owner in the policy's offer, which gets it.
        released: bool (R,): revoked by an earlier round and given up.

    Returns:
        int32 (R,).
    """
    leaving = warmth.leaving & ~warmth.are_among(warmth.warm, warmth.receivers)
    open_ = ((warmth.free & ~returns) | leaving) & (target != NOBODY)
    open_ &= ~warmth.are_among(warmth.warm, target)
    planned = (warmth.free & released) | warmth.stopping
    planned &= (target != NOBODY) & warmth.is_cold(target)
    planned &= warmth.are_among(warmth.warm, warmth.receivers)
    given = np.where(planned, warmth.receivers, target).astype(np.int32)
    return _to_fewest(warmth, given, open_ & (~released | warmth.orphaned) & ~planned)


def _to_fewest(warmth: Warmth, target: Int32Array, open_: BoolArray) -> Int32Array:
    pairs = warmth.warm[open_[resources_of(warmth.group, warmth.warm)]]
    if not pairs.size:
        return target
    given = target.copy()
    resources = resources_of(warmth.group, pairs)
    members = members_of(warmth.group, pairs).astype(np.int32)
    first = np.flatnonzero(np.diff(resources, prepend=NOBODY))
    counts = np.diff(first, append=resources.size)
    single = first[counts == 1]
    given[resources[single]] = members[single]
    loads = _loads(warmth, given, open_)
    for start, count in zip(first[counts > 1].tolist(), counts[counts > 1].tolist(), strict=True):
        best = min(members[start : start + count].tolist(), key=lambda m: (loads[m], m))
        given[resources[start]] = best
        loads[best] += 1
    return given


def _loads(warmth: Warmth, given: Int32Array, open_: BoolArray) -> list[int]:
    """Return how many resources each member has, without those that are still to be given."""
    pairs = resources_of(warmth.group, warmth.warm)
    several = open_ & (np.bincount(pairs, minlength=given.size) > 1)
    counted = given[(given != NOBODY) & ~several]
    loads: Int64Array = np.bincount(counted, minlength=len(warmth.group.members))
    return list(loads.tolist())
