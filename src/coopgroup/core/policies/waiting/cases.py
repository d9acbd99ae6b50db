"""Find the losses of a round, and the unclaimed resources of each loss.

A resource is part of at most one loss. A loss keeps its first deadline. A loss is forgotten when a
member claims its resources, not when they are granted. Without rounds members show no claims. If a
member was granted a loss and kept it for as long as a loss may wait, it has worked on the resources
all that time; its departure is then a new loss.

Theory of operation. A leader that led the last round knows each resource's holder. An unclaimed
resource is treated as follows:

    holder is present      it gets its own back immediately. It missed its SyncGroup, or was fenced
                           and returned with the same member id (KAFKA-9848: not a departure)
    in a known loss        the loss decides, with its deadline. Exception: a static holder that
                           returned with another member id gets its own back. It is no additional
                           member, so it would stay without a share if another member got it
    holder has departed    a new loss of this holder
    holder is unknown      a loss of an unknown owner; this includes every loss for a leader that
                           did not lead the last round. A member that counts as the owner of a part
                           is its owner from then on
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import numpy as np
from attrs import frozen

from coopgroup.core.model import NOBODY
from coopgroup.core.model.resource_set import numbers_in
from coopgroup.core.policies.state import Holdings, Loss
from coopgroup.core.policies.stopping import member_numbers, returned_numbers

if TYPE_CHECKING:
    from coopgroup.core.model import GroupMember, GroupSnapshot
    from coopgroup.core.model.resource_set import BoolArray, Int32Array
    from coopgroup.core.policies.base import RoundContext
    from coopgroup.core.policies.state import PolicyState
    from coopgroup.core.policies.unclaimed import Unclaimed
    from coopgroup.core.policies.waiting.newcomers import Newcomers

__all__ = ["LossCases", "find_cases", "remembered_losses"]


@frozen(kw_only=True, eq=False)
class LossCases:
    """Losses of a round, in a group with R resources.

    Attributes:
        losses: sorted by deadline and owner.
        number: int32 (R,): number of each unclaimed resource's loss, `NOBODY` for none.
        holder: int32 (R,): holder in the last round that is present, if the resource is unclaimed;
            otherwise `NOBODY`.
        dealt: int32 (R,): member that counts as the unknown owner of a lost resource, or `NOBODY`.
    """

    losses: tuple[Loss, ...]
    number: Int32Array
    holder: Int32Array
    dealt: Int32Array


def find_cases(
    group: GroupSnapshot,
    context: RoundContext,
    unclaimed: Unclaimed,
    newcomers: Newcomers,
    delay_ms: int,
) -> LossCases:
    """Find the losses of a round.

    Args:
        group: the group with R resources.
        context: context of the round.
        unclaimed: result of `find_unclaimed` for the group.
        newcomers: new members of the group.
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
    dealt = newcomers.share_out(group, orphaned)
    takers = numbers_in(dealt)
    if takers.size:
        number = np.where(dealt == NOBODY, number, len(losses) + np.searchsorted(takers, dealt))
        losses.extend(_share_of(losses[-1], group.members[taker]) for taker in takers.tolist())
    order = sorted(
        range(len(losses)),
        key=lambda position: (losses[position].deadline_ms, losses[position].owner or ""),
    )
    rank = np.full(len(losses) + 1, NOBODY, dtype=np.int32)
    rank[order] = np.arange(len(order))
    return LossCases(
        losses=tuple(losses[position] for position in order),
        number=rank[number],
        holder=holder,
        dealt=dealt,
    )


def remembered_losses(
    group: GroupSnapshot,
    losses: tuple[Loss, ...],
    number: Int32Array,
    waits: BoolArray,
    now_ms: int,
) -> tuple[tuple[Loss, ...], Holdings]:
    """Return what the next round must know about the losses.

    If a part of a loss was granted while the rest waits, the part becomes a loss of its own,
    because it is proved by its own grant.

    Args:
        group: the group with R resources.
        losses: L losses.
        number: int32 (R,): number of each resource's loss, `NOBODY` for none.
        waits: bool (R,): which resources wait; the others were granted.
        now_ms: the leader's clock.
    """
    part = number != NOBODY
    key_of = np.where(part, 2 * number + waits, NOBODY).astype(np.int32)
    keys = numbers_in(key_of)
    place_of = np.full(2 * len(losses), NOBODY, dtype=np.int32)
    place_of[keys] = np.arange(keys.size)
    split = tuple(
        attrs.evolve(losses[key // 2], given_ms=None if key % 2 else now_ms)
        for key in keys.tolist()
    )
    return split, Holdings(resources=group.resources.take(part), holder=place_of[key_of[part]])


def _of_state(
    group: GroupSnapshot, context: RoundContext, state: PolicyState, delay_ms: int
) -> tuple[list[Loss], Int32Array, Int32Array]:
    """Return the losses that a leader knows, each resource's loss, and each resource's holder."""
    unclaimed = group.assignable & ~group.claimed()
    then = np.where(
        unclaimed, group.aligned(state.holdings.resources, state.holdings.holder), NOBODY
    )
    there = member_numbers(group, state.members)
    holder = there[then]
    departed = np.where(holder == NOBODY, then, NOBODY)
    number = np.where(unclaimed, group.aligned(state.lost.resources, state.lost.holder), NOBODY)
    proved = [
        loss.given_ms is not None and context.now_ms - loss.given_ms >= delay_ms
        for loss in state.losses
    ]
    number[(departed != NOBODY) & np.array([*proved, False])[number]] = NOBODY
    number[_of_larger_shares(state, departed, number)] = NOBODY
    departed[number != NOBODY] = NOBODY
    # A static holder is never additional. It would stay without a share if the loss decided.
    holder = np.where(number != NOBODY, returned_numbers(group, state, there)[then], holder)
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


def _of_larger_shares(state: PolicyState, departed: Int32Array, number: Int32Array) -> BoolArray:
    """Return the resources of known losses that departed members had beside others: bool (R,).

    A member that counted as an owner can get more than the loss. If it departs before it claims
    anything, its whole share is one new loss. With two losses, two newcomers would each replace a
    departed member, although only one departed, and both would keep too little.

    Args:
        state: the leader's memory of a last round with N members.
        departed: int32 (R,): departed holder of each unclaimed resource.
        number: int32 (R,): number of each resource's known loss.
    """
    beside = np.zeros(len(state.members) + 1, dtype=np.bool_)
    beside[departed[(departed != NOBODY) & (number == NOBODY)]] = True
    in_time = np.array([one.given_ms is not None and not one.given_late for one in state.losses])
    larger: BoolArray = (number != NOBODY) & beside[departed]
    larger[larger] = in_time[number[larger]]
    return larger


def _loss_of_unknown(group: GroupSnapshot, context: RoundContext, delay_ms: int) -> Loss:
    """Return a loss that began before this leader looked, with the delay that members know.

    The rest of a pause between moves does not count: members that know nothing else know of no
    loss, so this loss is new.
    """
    remaining = [m.loss_ends_in_ms for m in group.members if m.loss_ends_in_ms is not None]
    return Loss(
        owner=None,
        instance_id=None,
        deadline_ms=context.now_ms + min([*remaining, delay_ms]),
    )


def _share_of(loss: Loss, taker: GroupMember) -> Loss:
    """Return the part of a loss of an unknown owner whose owner a member counts as.

    As parts of one loss, the shares of two takers that both depart would go to one newcomer.
    """
    return attrs.evolve(loss, owner=taker.member_id, instance_id=taker.instance_id)
