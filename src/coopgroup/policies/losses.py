"""What departed members left behind: who is to get it, and until when it waits (Design II).

Rules of this file: a loss has an owner and one deadline, which nothing restarts; a loss waits for
nobody who is there; a loss is forgotten when somebody claims what was lost, not when it is given.
Without a round nobody shows what it claims, so who was given a loss and kept it for as long as a
loss may wait has proved that it works on it too: if that member departs, the loss is a new one.

Theory of operation. A leader that led the last round knows who held what. What is unclaimed is

    holder is present      its own again, at once: it missed its SyncGroup, or was fenced and came
                           back under the same member id (KAFKA-9848: that is no departure)
    in a known loss        the loss decides, with the deadline that it has
    holder has departed    a new loss of that holder
    holder is not known    a loss of an owner that is not known; so is all that is lost to a leader
                           that did not lead the last round

Legend of the table `LOSS_ACTIONS`, one decision for each loss that is still unclaimed:

    back      the owner is present, by its member id or by its static id
    static    the owner had a static id
    newcomer  there is a member new to the group, without a static id and without rightful claims,
              that subscribes to all that was lost and is not yet taken for another owner
    expired   the deadline has come
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

import attrs
import numpy as np
from attrs import frozen

from coopgroup.model import NOBODY, ResourceSet
from coopgroup.model.group import split_by_member
from coopgroup.policies.newcomers import Newcomers, empty_handed_of_names
from coopgroup.policies.state import Loss
from coopgroup.policies.stopping import places_of_sets
from coopgroup.policies.table import DecisionTable, Row, _0, _1, __

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coopgroup.model import GroupSnapshot
    from coopgroup.model.resource_set import BoolArray, Int32Array, Int64Array
    from coopgroup.policies.base import RoundContext
    from coopgroup.policies.state import PolicyState
    from coopgroup.policies.unclaimed import Unclaimed

__all__ = ["LOSS_ACTIONS", "LossAction", "Losses", "follow_losses"]


class LossAction(Enum):
    """What becomes of a loss in a round."""

    RETURN = "to its owner, who is back"
    REPLACE = "to a newcomer, who is taken for its owner"
    WAIT = "to nobody yet"
    RELEASE = "to whom the assignor likes"


# fmt: off
LOSS_ACTIONS: Final = DecisionTable(
    columns=("back", "static", "newcomer", "expired"),
    rows=(
        #          back static newcomer expired
        Row("@A", (_1,  __,    __,      __), LossAction.RETURN),
        Row("@B", (_0,  _0,    _1,      __), LossAction.REPLACE),
        Row("@C", (_0,  _0,    _0,      _0), LossAction.WAIT),
        Row("@D", (_0,  _0,    _0,      _1), LossAction.RELEASE),
        Row("@E", (_0,  _1,    __,      _0), LossAction.WAIT),
        Row("@F", (_0,  _1,    __,      _1), LossAction.RELEASE),
    ),
)
# fmt: on
"""
@A: Who is back gets its own at once, also when the deadline has come in this very round.
@B: Without a static id a process comes back under a new member id; one newcomer is taken for one
    departed member. Also at the deadline: the newcomer has nothing yet, so giving it the loss is
    what disturbs least.
@C: The owner may still come; the deadline is the one that the loss has always had.
@D: It did not come.
@E: A static owner can prove who it is, so nobody else is taken for it: a newcomer with another
    identity is an additional member.
@F: It did not come either.
"""


@frozen(kw_only=True, eq=False)
class Losses:
    """What a round has to know of losses, in a group with R resources.

    Attributes:
        claimant: int32 (R,): who gets what nobody claims because it is, or is taken for, the one
            that had it; NOBODY where the assignor is free.
        waits: bool (R,): waits for its owner: not to be placed in this round.
        losses: what to remember, by deadline and owner.
        wait_until_ms: earliest deadline of those that wait; None when nothing waits.
        joined: whether a member joined that is not taken for a departed one.
    """

    claimant: Int32Array
    waits: BoolArray
    losses: tuple[Loss, ...]
    wait_until_ms: int | None
    joined: bool


@frozen(kw_only=True, eq=False)
class _Cases:
    """Losses of a round with what is unclaimed of each.

    Attributes:
        losses: by deadline and owner; their own `resources` are of no account here.
        number: int32 (R,): which loss each resource is part of, NOBODY for none.
    """

    losses: tuple[Loss, ...]
    number: Int32Array


def follow_losses(
    group: GroupSnapshot, context: RoundContext, unclaimed: Unclaimed, delay_ms: int
) -> Losses:
    """Say what each departed member's resources wait for.

    Args:
        group: the group with R resources.
        context: of the round.
        unclaimed: what `find_unclaimed` said of it.
        delay_ms: how long a loss waits for its owner; with 0 nothing is ever waited for.
    """
    newcomers = Newcomers.of(group, context)
    if not delay_ms:
        return Losses(
            claimant=np.full(len(group.resources), NOBODY, dtype=np.int32),
            waits=np.zeros(len(group.resources), dtype=np.bool_),
            losses=(),
            wait_until_ms=None,
            joined=newcomers.any_but(()),
        )
    claimant, cases, orphaned = _cases(group, context, unclaimed, delay_ms)
    open_ = (cases.number != NOBODY) & (claimant == NOBODY)
    entitled = orphaned & empty_handed_of_names(group)
    given, waiting, taken = _decide(group, context, cases, open_ & ~entitled, newcomers)
    numbers = np.where(open_ & ~entitled, cases.number, NOBODY)
    claimant = np.where(numbers != NOBODY, given[numbers], claimant).astype(np.int32)
    waits = (numbers != NOBODY) & waiting[numbers]
    urgent = np.unique(cases.number[waits & unclaimed.lost]).tolist()  # subscribed, that is
    deadlines = [cases.losses[number].deadline_ms for number in urgent]
    return Losses(
        claimant=claimant,
        waits=waits,
        losses=_remembered(group, cases, waiting, context.now_ms),
        wait_until_ms=min(deadlines, default=None),
        joined=newcomers.any_but(taken),
    )


def _cases(
    group: GroupSnapshot, context: RoundContext, unclaimed: Unclaimed, delay_ms: int
) -> tuple[Int32Array, _Cases, BoolArray]:
    """Say what is whose own again, which losses there are, and which of them nobody knows."""
    state = context.state
    unclaimed_now = group.assignable & ~group.claimed()
    nobody = np.full(len(group.resources), NOBODY, dtype=np.int32)
    if state is None:
        losses: list[Loss] = []
        number, back, departed = nobody, nobody, nobody
    else:
        losses = list(state.losses)
        number = _loss_numbers(group, state.losses)
        back, departed = _last_holders(group, state)
        proved = np.array([_is_proved(loss, context.now_ms, delay_ms) for loss in losses] + [False])
        number = np.where((departed != NOBODY) & proved[number], NOBODY, number)
    claimant = np.where(unclaimed_now, back, NOBODY).astype(np.int32)
    number = np.where(unclaimed_now, number, NOBODY)
    fresh = unclaimed_now & (departed != NOBODY) & (number == NOBODY)
    if state is not None and fresh.any():
        number = _add_departed(losses, number, np.where(fresh, departed, NOBODY), context, delay_ms)
    known = (number != NOBODY) | (back != NOBODY)
    orphaned = unclaimed.lost & ~known
    if orphaned.any():
        number = np.where(orphaned, len(losses), number)
        losses.append(_loss_of_unknown(group, context, delay_ms))
    return claimant, _in_order(losses, number), orphaned


def _is_proved(loss: Loss, now_ms: int, delay_ms: int) -> bool:
    return loss.given_ms is not None and now_ms - loss.given_ms >= delay_ms


def _loss_numbers(group: GroupSnapshot, losses: Sequence[Loss]) -> Int32Array:
    number = np.full(len(group.resources), NOBODY, dtype=np.int32)
    if losses:
        which, places = places_of_sets(group, [loss.resources for loss in losses])
        number[places] = which
    return number


def _last_holders(group: GroupSnapshot, state: PolicyState) -> tuple[Int32Array, Int32Array]:
    """Who held each resource in the last round: its present number, else its number then."""
    then = np.full(len(group.resources), NOBODY, dtype=np.int32)
    holdings = state.holdings
    if holdings.resources == group.resources:
        then = holdings.holder
    else:
        places = group.resources.positions(holdings.resources)
        then[places[places >= 0]] = holdings.holder[places >= 0]
    number_of = {member: number for number, member in enumerate(group.member_ids)}
    present = np.array([number_of.get(m, NOBODY) for m in state.members] + [NOBODY], dtype=np.int32)
    back = present[then]
    return back, np.where(back == NOBODY, then, NOBODY).astype(np.int32)


def _add_departed(
    losses: list[Loss],
    number: Int32Array,
    departed: Int32Array,
    context: RoundContext,
    delay_ms: int,
) -> Int32Array:
    """Add a loss for each departed holder, and number what it held."""
    assert context.state is not None
    instance_of = dict(context.state.instance_ids)
    owners = np.unique(departed[departed != NOBODY])
    number_of = np.full(len(context.state.members) + 1, NOBODY, dtype=np.int32)
    number_of[owners] = len(losses) + np.arange(owners.size)
    for owner in owners.tolist():
        member = context.state.members[owner]
        losses.append(
            Loss(
                owner=member,
                instance_id=instance_of.get(member),
                resources=ResourceSet(),
                deadline_ms=context.now_ms + delay_ms,
            )
        )
    return np.where(departed != NOBODY, number_of[departed], number).astype(np.int32)


def _loss_of_unknown(group: GroupSnapshot, context: RoundContext, delay_ms: int) -> Loss:
    """A loss that began before this leader looked: what the members know of its delay counts."""
    remaining = [m.remaining_delay_ms for m in group.members if m.remaining_delay_ms is not None]
    return Loss(
        owner=None,
        instance_id=None,
        resources=ResourceSet(),
        deadline_ms=context.now_ms + min([*remaining, delay_ms]),
    )


def _in_order(losses: list[Loss], number: Int32Array) -> _Cases:
    order = sorted(
        range(len(losses)), key=lambda i: (losses[i].deadline_ms, losses[i].owner or "", i)
    )
    rank = np.full(len(losses) + 1, NOBODY, dtype=np.int32)
    rank[order] = np.arange(len(order))
    return _Cases(losses=tuple(losses[place] for place in order), number=rank[number])


def _decide(
    group: GroupSnapshot,
    context: RoundContext,
    cases: _Cases,
    open_: BoolArray,
    newcomers: Newcomers,
) -> tuple[Int32Array, BoolArray, set[int]]:
    """Decide each loss that has anything open.

    Returns:
        Who gets each loss, int32 (L + 1,), whether it waits, bool (L + 1,) (the last one of each
        stands for no loss at all), and the members that are no additional ones.
    """
    count = len(cases.losses)
    given = np.full(count + 1, NOBODY, dtype=np.int32)
    waiting = np.zeros(count + 1, dtype=np.bool_)
    taken: set[int] = set()
    if not open_.any():
        return given, waiting, taken
    number_of_id = {member: number for number, member in enumerate(group.member_ids)}
    names = _names_by_loss(group, cases, open_)
    for place in np.unique(cases.number[open_]).tolist():
        loss = cases.losses[place]
        owner = _present_owner(loss, number_of_id, newcomers.by_instance)
        candidate = newcomers.first_for(names[place], taken) if owner is None else None
        action = LOSS_ACTIONS.decide(
            back=owner is not None,
            static=loss.instance_id is not None,
            newcomer=candidate is not None,
            expired=context.now_ms >= loss.deadline_ms,
        )
        waiting[place] = action is LossAction.WAIT
        for wanted, member in ((LossAction.RETURN, owner), (LossAction.REPLACE, candidate)):
            if action is wanted and member is not None:
                given[place] = member
                taken.add(member)
    return given, waiting, taken


def _present_owner(
    loss: Loss, number_of_id: Mapping[str, int], by_instance: Mapping[str, int]
) -> int | None:
    for key, numbers in ((loss.owner, number_of_id), (loss.instance_id, by_instance)):
        if key is not None and key in numbers:
            return numbers[key]
    return None


def _names_by_loss(
    group: GroupSnapshot, cases: _Cases, open_: BoolArray
) -> dict[int, tuple[int, ...]]:
    """Numbers of the names that occur in each loss."""
    width = len(group.resources.names)
    keys = np.unique(
        cases.number[open_].astype(np.int64) * width + group.resources.name_numbers[open_]
    )
    names: dict[int, list[int]] = {}
    for key in keys.tolist():
        names.setdefault(key // width, []).append(key % width)
    return {loss: tuple(numbers) for loss, numbers in names.items()}


def _remembered(
    group: GroupSnapshot, cases: _Cases, waiting: BoolArray, now_ms: int
) -> tuple[Loss, ...]:
    places: Int64Array = np.flatnonzero(cases.number != NOBODY)
    places = places[np.argsort(cases.number[places], kind="stable")]
    sets = split_by_member(group.resources, cases.number[places], places, len(cases.losses))
    return tuple(
        attrs.evolve(loss, resources=left, given_ms=None if waits else now_ms)
        for loss, left, waits in zip(cases.losses, sets, waiting, strict=False)
        if left
    )
