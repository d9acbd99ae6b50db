"""The round of the built-in policies: from a target to the owner of each resource.

`offer_round` withholds the resources that wait. `stage_round` decides by three tables, one after
the other: may resources move (`MOVE_MODES`), who gets each resource (`RECEIVERS`), and what happens
to it (`RESOURCE_ACTIONS`). `_plan` makes the plan of these actions. Before there
is a target, `_look` collects the facts. Module `losses` decides about lost resources.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs
import numpy as np
from attrs import frozen

from coopgroup.core.model import NOBODY, RoundPlan
from coopgroup.core.model.pairs import NO_KEYS, members_of, pair_keys, resources_of
from coopgroup.core.model.plan import revoked_claims
from coopgroup.core.policies.balance import lag_moves
from coopgroup.core.policies.facts import (
    facts_of,
    may_have,
    may_keep,
    offered_owner,
    remember_round,
    rightful_resources,
)
from coopgroup.core.policies.losses import Losses, follow_losses
from coopgroup.core.policies.memory import PairKind, RememberedPairs
from coopgroup.core.policies.moves import changed_for_good, first_moves, less_even
from coopgroup.core.policies.policy import Offer, RoundFacts, StagedRound
from coopgroup.core.policies.tables import (
    MOVE_MODES,
    RECEIVERS,
    RESOURCE_ACTIONS,
    Decided,
    MoveMode,
    Receiver,
    ResourceAction,
)
from coopgroup.core.policies.warmth import taken_over

if TYPE_CHECKING:
    from coopgroup.core.model import GroupSnapshot
    from coopgroup.core.model.resource_set import BoolArray, Int32Array, Int64Array
    from coopgroup.core.policies.balance import BalanceRule
    from coopgroup.core.policies.memory import Recalled
    from coopgroup.core.policies.policy import RoundContext


_TIMEOUT_MS_MAX: Final = 2**31 - 1


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
    """Facts of a round before there is a target.

    Attributes:
        facts: the leader's facts.
        losses: resources that wait, and resources that return to their owner.
        changed: whether the group has changed permanently since the last round.
        promised: int32 (R,): member for which an earlier round stopped each resource, `NOBODY` for
            none, and for a member that may not have it. A permanent change ends all promises.
        taken: pairs of a resource and a member from which it was taken before. They end when a
            member joins or leaves, too.
        initial_until_ms: until when resources that were never owned are withheld, None for not at
            all.
    """

    facts: RoundFacts
    losses: Losses
    changed: bool
    promised: Int32Array
    taken: Int64Array
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
    # With warm-ups, `shown_owner` names the receivers of all unfinished moves.
    promised = outlook.promised if context.warmth is None else _to_nobody(group)
    return Offer(
        owner=_offered(group, outlook.facts.told, outlook.losses, promised),
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
    known = offer.facts
    outlook = known if isinstance(known, _Outlook) else _look(group, context, delays)
    facts, recalled = outlook.facts, outlook.facts.recalled
    keeps = may_keep(group)
    told = rightful_resources(group, facts.told) & keeps
    always_moves = not delays.loss_ms and balance is None
    begun = always_moves or _begun(group, context, outlook)
    blind = context.state is None or context.state.blind
    waits = outlook.losses.wait_until_ms is not None
    restored_to = outlook.losses.restored_to
    mode = MOVE_MODES.decide(
        joined=outlook.losses.joined,
        waits=waits,
        begun=begun,
        blind=blind,
        returned=bool((restored_to != NOBODY).any()) or context.state is not None,
        uneven=blind and _uneven(group, target, context, outlook, keeps & ~told),
        lagging=balance is not None and _lagging(group, context, recalled, ration),
    )
    candidates = keeps & (group.owner != target) & ~told
    if mode is MoveMode.REST:
        candidates &= recalled.remembered.planned
    promised = outlook.promised
    if mode is MoveMode.BALANCE:
        evened_out = _evening_out(group, target, context, candidates, balance)
        candidates &= evened_out != NOBODY
        promised = np.where(candidates, evened_out, promised).astype(np.int32)
    receiver = _receivers(group, target, context, outlook, promised, mode)
    taken = _among(group, outlook.taken)
    stays = taken & ~told
    candidates &= ~stays
    leaving, cold = _leaving_and_cold(context, candidates, receiver)
    now = np.where(cold | stays, group.owner, target).astype(np.int32)  # what this round can reach
    moves = _rationed(group, now, context, candidates & ~cold, ration)
    forms = facts.unclaimed.created & (outlook.initial_until_ms is not None)
    actions = RESOURCE_ACTIONS.decide_each(
        claimed=group.claimed(),
        keeps=keeps | leaving,
        wanted=group.owner == target,
        told=told,
        taken=taken,
        cold=cold,
        turn=moves.chosen | leaving,
        waits=outlook.losses.waits,
        forms=forms,
        unheard=facts.unclaimed.withheld,
    )
    wait_ends_ms = _earliest(
        outlook.losses.wait_until_ms, outlook.initial_until_ms if forms.any() else None
    )
    due_ms = _earliest(wait_ends_ms, moves.due_ms if moves.pending else None)
    plan = _plan(
        group,
        np.select([cold, actions.are(ResourceAction.KEEP)], [receiver, group.owner], target).astype(
            np.int32
        ),
        outlook,
        actions,
        receiver,
        is_settled=mode is not MoveMode.MOVE,
        rejoin_in_ms=_remaining_ms(due_ms, context.now_ms),
        loss_ends_in_ms=_remaining_ms(wait_ends_ms, context.now_ms),
    )
    state = remember_round(
        group, context, facts.unclaimed, plan.assigned, _entitled(group, outlook)
    )
    pending = _unfinished(candidates, plan) if mode is MoveMode.MOVE else begun
    stops = actions.are(ResourceAction.STOP) & (keeps | leaving)
    # An exchange is promised while the receiver warms up, too.
    is_promised = (promised != NOBODY) & ((plan.assigned == NOBODY) | cold)
    is_promised = (is_promised | stops) & (receiver != NOBODY)
    state = attrs.evolve(
        state,
        pairs=_with_taken(group, outlook, state.pairs, moves.chosen) if pending else state.pairs,
        resources=attrs.evolve(
            state.resources,
            loss=outlook.losses.number,
            receiver=np.where(is_promised, receiver, NOBODY).astype(np.int32),
            promised=is_promised,
            planned=moves.put_off | cold,
        ),
        losses=outlook.losses.losses,
        moves_due_ms=moves.due_ms,
        moves_pending=pending,
        blind=blind and waits,
        initial_until_ms=outlook.initial_until_ms,
        next_round_ms=due_ms,
    )
    return StagedRound(plan=plan, state=state)


def _leaving_and_cold(
    context: RoundContext, candidates: BoolArray, receiver: Int32Array
) -> tuple[BoolArray, BoolArray]:
    """Return the resources of members that hand over, and the moves that wait: bool (R,) each."""
    if context.warmth is None:
        return np.zeros_like(candidates), np.zeros_like(candidates)
    leaving = context.warmth.leaving
    return leaving, (candidates | leaving) & context.warmth.waits_for(receiver)


def _receivers(
    group: GroupSnapshot,
    target: Int32Array,
    context: RoundContext,
    outlook: _Outlook,
    promised: Int32Array,
    mode: MoveMode,
) -> Int32Array:
    """Return who gets each resource that is free or leaves its owner: int32 (R,)."""
    restored_to, joined = outlook.losses.restored_to, outlook.losses.joined
    given_up = np.zeros(target.size, dtype=np.bool_)
    if mode is MoveMode.MOVE:
        given_up = _given_up(outlook)
    gets = RECEIVERS.decide_each(
        promised=promised != NOBODY,
        elsewhere=target != NOBODY,
        limited=np.full(target.size, context.has_limits, dtype=np.bool_),
        joined=np.full(target.size, joined, dtype=np.bool_),
        given_up=given_up,
        back=may_have(group, restored_to),
    )
    chosen = [gets.are(Receiver.PROMISED), gets.are(Receiver.OWNER)]
    return np.select(chosen, [promised, restored_to], target).astype(np.int32)


def _uneven(
    group: GroupSnapshot,
    target: Int32Array,
    context: RoundContext,
    outlook: _Outlook,
    stays: BoolArray,
) -> bool:
    """Return whether counts would be less even than in the target if nothing moved."""
    receiver = _receivers(group, target, context, outlook, _to_nobody(group), MoveMode.REST)
    return less_even(group, np.where(stays, group.owner, receiver).astype(np.int32), target)


def _plan(
    group: GroupSnapshot,
    target: Int32Array,
    outlook: _Outlook,
    actions: Decided[ResourceAction],
    receiver: Int32Array,
    *,
    is_settled: bool,
    rejoin_in_ms: int | None,
    loss_ends_in_ms: int | None,
) -> RoundPlan:
    """Return the plan that the actions make.

    Args:
        group: the group.
        target: int32 (R,): where each resource is to go in the end.
        outlook: facts of the round.
        actions: one for each resource.
        receiver: int32 (R,): member that gets the resource if it is free.
        is_settled: whether a resource that goes elsewhere than to its target stays there for now.
        rejoin_in_ms: time to the next round even if nothing happens, None for never.
        loss_ends_in_ms: time to the end of the first wait, None without one.
    """
    kept = actions.are(ResourceAction.KEEP) | actions.are(ResourceAction.HOLD)
    kept |= actions.are(ResourceAction.WARM)
    granted = actions.are(ResourceAction.GRANT)
    gathers = actions.are(ResourceAction.GATHER)
    lost = actions.are(ResourceAction.WAIT) & group.subscribed()
    assigned = np.full(len(group.resources), NOBODY, dtype=np.int32)
    assigned[kept] = group.owner[kept]
    assigned[granted] = receiver[granted]
    stops = revoked_claims(group, assigned)
    again = stops & outlook.facts.told
    waiting = (target != NOBODY) & (assigned != target) & ~gathers & ~lost
    # These resources need another round, although no member stops them in this round.
    soon = waiting & (outlook.facts.unclaimed.withheld | (granted & (not is_settled)))
    if is_settled:
        waiting &= ~granted  # already granted, so no member has to release it
    follow_up = bool((stops & ~again).any() or soon.any())
    # While members stop resources or rejoin anyway, no delay is announced.
    is_silent = follow_up or again.any()
    return RoundPlan(
        target=target,
        assigned=assigned,
        follow_up=follow_up,
        rejoin_in_ms=None if is_silent else rejoin_in_ms,
        loss_ends_in_ms=None if is_silent else loss_ends_in_ms,
        lost=lost,
        created=outlook.facts.unclaimed.created & (assigned != NOBODY),
        waiting=waiting,
        waiting_for_members=gathers & group.subscribed(),
        stopping=again,
    )


def _remaining_ms(until_ms: int | None, now_ms: int) -> int | None:
    """Return the remaining time to announce: at least 1, or None."""
    return None if until_ms is None else min(max(until_ms - now_ms, 1), _TIMEOUT_MS_MAX)


def _look(group: GroupSnapshot, context: RoundContext, delays: Delays) -> _Outlook:
    """Return the facts of a round before there is a target."""
    facts = facts_of(group, context)
    losses = follow_losses(group, context, delays.loss_ms)
    recalled, state = facts.recalled, context.state
    if context.warmth is not None:
        owner = _offered(group, facts.told, losses, _to_nobody(group))
        losses = losses.without(
            group, taken_over(context.warmth, owner, losses.waits), context.now_ms
        )
    changed = losses.joined or losses.expired
    changed = changed or (state is not None and changed_for_good(group, state, facts))
    promised, taken = _to_nobody(group), NO_KEYS
    if not changed:
        may_get = may_have(group, recalled.promised_to) & group.assignable
        promised = np.where(may_get, recalled.promised_to, NOBODY).astype(np.int32)
        if state is not None and state.members.ids == group.member_ids:
            taken, _ = recalled.pairs_of(PairKind.TAKEN)
    return _Outlook(
        facts=facts,
        losses=losses,
        changed=changed,
        promised=promised,
        taken=taken,
        initial_until_ms=_initial_until_ms(group, context, delays.initial_ms),
    )


def _offered(
    group: GroupSnapshot, told: BoolArray, losses: Losses, promised: Int32Array
) -> Int32Array:
    """Return the owners as the assignor should see them: int32 (R,).

    Owners that are back count as owners, and so do the receivers of resources that were stopped.
    """
    owner = offered_owner(group, told)
    owner = np.where(losses.restored_to != NOBODY, losses.restored_to, owner)
    return np.where(owner == NOBODY, promised, owner).astype(np.int32)


def _earliest(*times_ms: int | None) -> int | None:
    return min((time_ms for time_ms in times_ms if time_ms is not None), default=None)


def _begun(group: GroupSnapshot, context: RoundContext, outlook: _Outlook) -> bool:
    """Return whether the group has changed permanently and has not reached the target since.

    A leader without memory learns of running moves from members that know of a pause between them,
    and of a change from a member that owns what it no longer subscribes to.
    """
    state = context.state
    if state is None:
        unsubscribed = (group.owner != NOBODY) & group.assignable & ~may_keep(group)
        return any(member.rejoins_to_move for member in group.members) or bool(unsubscribed.any())
    return state.moves_pending or outlook.changed


def _among(group: GroupSnapshot, keys: Int64Array) -> BoolArray:
    """Return which resources and their owners are among the pairs: bool (R,)."""
    found = np.zeros(len(group.resources), dtype=np.bool_)
    place = resources_of(group, keys)
    found[place[group.owner[place] == members_of(group, keys)]] = True
    return found


def _with_taken(
    group: GroupSnapshot, outlook: _Outlook, pairs: RememberedPairs, chosen: BoolArray
) -> RememberedPairs:
    """Return the pairs of a round, with everything that was taken from its owner.

    Args:
        group: the group with R resources.
        outlook: facts of the round.
        pairs: what members must stop.
        chosen: bool (R,): what the round takes from owners that could keep it.
    """
    place = np.flatnonzero(chosen)
    keys = np.union1d(outlook.taken, pair_keys(group, place, group.owner[place]))
    taken = RememberedPairs.of(PairKind.TAKEN, resources_of(group, keys), members_of(group, keys))
    return RememberedPairs.all_of(pairs, taken)


def _given_up(outlook: _Outlook) -> BoolArray:
    """Return what a member of the last round gave up by itself and would get back: bool (R,).

    An eager member gives up everything before each join. In a round with moves it would get back
    resources that the next round revokes, and give them up again; no round would be the last.
    """
    number_of = outlook.facts.recalled.number_of
    given_up: BoolArray = np.isin(outlook.losses.restored_to, number_of[number_of != NOBODY])
    return given_up


def _lagging(
    group: GroupSnapshot, context: RoundContext, recalled: Recalled, ration: Ration | None
) -> bool:
    """Return whether a few resources may move in this round because lags are uneven."""
    if not context.balance or context.lags is None or recalled.remembered.planned.any():
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
    return lag_moves(group, target, lags, candidates, balance, has_limits=context.has_limits)


def _to_nobody(group: GroupSnapshot) -> Int32Array:
    return np.full(len(group.resources), NOBODY, dtype=np.int32)


def _entitled(group: GroupSnapshot, outlook: _Outlook) -> Int32Array:
    """Return the members that count as owners of unclaimed resources: int32 (R,)."""
    restored_to = outlook.losses.restored_to
    return np.where(group.may_hold(restored_to), restored_to, NOBODY).astype(np.int32)


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
    return state is None or (state.blind and not state.resources.past.any())
