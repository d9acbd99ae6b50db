"""Which losses there are in a round, and what is unclaimed of each.

Rules of this file: a resource is part of one loss at most; a loss keeps the deadline that it began
with; and it is forgotten when somebody claims what was lost, not when it is given. Without a round
nobody shows what it claims, so a member that was given a loss and kept it for as long as a loss may
wait has proved that it works on it too: if it departs then, that is a new loss.

Theory of operation. A leader that led the last round knows who held what. What is unclaimed is

    holder is present      its own again, at once: it missed its SyncGroup, or was fenced and came
                           back under the same member id (KAFKA-9848: that is no departure)
    in a known loss        the loss decides, with the deadline that it has
    holder has departed    a new loss of that holder
    holder is not known    a loss of an owner that is not known; so is all that is lost to a leader
                           that did not lead the last round
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import numpy as np
from attrs import frozen

from coopgroup.model import NOBODY
from coopgroup.model.ascending import numbers_in
from coopgroup.policies.state import Holdings, Loss
from coopgroup.policies.stopping import member_numbers

if TYPE_CHECKING:
    from coopgroup.model import GroupSnapshot
    from coopgroup.model.resource_set import BoolArray, Int32Array
    from coopgroup.policies.base import RoundContext
    from coopgroup.policies.state import PolicyState
    from coopgroup.policies.unclaimed import Unclaimed

__all__ = ["LossCases", "find_cases", "remembered_losses"]


@frozen(kw_only=True, eq=False)
class LossCases:
    """Losses of a round, in a group with R resources.

    Attributes:
        losses: by deadline and owner.
        number: int32 (R,): which loss each unclaimed resource is part of, NOBODY for none.
        holder: int32 (R,): who held it in the last round and is present, where nobody claims it;
            NOBODY elsewhere.
        orphaned: bool (R,): lost, and nobody knows by whom.
    """

    losses: tuple[Loss, ...]
    number: Int32Array
    holder: Int32Array
    orphaned: BoolArray


def find_cases(
    group: GroupSnapshot, context: RoundContext, unclaimed: Unclaimed, delay_ms: int
) -> LossCases:
    """Find the losses of a round.

    Args:
        group: the group with R resources.
        context: of the round.
        unclaimed: what `find_unclaimed` said of it.
        delay_ms: how long a new loss waits for its owner.
    """
    losses: list[Loss] = []
    number = np.full(len(group.resources), NOBODY, dtype=np.int32)
    holder = number
    if context.state is not None:
        losses, number, holder = _of_state(group, context, context.state, delay_ms)
    orphaned = unclaimed.lost & (number == NOBODY) & (holder == NOBODY)
    if orphaned.any():
        number = np.where(orphaned, len(losses), number)
        losses.append(_loss_of_unknown(group, context, delay_ms))
    order = sorted(
        range(len(losses)), key=lambda place: (losses[place].deadline_ms, losses[place].owner or "")
    )
    rank = np.full(len(losses) + 1, NOBODY, dtype=np.int32)
    rank[order] = np.arange(len(order))
    return LossCases(
        losses=tuple(losses[place] for place in order),
        number=rank[number],
        holder=holder,
        orphaned=orphaned,
    )


def remembered_losses(
    group: GroupSnapshot, cases: LossCases, waiting: BoolArray, now_ms: int
) -> tuple[tuple[Loss, ...], Holdings]:
    """What the next round has to know of the losses.

    Args:
        group: the group with R resources.
        cases: L losses.
        waiting: bool (L + 1,): which of them wait; the others were given to somebody.
        now_ms: the leader's clock.
    """
    part = cases.number != NOBODY
    present = numbers_in(cases.number)
    place_of = np.full(len(cases.losses), NOBODY, dtype=np.int32)
    place_of[present] = np.arange(present.size)
    losses = tuple(
        attrs.evolve(cases.losses[number], given_ms=None if waiting[number] else now_ms)
        for number in present.tolist()
    )
    resources = group.resources.take(part)
    return losses, Holdings(resources=resources, holder=place_of[cases.number[part]])


def _of_state(
    group: GroupSnapshot, context: RoundContext, state: PolicyState, delay_ms: int
) -> tuple[list[Loss], Int32Array, Int32Array]:
    """Losses that a leader knows of: the losses, which one each resource is part of, its holder."""
    unclaimed = group.assignable & ~group.claimed()
    then = np.where(unclaimed, _aligned(group, state.holdings), NOBODY)
    holder = member_numbers(group, state.members)[then]
    departed = np.where(holder == NOBODY, then, NOBODY)
    number = np.where(unclaimed, _aligned(group, state.lost), NOBODY)
    proved = [
        loss.given_ms is not None and context.now_ms - loss.given_ms >= delay_ms
        for loss in state.losses
    ]
    number[(departed != NOBODY) & np.array([*proved, False])[number]] = NOBODY
    departed[number != NOBODY] = NOBODY
    owners = numbers_in(departed)
    number_of = np.full(len(state.members) + 1, NOBODY, dtype=np.int32)
    number_of[owners] = len(state.losses) + np.arange(owners.size)
    instance_of = dict(state.instance_ids)
    fresh = [
        Loss(
            owner=state.members[owner],
            instance_id=instance_of.get(state.members[owner]),
            deadline_ms=context.now_ms + delay_ms,
        )
        for owner in owners.tolist()
    ]
    number = np.where(departed != NOBODY, number_of[departed], number).astype(np.int32)
    return [*state.losses, *fresh], number, holder


def _aligned(group: GroupSnapshot, holdings: Holdings) -> Int32Array:
    """Holders in the order of the group's resources: int32 (R,), NOBODY for none."""
    if holdings.resources == group.resources:
        return holdings.holder
    holder = np.full(len(group.resources), NOBODY, dtype=np.int32)
    places = group.resources.positions(holdings.resources)
    holder[places[places >= 0]] = holdings.holder[places >= 0]
    return holder


def _loss_of_unknown(group: GroupSnapshot, context: RoundContext, delay_ms: int) -> Loss:
    """A loss that began before this leader looked: what the members know of its delay counts.

    The rest of a pause between moves does not: a member that knows of nothing else knows of no
    loss, so this one is new.
    """
    remaining = [m.known_loss_ms for m in group.members if m.known_loss_ms is not None]
    return Loss(
        owner=None,
        instance_id=None,
        deadline_ms=context.now_ms + min([*remaining, delay_ms]),
    )
