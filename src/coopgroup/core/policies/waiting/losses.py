"""Decide who gets the resources of departed members, and whether they still wait (Design II).

A loss never waits for a present member. A new member replaces at most one departed member. The
deadline of a loss ends its wait, whatever happens meanwhile. Module `cases` finds the losses, and
sets their deadlines.

Legend of the table `LOSS_ACTIONS`, one decision for each unclaimed loss:

    back      the owner is present, by its member id or by its static id
    static    the owner had a static id
    newcomer  a new member without a static id and without rightful claims subscribes to everything
              that was lost, and does not replace another owner; also one with a static id if the
              owner is unknown
    expired   the deadline has passed
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

import attrs
import numpy as np
from attrs import frozen

from coopgroup.core.model import NOBODY
from coopgroup.core.model.resource_set import numbers_in
from coopgroup.core.policies.state import NO_HOLDINGS, Holdings, Loss
from coopgroup.core.policies.table import DecisionTable, Row, _0, _1, __
from coopgroup.core.policies.waiting.cases import find_cases, remembered_losses
from coopgroup.core.policies.waiting.newcomers import Newcomers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coopgroup.core.model import GroupSnapshot
    from coopgroup.core.model.resource_set import BoolArray, Int32Array
    from coopgroup.core.policies.base import RoundContext
    from coopgroup.core.policies.unclaimed import Unclaimed
    from coopgroup.core.policies.waiting.cases import LossCases
    from coopgroup.core.policies.waiting.newcomers import NewcomerQueue

__all__ = ["LOSS_ACTIONS", "LossAction", "Losses", "follow_losses"]


class LossAction(Enum):
    """The decision about a loss in a round."""

    RETURN = "to its owner, which has returned"
    REPLACE = "to a newcomer that counts as its owner"
    WAIT = "to no member yet"
    RELEASE = "to any member, as the assignor decides"


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
@A: An owner that returned gets its resources immediately, even if this round is at the deadline.
@B: Without a static id a process returns under a new member id, so one newcomer counts as one
    departed member. This holds at the deadline, too: the newcomer has nothing yet, so giving it
    the loss disturbs least.
@C: The owner may still return; the deadline does not change.
@D: The owner did not return in time.
@E: A static owner can prove its identity, so no other member counts as it: a newcomer with
    another identity is an additional member.
@F: The static owner did not return in time.
"""


@frozen(kw_only=True, eq=False)
class Losses:
    """What a round must know about losses, in a group with R resources.

    Attributes:
        restored_to: int32 (R,): member that gets an unclaimed resource because it is, or counts as,
            its owner; `NOBODY` if the assignor decides.
        waits: bool (R,): waits for its owner and is not placed in this round.
        losses: losses to remember, by deadline and owner.
        lost: number in `losses` of each lost resource.
        wait_until_ms: earliest deadline of the waiting losses; None without one.
        joined: whether an additional member joined.
        expired: whether the wait of a loss has ended, so that the assignor decides.
    """

    restored_to: Int32Array
    waits: BoolArray
    losses: tuple[Loss, ...]
    lost: Holdings
    wait_until_ms: int | None
    joined: bool
    expired: bool

    def without(self, group: GroupSnapshot, taken: BoolArray | None, now_ms: int) -> Losses:
        """Return the losses if warm members take some of the resources.

        The loss is still remembered: its deadline counts if the new owner never claims them. The
        group has changed permanently, so moves that level it may begin. An owner that returns later
        can get only the rest, so the loss is marked as shared.

        Args:
            group: the group with R resources.
            taken: bool (R,): which ones; None for none.
            now_ms: the leader's clock.
        """
        if taken is None or not taken.any():
            return self
        waits = self.waits & ~taken
        number = group.aligned(self.lost.resources, self.lost.holder)
        urgent = numbers_in(number[waits & group.subscribed()]).tolist()
        waiting = np.array([*(one.given_ms is None for one in self.losses), False])
        shared = numbers_in(number[taken]).tolist()
        known = tuple(
            attrs.evolve(one, shared=one.shared or place in shared)
            for place, one in enumerate(self.losses)
        )
        losses, lost = remembered_losses(group, known, number, waiting[number] & ~taken, now_ms)
        return attrs.evolve(
            self,
            losses=losses,
            lost=lost,
            restored_to=np.where(taken, NOBODY, self.restored_to).astype(np.int32),
            waits=waits,
            wait_until_ms=min((self.losses[n].deadline_ms for n in urgent), default=None),
            expired=True,
        )


def follow_losses(
    group: GroupSnapshot, context: RoundContext, unclaimed: Unclaimed, delay_ms: int
) -> Losses:
    """Decide the losses of a round.

    Args:
        group: the group with R resources.
        context: context of the round.
        unclaimed: result of `find_unclaimed` for the group.
        delay_ms: how long a loss waits for its owner; 0 for not at all.
    """
    newcomers = Newcomers.of(group, context)
    if not delay_ms:
        return Losses(
            restored_to=np.full(len(group.resources), NOBODY, dtype=np.int32),
            waits=np.zeros(len(group.resources), dtype=np.bool_),
            losses=(),
            lost=NO_HOLDINGS,
            wait_until_ms=None,
            joined=newcomers.any_but(()),
            expired=False,
        )
    cases = find_cases(group, context, unclaimed, newcomers, delay_ms)
    dealt = cases.dealt
    open_ = (cases.holder == NOBODY) & (dealt == NOBODY)
    number = np.where(open_, cases.number, NOBODY)
    given, waiting, taken = _decide(group, context, cases, number, newcomers)
    waits = waiting[number]
    # without a subscriber a resource cannot be assigned anyway
    urgent = numbers_in(number[waits & group.subscribed()])
    losses, lost = remembered_losses(
        group, cases.losses, cases.number, waiting[cases.number], context.now_ms
    )
    certain = np.where(dealt == NOBODY, cases.holder, dealt)
    return Losses(
        restored_to=np.where(number == NOBODY, certain, given[number]).astype(np.int32),
        waits=waits,
        losses=losses,
        lost=lost,
        wait_until_ms=min((cases.losses[n].deadline_ms for n in urgent.tolist()), default=None),
        joined=newcomers.any_but(taken.union(numbers_in(dealt).tolist())),
        expired=bool(((number != NOBODY) & ~waits & (given[number] == NOBODY)).any()),
    )


def _decide(
    group: GroupSnapshot,
    context: RoundContext,
    cases: LossCases,
    number: Int32Array,
    newcomers: Newcomers,
) -> tuple[Int32Array, BoolArray, set[int]]:
    """Decide each of L losses with unclaimed resources.

    Resources that were granted after the wait had ended, and are still unclaimed, are free. Other
    members already own the rest of such a loss. If its owner got a remainder back, the owner would
    not count as additional, and would keep too small a share.

    If warm members took a part of a loss, its owner or replacement gets the rest and is additional.

    Returns:
        The receiver of each loss, int32 (L + 1,); whether it waits, bool (L + 1,) (the last entry
        of each means no loss); and the members that are not additional.
    """
    given = np.full(len(cases.losses) + 1, NOBODY, dtype=np.int32)
    waiting = np.zeros(len(cases.losses) + 1, dtype=np.bool_)
    queue = newcomers.queue_up(group, number, len(cases.losses))
    positions = [n for n in numbers_in(number).tolist() if not cases.losses[n].given_late]
    owners, candidates = _who_returns(group, cases, positions, newcomers, queue)
    for position in positions:
        action = LOSS_ACTIONS.decide(
            back=position in owners,
            static=cases.losses[position].instance_id is not None,
            newcomer=position in candidates,
            expired=context.now_ms >= cases.losses[position].deadline_ms,
        )
        waiting[position] = action is LossAction.WAIT
        if action is LossAction.RETURN:
            given[position] = owners[position]
        elif action is LossAction.REPLACE:
            given[position] = candidates[position]
    with_a_rest = {int(given[position]) for position in positions if cases.losses[position].shared}
    return given, waiting, queue.taken - with_a_rest


def _who_returns(
    group: GroupSnapshot,
    cases: LossCases,
    positions: list[int],
    newcomers: Newcomers,
    queue: NewcomerQueue,
) -> tuple[dict[int, int], dict[int, int]]:
    """Return the present owners by loss, and new members that replace owners without a static id.

    New members of the same client come first, so that each process of a restarting batch gets its
    own resources back; then the others, in the order of losses.
    """
    owners: dict[int, int] = {}
    for position in positions:
        owner = _present_owner(
            cases.losses[position], group.number_of_member, newcomers.by_instance
        )
        if owner is not None:
            owners[position] = queue.take(owner)
    candidates: dict[int, int] = {}
    for first_for in (queue.same_client_for, queue.first_for, queue.first_static_for):
        for position in positions:
            loss = cases.losses[position]
            if position not in owners and position not in candidates and loss.instance_id is None:
                candidate = first_for(position, loss.owner)
                if candidate is not None:
                    candidates[position] = queue.take(candidate)
    return owners, candidates


def _present_owner(
    loss: Loss, number_of_id: Mapping[str, int], by_instance: Mapping[str, int]
) -> int | None:
    for key, numbers in ((loss.owner, number_of_id), (loss.instance_id, by_instance)):
        if key is not None and key in numbers:
            return numbers[key]
    return None
