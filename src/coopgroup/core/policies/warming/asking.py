"""Ask the assignor once more, so that warm members and running warm-ups are used.

An assignor chooses some resources of a full member for an empty one. Others of that member would
even out the group just as well, and the empty member may be warm for these. Also, a sticky assignor
chooses other resources once the first ones have moved, and every running warm-up would be wasted.

So the assignor sees moves to warm or warming receivers as done. They replace as many cold moves of
the same owners and receivers. A sticky assignor keeps them. An assignor
that is not sticky gives the same answer as before. The second answer counts only if it is better:
it has no more moves, and then fewer cold ones.

A resource that timed out and was cancelled for a member is exchanged in the same way for another
one of the same owner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from attrs import frozen

from coopgroup.core.model import NOBODY
from coopgroup.core.policies.warming.pairs import (
    NO_KEYS,
    holds,
    keys_of,
    members_of,
    pair_keys,
    resources_of,
    subscribes,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from coopgroup.core.model.resource_set import BoolArray, Int32Array, Int64Array
    from coopgroup.core.policies.warming.warmth import Warmth

_REPLACED_MAX: Final = 64  # cancelled moves for which another resource is looked up in one round


def ask_for_warm(
    warmth: Warmth, shown: Int32Array, refused: Int64Array, ask: Callable[[Int32Array], Int32Array]
) -> Int32Array:
    """Return the assignor's better answer.

    Args:
        warmth: facts of the round with R resources.
        shown: int32 (R,): the owners that the assignor sees.
        refused: pairs that must not warm up.
        ask: asks the assignor, given the owners that it sees: int32 (R,) to int32 (R,).

    Returns:
        int32 (R,): the target.
    """
    first = ask(shown)
    moves = _moves_of(warmth, first, refused)
    exchanged = moves.move & ~moves.settled
    if not exchanged.any():
        return first
    instead = _instead(warmth, first, exchanged, refused)
    if not instead.size:
        return first
    done = np.where(moves.settled, first, shown)
    done[resources_of(warmth.group, instead)] = members_of(warmth.group, instead)
    second = ask(done.astype(np.int32))
    return second if _moves_of(warmth, second, refused).cost < moves.cost else first


@frozen(kw_only=True, eq=False)
class _Moves:
    """The moves of a target: bool (R,) each.

    Attributes:
        move: its owner could keep it.
        settled: such a move that needs no new warm-up.
        cost: the better of two targets has the smaller cost.
    """

    move: BoolArray
    settled: BoolArray
    cost: tuple[int, int, int, int]


def _moves_of(warmth: Warmth, target: Int32Array, refused: Int64Array) -> _Moves:
    move = warmth.may_stay & (target != NOBODY) & (target != warmth.group.owner)
    cold = move & warmth.is_cold(target)
    refuses = cold & warmth.are_among(refused, target)
    new = cold & ~warmth.are_among(warmth.running, target)
    return _Moves(
        move=move,
        settled=move & ~new & ~refuses,
        cost=(int(move.sum()), int(refuses.sum()), int(new.sum()), int(cold.sum())),
    )


def _instead(
    warmth: Warmth, target: Int32Array, exchanged: BoolArray, refused: Int64Array
) -> Int64Array:
    """Return the moves to show as done, at most one for each exchanged move."""
    group = warmth.group
    members = len(group.members)
    gives = np.bincount(group.owner[exchanged], minlength=members)
    gets = np.bincount(target[exchanged], minlength=members)
    planned = keys_of(group, warmth.may_stay, warmth.receivers)
    candidates = np.concatenate(
        [
            planned[holds(warmth.warm, planned)],
            planned[holds(warmth.running, planned) & ~holds(warmth.warm, planned)],
            warmth.warm[~holds(planned, warmth.warm)],
            _replacements(warmth, target, exchanged, refused),
        ]
    )
    resources = resources_of(group, candidates)
    owners, receivers = group.owner[resources], members_of(group, candidates)
    fits = warmth.may_stay[resources] & (target[resources] == owners) & (receivers != owners)
    fits &= (gives[owners] > 0) & (gets[receivers] > 0) & ~holds(refused, candidates)
    left, left_for = gives.tolist(), gets.tolist()
    chosen: dict[int, int] = {}
    open_ = sum(left)
    rows = zip(
        candidates[fits].tolist(),
        resources[fits].tolist(),
        owners[fits].tolist(),
        receivers[fits].tolist(),
        strict=True,
    )
    for key, resource, owner, receiver in rows:
        if open_ and left[owner] and left_for[receiver] and resource not in chosen:
            chosen[resource] = key
            left[owner] -= 1
            left_for[receiver] -= 1
            open_ -= 1
    return np.array(sorted(chosen.values()), dtype=np.int64)


def _replacements(
    warmth: Warmth, target: Int32Array, exchanged: BoolArray, refused: Int64Array
) -> Int64Array:
    """Return other resources of the owners whose moves to a member were cancelled."""
    group = warmth.group
    cancelled = np.flatnonzero(exchanged & warmth.are_among(refused, target))[:_REPLACED_MAX]
    pairs = sorted(
        set(zip(group.owner[cancelled].tolist(), target[cancelled].tolist(), strict=True))
    )
    found = [NO_KEYS]
    for owner, receiver in pairs:
        stays = np.flatnonzero(warmth.may_stay & (group.owner == owner) & (target == owner))
        keys = pair_keys(group, stays, np.full_like(stays, receiver))
        keys = keys[subscribes(group, keys) & ~holds(refused, keys)]
        found.append(keys[:_REPLACED_MAX])
    return np.concatenate(found)
