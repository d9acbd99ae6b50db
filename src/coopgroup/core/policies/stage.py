"""The round of the built-in policies: from a target to the owner of each resource.

`offer_round` withholds the resources that wait, and `stage_round` decides. The table
`RESOURCE_ACTIONS` says what happens to each resource.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

import attrs
import numpy as np
from attrs import frozen

from coopgroup.core.model import NOBODY, RoundPlan
from coopgroup.core.model.plan import revoked_claims
from coopgroup.core.policies.balance import lag_moves
from coopgroup.core.policies.facts import (
    Unclaimed,
    find_unclaimed,
    may_keep,
    offered_owner,
    remember_round,
    rightful_resources,
    stopping_claims,
)
from coopgroup.core.policies.losses import Losses, follow_losses
from coopgroup.core.policies.memory import Holdings, member_numbers
from coopgroup.core.policies.moves import (
    MOVE_MODES,
    MoveMode,
    changed_for_good,
    first_moves,
    less_even,
)
from coopgroup.core.policies.policy import Offer, StagedRound
from coopgroup.core.policies.tables import DecisionTable, Row, _0, _1, __
from coopgroup.core.policies.warmth import taken_over

if TYPE_CHECKING:
    from coopgroup.core.model import GroupSnapshot
    from coopgroup.core.model.resource_set import BoolArray, Int32Array
    from coopgroup.core.policies.balance import BalanceRule
    from coopgroup.core.policies.policy import RoundContext


# --- the decision about each resource -------------------------------------------------------------
# From a target to a round, resource by resource, for every waiting policy.
#
# A claim counts as ownership until it is given up. A resource that could stay with its owner moves
# only if moves are allowed. A free resource is granted immediately. This module does not know why a
# resource waits or how many moves are allowed.
#
# Legend of the table `RESOURCE_ACTIONS`, one decision for each resource:
#
#     claimed   a member claims it, rightfully or not
#     keepable  it has a rightful owner that subscribes to it, and it exists
#     wanted    the target is that owner
#     moves     it may be taken from its owner in this round
#     waits     it is lost and waits for its owner
#     forming   it was never owned, and the first members of the group wait for others
#     withheld  a member with an unreadable subscription may own it


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
        receiver: int32 (R,): member that gets the resource if it is free.
        may_keep: bool (R,): `may_keep` of the group.
        moves: bool (R,): may be taken from an owner that could keep it.
        settled: whether a resource that goes elsewhere than to its target stays there for now.
        waits: bool (R,): waits for its owner.
        waiting_for_members: bool (R,): withheld while the group forms.
        told: bool (K,): claims that an earlier round revoked.
        due_ms: when the next round should start even if nothing happens, None for never.
        wait_ends_ms: end of the first wait for a lost owner or for the group's first members; None
            without one. An earlier `due_ms` is for moves.
        now_ms: the leader's clock.
    """

    target: Int32Array
    receiver: Int32Array
    may_keep: BoolArray
    moves: BoolArray
    settled: bool
    waits: BoolArray
    waiting_for_members: BoolArray
    told: BoolArray
    due_ms: int | None
    wait_ends_ms: int | None
    now_ms: int


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
        "keepable": staging.may_keep,
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
    assigned[granted] = staging.receiver[granted]
    waiting_for_members = RESOURCE_ACTIONS.decide_each(ResourceAction.HOLD, **facts)
    lost = RESOURCE_ACTIONS.decide_each(ResourceAction.DEFER, **facts) & group.subscribed()
    stops = revoked_claims(group, assigned)
    again = stops & staging.told
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


# --- the round ------------------------------------------------------------------------------------


@frozen(kw_only=True)
class Delays:
    """How long a policy waits.

    Attributes:
        loss_ms: wait for the owner of a lost resource.
        initial_ms: wait for more members when a group forms.
    """

    loss_ms: int
    initial_ms: int


@frozen(kw_only=True)
class Ration:
    """How fast a policy moves resources that could stay.

    Attributes:
        moves_max: how many resources one round takes from their owners.
        interval_ms: time between two such rounds; 0 for no pause.
    """

    moves_max: int
    interval_ms: int


@frozen(kw_only=True, eq=False)
class _Outlook:
    """Facts of a round before there is a target; R resources, K claims.

    Attributes:
        unclaimed: why each unclaimed resource is unclaimed.
        losses: resources that wait, and resources that return to their owner.
        told: bool (K,): claims that an earlier round revoked.
        initial_until_ms: until when resources that were never owned are withheld, None for not at
            all.
    """

    unclaimed: Unclaimed
    losses: Losses
    told: BoolArray
    initial_until_ms: int | None


@frozen(kw_only=True, eq=False)
class _Moves:
    """The resources that a round takes from owners that could keep them.

    Attributes:
        chosen: bool (R,): in this round.
        put_off: bool (R,): in a later round.
        due_ms: time before which no further resource is taken, or None.
    """

    chosen: BoolArray
    put_off: BoolArray
    due_ms: int | None

    @property
    def pending(self) -> bool:
        """Whether further moves will follow."""
        return bool(self.put_off.any())


def offer_round(group: GroupSnapshot, context: RoundContext, delays: Delays) -> Offer:
    """Withhold resources that wait for their owner, and name the owners of the others."""
    outlook = _look(group, context, delays)
    return Offer(
        owner=_offered(group, outlook.told, outlook.losses),
        withheld_from_assignor=outlook.losses.waits.copy(),
        facts=outlook,
    )


def stage_round(
    group: GroupSnapshot,
    target: Int32Array,
    context: RoundContext,
    offer: Offer,
    delays: Delays,
    ration: Ration | None = None,
    balance: BalanceRule | None = None,
) -> StagedRound:
    """Stage a round.

    Args:
        group: the group with R resources.
        target: int32 (R,): where the assignor wants the offered resources, `NOBODY` elsewhere.
        context: context of the round.
        offer: what `offer_round` returned.
        delays: how long the policy waits.
        ration: how fast it moves; None for everything together.
        balance: rule for moves only because of lags; None for no such moves.
    """
    # A policy that wraps this one may make an offer of its own.
    facts = offer.facts
    outlook = facts if isinstance(facts, _Outlook) else _look(group, context, delays)
    keeps = may_keep(group)
    restored_to = outlook.losses.restored_to
    # A returning member gets all its resources immediately, even if the target has changed.
    # Exception: the group is making room for an additional member, which would take them away in
    # the next round.
    returns = group.may_hold(restored_to) & ~((target != NOBODY) & outlook.losses.joined)
    receiver = np.where(returns, restored_to, target).astype(np.int32)
    told = rightful_resources(group, outlook.told) & keeps
    kept = np.where(keeps & ~told, group.owner, receiver).astype(np.int32)
    begun = _begun(group, context, outlook, delays)
    blind = context.state is None or context.state.blind
    waits = outlook.losses.wait_until_ms is not None
    mode = MOVE_MODES.decide(
        joined=outlook.losses.joined,
        waits=waits,
        begun=begun,
        blind=blind,
        returned=bool((restored_to != NOBODY).any()) or context.state is not None,
        uneven=less_even(group, kept, target),
        lagging=balance is not None and _lagging(group, context, ration),
    )
    if mode is MoveMode.MOVE:
        returned = _given_up(group, context, restored_to) & (target != NOBODY)
        receiver = np.where(returned, target, receiver).astype(np.int32)
    candidates = keeps & (group.owner != target) & ~told
    if mode is MoveMode.REST:
        candidates &= _planned(group, context)
    promised = _promised(group, context) if mode is not MoveMode.MOVE else _to_nobody(group)
    if mode is MoveMode.BALANCE:
        evened_out = _evening_out(group, target, context, candidates, balance)
        candidates &= evened_out != NOBODY
        promised = np.where(candidates, evened_out, promised).astype(np.int32)
    receiver = np.where(group.may_hold(promised), promised, receiver).astype(np.int32)
    held = _held(context, candidates, receiver)
    now = np.where(held, group.owner, target).astype(np.int32)  # what this round can reach
    moves = _rationed(group, now, context, candidates & ~held, ration)
    waiting_for_members = outlook.unclaimed.created & (outlook.initial_until_ms is not None)
    wait_ends_ms = _earliest(
        outlook.losses.wait_until_ms,
        outlook.initial_until_ms if waiting_for_members.any() else None,
    )
    due_ms = _earliest(wait_ends_ms, moves.due_ms if moves.pending else None)
    staging = Staging(
        target=np.where(held, receiver, target).astype(np.int32),
        receiver=receiver,
        may_keep=keeps | held,
        moves=moves.chosen | told,
        settled=mode is not MoveMode.MOVE,
        waits=outlook.losses.waits,
        waiting_for_members=waiting_for_members,
        told=outlook.told,
        due_ms=due_ms,
        wait_ends_ms=wait_ends_ms,
        now_ms=context.now_ms,
    )
    plan = stage_resources(group, outlook.unclaimed, staging)
    state = attrs.evolve(
        remember_round(group, context, outlook.unclaimed, plan.assigned, _entitled(group, outlook)),
        losses=outlook.losses.losses,
        lost=outlook.losses.lost,
        moves_due_ms=moves.due_ms,
        moves_pending=_unfinished(candidates, plan) if mode is MoveMode.MOVE else begun,
        planned=group.resources.take(moves.put_off | held),
        promised=_still_promised(group, promised, plan, held),
        blind=blind and waits,
        initial_until_ms=outlook.initial_until_ms,
        next_round_ms=due_ms,
    )
    return StagedRound(plan=plan, state=state)


def _look(group: GroupSnapshot, context: RoundContext, delays: Delays) -> _Outlook:
    unclaimed = find_unclaimed(group, context)
    losses = follow_losses(group, context, unclaimed, delays.loss_ms)
    told = stopping_claims(group, context)
    if context.warmth is not None:
        owner = _offered(group, told, losses)
        losses = losses.without(
            group, taken_over(context.warmth, owner, losses.waits), context.now_ms
        )
    return _Outlook(
        unclaimed=unclaimed,
        losses=losses,
        told=told,
        initial_until_ms=_initial_until_ms(group, context, delays.initial_ms),
    )


def _offered(group: GroupSnapshot, told: BoolArray, losses: Losses) -> Int32Array:
    """Return the owners as the assignor should see them, with those that are back: int32 (R,)."""
    owner = offered_owner(group, told)
    returns = losses.restored_to != NOBODY
    return np.where(returns, losses.restored_to, owner).astype(np.int32)


def _held(context: RoundContext, candidates: BoolArray, receiver: Int32Array) -> BoolArray:
    """Return the resources that stay with their owner until their receiver is warm: bool (R,).

    Resources of a member that hands over are among them. Its other resources move at once, outside
    the ration.
    """
    warmth = context.warmth
    if warmth is None:
        return np.zeros_like(candidates)
    return (candidates | warmth.leaving) & warmth.waits_for(receiver)


def _earliest(*times_ms: int | None) -> int | None:
    return min((time_ms for time_ms in times_ms if time_ms is not None), default=None)


def _begun(group: GroupSnapshot, context: RoundContext, outlook: _Outlook, delays: Delays) -> bool:
    """Return whether the group has changed permanently and has not reached the target since.

    A leader without memory learns of running moves from members that know of a pause between them.
    """
    state = context.state
    if not delays.loss_ms:
        return True
    if state is None:
        return any(member.rejoins_to_move for member in group.members)
    return (
        state.moves_pending
        or outlook.losses.expired
        or changed_for_good(group, state, outlook.unclaimed, outlook.told)
    )


def _planned(group: GroupSnapshot, context: RoundContext) -> BoolArray:
    """Return the resources that an earlier round planned to move later: bool (R,)."""
    if context.state is None:
        return np.zeros(len(group.resources), dtype=np.bool_)
    return group.mask_of(context.state.planned)


def _given_up(group: GroupSnapshot, context: RoundContext, restored_to: Int32Array) -> BoolArray:
    """Return what a member of the last round gave up by itself and would get back: bool (R,).

    An eager member gives up everything before each join. In a round with moves it would get back
    resources that the next round revokes, and give them up again; no round would be the last.
    """
    if context.state is None:
        return np.zeros(len(group.resources), dtype=np.bool_)
    there = member_numbers(group, context.state.members)
    given_up: BoolArray = np.isin(restored_to, there[there != NOBODY])
    return given_up


def _lagging(group: GroupSnapshot, context: RoundContext, ration: Ration | None) -> bool:
    """Return whether a few resources may move in this round because lags are uneven."""
    if not context.balance or context.lags is None or _planned(group, context).any():
        return False
    return ration is None or _moves_due_ms(group, context, ration.interval_ms) is None


def _evening_out(
    group: GroupSnapshot,
    target: Int32Array,
    context: RoundContext,
    candidates: BoolArray,
    balance: BalanceRule | None,
) -> Int32Array:
    """Return the receivers of moves made only because of lags, if allowed: int32 (R,)."""
    if balance is None or context.lags is None:
        return _to_nobody(group)
    lags = context.lags.aligned(group.resources)
    return lag_moves(group, target, lags, candidates, balance)


def _to_nobody(group: GroupSnapshot) -> Int32Array:
    return np.full(len(group.resources), NOBODY, dtype=np.int32)


def _promised(group: GroupSnapshot, context: RoundContext) -> Int32Array:
    """Return the receivers of resources that an earlier round revoked to balance lags: int32 (R,).

    An exchange stays an exchange. With newer lags the assignor might give its first half to a third
    member, and leave the two others with one resource too many and one too few.
    """
    if context.state is None:
        return _to_nobody(group)
    promised = context.state.promised
    there = member_numbers(group, context.state.members)
    return group.aligned(promised.resources, there[promised.holder])


def _entitled(group: GroupSnapshot, outlook: _Outlook) -> Int32Array:
    """Return the members that count as owners of unclaimed resources: int32 (R,)."""
    restored_to = outlook.losses.restored_to
    return np.where(group.may_hold(restored_to), restored_to, NOBODY).astype(np.int32)


def _still_promised(
    group: GroupSnapshot, promised: Int32Array, plan: RoundPlan, held: BoolArray
) -> Holdings:
    """Return the promised resources that are being stopped, or whose receiver warms up."""
    open_ = (promised != NOBODY) & ((plan.assigned == NOBODY) | held)
    return Holdings(resources=group.resources.take(open_), holder=promised[open_])


def _unfinished(candidates: BoolArray, plan: RoundPlan) -> bool:
    """Return whether a round towards the target does not reach it."""
    return bool(candidates.any() or plan.waiting.any() or plan.lost.any())


def _rationed(
    group: GroupSnapshot,
    target: Int32Array,
    context: RoundContext,
    candidates: BoolArray,
    ration: Ration | None,
) -> _Moves:
    if ration is None:
        return _Moves(chosen=candidates, put_off=np.zeros_like(candidates), due_ms=None)
    due_ms = _moves_due_ms(group, context, ration.interval_ms)
    if due_ms is not None or not candidates.any():
        return _Moves(chosen=np.zeros_like(candidates), put_off=candidates, due_ms=due_ms)
    chosen = first_moves(group, target, candidates, ration.moves_max)
    return _Moves(
        chosen=chosen,
        put_off=candidates & ~chosen,
        due_ms=context.now_ms + ration.interval_ms if ration.interval_ms else None,
    )


def _moves_due_ms(group: GroupSnapshot, context: RoundContext, interval_ms: int) -> int | None:
    """Return the end of the interval since the last moves, or None if it has passed.

    A leader that did not lead the last round does not know when that round revoked. If members know
    of a delay, it can be the rest of the interval, so the leader waits for it.
    """
    now_ms = context.now_ms
    if context.state is not None:
        due_ms = context.state.moves_due_ms
    else:
        known = [m.rejoin_in_ms for m in group.members if m.rejoin_in_ms is not None]
        due_ms = now_ms + min(known) if known else None
    if due_ms is None or due_ms <= now_ms or not interval_ms:
        return None
    return min(due_ms, now_ms + interval_ms)


def _initial_until_ms(
    group: GroupSnapshot, context: RoundContext, initial_delay_ms: int
) -> int | None:
    """Return until when the group's first resources are withheld, or None.

    A leader that did not begin the wait continues with the remaining time that its members know. A
    change of leaders shortens the wait and never restarts it.

    Args:
        group: the group.
        context: context of the round.
        initial_delay_ms: how long the first members wait; 0 for not at all.
    """
    if not initial_delay_ms:
        return None
    until_ms = None if context.state is None else context.state.initial_until_ms
    forms = _knows_of_no_owner(context) and not group.claim_members.size
    if until_ms is None and forms:
        known = [m.rejoin_in_ms for m in group.members if m.rejoin_in_ms is not None]
        until_ms = context.now_ms + min([*known, initial_delay_ms])
    # Design II: "use the deferment process to allow other members to join in that period". Without
    # a wait, new subscriptions "should be resolved immediately", also while lost resources wait.
    return until_ms if until_ms is not None and context.now_ms < until_ms else None


def _knows_of_no_owner(context: RoundContext) -> bool:
    """Return whether the leader has decided no round of the group and knows no owned resource.

    The memory of refused rounds alone is blind and names no resource. Without this case, a group
    whose first round was refused would share its resources before the other members arrive.
    """
    state = context.state
    return state is None or (state.blind and not state.known and not state.granted)
