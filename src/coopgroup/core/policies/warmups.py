"""Warm-ups: a member restores the state of a resource before it owns it (KIP-441).

The price of a move is the time to restore state. With warm-ups the owner goes on working. The
leader assigns a warm-up first. It moves the resource when the new owner says that it is warm.

Terms of KIP-441: the active member owns a resource; a warm-up prepares a move; a standby stays warm
for the case of a loss. A member is warm for a resource if it says so in its subscription, and cold
otherwise. A member takes part if it tells a warm set at all.

A round with warm-ups, step by step:

1. `warmth_of` collects the facts: warm members, running warm-ups, planned receivers, and members
   that hand over (module `warmth`).
2. A free resource goes to a warm member. A lost one then does not wait for its owner.
3. The assignor answers, and perhaps once more (`shown_again`): it sees running warm-ups as done, so
   that they are kept.
4. The policy holds back a move to a cold member (`Warmth.waits_for`), and the member warms up
   (`held_moves`). A plan with such a move is refused.
5. Module `standbys` chooses the members that stay warm beside the owner.
6. `Warming` has the order of these steps, the limits, and the memory for the next round.

Resources that belong together are bundles (module `bundles`). The whole round is decided for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs
import numpy as np
from attrs import frozen

from coopgroup.core.model import EMPTY, NOBODY
from coopgroup.core.model.pairs import (
    NO_KEYS,
    holds,
    keys_of_sets,
    members_of,
    pair_keys,
    resources_of,
)
from coopgroup.core.policies.facts import facts_of, may_keep, rightful_resources
from coopgroup.core.policies.memory import PairKind, Past, RememberedPairs
from coopgroup.core.policies.moves import less_even
from coopgroup.core.policies.policy import Offer
from coopgroup.core.policies.standbys import Slots, Standbys
from coopgroup.core.policies.warmth import (
    Warmth,
    Warmup,
    given_to_warm,
    keys_of,
    shown_owner,
    subscribes,
    taken_over,
    warmup_of,
)

if TYPE_CHECKING:
    from coopgroup.core.model import GroupSnapshot, RoundPlan
    from coopgroup.core.model.resource_set import BoolArray, Int32Array, Int64Array
    from coopgroup.core.policies.memory import PolicyState
    from coopgroup.core.policies.policy import Policy, RoundContext, StagedRound


# --- the facts of a round -------------------------------------------------------------------------


def warmth_of(
    group: GroupSnapshot, context: RoundContext, option: Warmup, barred: Int64Array = NO_KEYS
) -> Warmth:
    """Collect the facts of a round.

    Args:
        group: the group with M members and R resources.
        context: circumstances of the round.
        option: the options.
        barred: pairs for which nothing warms up, ascending.
    """
    takes_part = np.array([member.warms for member in group.members], dtype=np.bool_)
    warm = pair_keys(group, group.warm_resources, group.warm_members)
    # Nothing warms up a resource that was deleted, even if a member still claims it.
    warm = warm[subscribes(group, warm) & group.assignable[resources_of(group, warm)]]
    warm = warm[~_is_stale(group, context, warm)]
    warm = warm[~holds(barred, warm)]
    owned = group.owner[resources_of(group, warm)] == members_of(group, warm)
    running, since_ms, refused = _remembered(group, context, takes_part, warm, barred)
    facts = facts_of(group, context)
    recalled, told = facts.recalled, rightful_resources(group, facts.told)
    kept_group = with_leavers(group)
    keeps = may_keep(kept_group) & ~told
    receivers = np.where(group.may_hold(recalled.receiver), recalled.receiver, NOBODY)
    return Warmth(
        group=group,
        option=option,
        now_ms=context.now_ms,
        remembers=context.state is not None,
        takes_part=takes_part,
        warm=warm[~owned],
        running=running,
        since_ms=since_ms,
        receivers=receivers.astype(np.int32),
        orphaned=(recalled.remembered.receiver != NOBODY) & (receivers == NOBODY),
        refused=refused,
        declined=_declined(group, warm),
        barred=barred,
        kept_group=kept_group,
        keeps=keeps,
        leaving=keeps & ~may_keep(group),
        told=told,
        free=group.assignable & group.subscribed() & ~group.claimed(),
    )


def _is_stale(group: GroupSnapshot, context: RoundContext, warm: Int64Array) -> BoolArray:
    """Return the warm pairs that the last round cancelled, in claims older than that round.

    The coordinator can answer for a static member with an old join. The member may be away, and its
    warm-up may be cancelled since. A resource given to it would wait for the whole session.
    """
    state = context.state
    if state is None or not warm.size:
        return np.zeros(warm.size, dtype=np.bool_)
    before = set(state.members.ids)
    old = [
        member.member_id in before and member.generation < context.generation
        for member in group.members
    ]
    kept, _ = facts_of(group, context).recalled.pairs_of(PairKind.WARMING, PairKind.WARM)
    stale: BoolArray = np.array(old, dtype=np.bool_)[members_of(group, warm)]
    return stale & ~holds(kept, warm)


def _declined(group: GroupSnapshot, warm: Int64Array) -> Int64Array:
    """Return the warm-ups that members declined. A member that is warm declines no longer."""
    keys = keys_of_sets(group, [m.declined_warmups if m.warms else EMPTY for m in group.members])
    counts = subscribes(group, keys) & ~holds(warm, keys)
    counts &= group.owner[resources_of(group, keys)] != members_of(group, keys)
    return keys[counts]


def _remembered(
    group: GroupSnapshot,
    context: RoundContext,
    takes_part: BoolArray,
    warm: Int64Array,
    barred: Int64Array,
) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Return the running warm-ups, when each began, and the refused pairs."""
    recalled = facts_of(group, context).recalled
    running, pairs = recalled.pairs_of(PairKind.WARMING, PairKind.WARM)
    since_ms = np.where(pairs.are(PairKind.WARM), context.now_ms, pairs.since_ms)
    members, resources = members_of(group, running), resources_of(group, running)
    counts = takes_part[members] & subscribes(group, running) & group.assignable[resources]
    counts &= (group.owner[resources] != members) & ~holds(barred, running)
    refused = NO_KEYS
    if context.state is not None and context.state.members.ids == group.member_ids:
        refused, _ = recalled.pairs_of(PairKind.REFUSED)
        refused = refused[~holds(warm, refused)]
    return running[counts], since_ms[counts], refused


# --- members that hand over -----------------------------------------------------------------------
# They leave permanently, and work until their next owners are warm. Such a member subscribes to
# nothing, so the assignor gives its resources to others. Without warm-ups a policy takes them from
# it at once. With warm-ups it may keep what it owns, until the receiver is warm.


def with_leavers(group: GroupSnapshot) -> GroupSnapshot:
    """Return the group in which members that hand over may keep what they rightfully own.

    If no other member subscribes to a resource, it has no next owner, and is given up at once.
    """
    leavers = [
        number
        for number, member in enumerate(group.members)
        if member.hands_over and not group.subscriptions[group.class_of[number]]
    ]
    if not leavers:
        return group
    subscriptions, class_of = list(group.subscriptions), group.class_of.copy()
    names = group.resources.name_numbers
    for number in leavers:
        owned = np.unique(names[(group.owner == number) & group.subscribed()]).tolist()
        topics = tuple(group.resources.names[name] for name in owned)
        if topics not in subscriptions:
            subscriptions.append(topics)
        class_of[number] = subscriptions.index(topics)
    return attrs.evolve(group, subscriptions=tuple(subscriptions), class_of=class_of)


# --- the answer of the assignor -------------------------------------------------------------------
# Ask the assignor once more, so that warm members and running warm-ups are used.
#
# An assignor chooses some resources of a full member for an empty one. Others of that member would
# even out the group just as well, and the empty member may be warm for these. Also, a sticky
# assignor chooses other resources once the first ones have moved, and every running warm-up would
# be wasted.
#
# So the assignor sees moves to warm or warming receivers as done. They replace as many cold moves
# of the same owners and receivers. A sticky assignor keeps them. An assignor that is not sticky
# gives the same answer as before. The second answer counts only if it is better: it has no more
# moves, and then fewer cold ones.
#
# A resource that timed out and was cancelled for a member is exchanged in the same way for another
# one of the same owner.


_REPLACED_MAX: Final = 64  # cancelled moves for which another resource is looked up in one round


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


def _moves_of(warmth: Warmth, target: Int32Array) -> _Moves:
    move = warmth.keeps & (target != NOBODY) & (target != warmth.group.owner)
    cold = move & warmth.is_cold(target)
    refuses = cold & warmth.are_among(warmth.cancelled, target)
    new = cold & ~warmth.are_among(warmth.running, target)
    return _Moves(
        move=move,
        settled=move & ~new & ~refuses,
        cost=(int(move.sum()), int(refuses.sum()), int(new.sum()), int(cold.sum())),
    )


def _instead(warmth: Warmth, target: Int32Array, exchanged: BoolArray) -> Int64Array:
    """Return the moves to show as done, at most one for each exchanged move."""
    group = warmth.group
    members = len(group.members)
    gives = np.bincount(group.owner[exchanged], minlength=members)
    gets = np.bincount(target[exchanged], minlength=members)
    planned = keys_of(group, warmth.keeps, warmth.receivers)
    candidates = np.concatenate(
        [
            planned[holds(warmth.warm, planned)],
            planned[holds(warmth.running, planned) & ~holds(warmth.warm, planned)],
            warmth.warm[~holds(planned, warmth.warm)],
            _replacements(warmth, target, exchanged),
        ]
    )
    resources = resources_of(group, candidates)
    owners, receivers = group.owner[resources], members_of(group, candidates)
    fits = warmth.keeps[resources] & (target[resources] == owners) & (receivers != owners)
    fits &= (gives[owners] > 0) & (gets[receivers] > 0) & ~holds(warmth.cancelled, candidates)
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


def _replacements(warmth: Warmth, target: Int32Array, exchanged: BoolArray) -> Int64Array:
    """Return other resources of the owners whose moves to a member were cancelled."""
    group = warmth.group
    cancelled = np.flatnonzero(exchanged & warmth.are_among(warmth.cancelled, target))[
        :_REPLACED_MAX
    ]
    pairs = sorted(
        set(zip(group.owner[cancelled].tolist(), target[cancelled].tolist(), strict=True))
    )
    found = [NO_KEYS]
    for owner, receiver in pairs:
        stays = np.flatnonzero(warmth.keeps & (group.owner == owner) & (target == owner))
        keys = pair_keys(group, stays, np.full_like(stays, receiver))
        keys = keys[subscribes(group, keys) & ~holds(warmth.cancelled, keys)]
        found.append(keys[:_REPLACED_MAX])
    return np.concatenate(found)


# --- the moves of a staged round ------------------------------------------------------------------
# The moves of a staged round, and those that a policy may not make yet.


@frozen(kw_only=True, eq=False)
class HeldMoves:
    """The moves of a staged round to cold members.

    Attributes:
        held: bool (R,): stays with its owner only because its receiver is cold.
        made: bool (R,): is taken from its owner although its receiver is cold. Such a plan is
            refused.
        receiver: int32 (R,): final receiver of each resource that the policy moves or grants;
            `NOBODY` for a resource that stays.
    """

    held: BoolArray
    made: BoolArray
    receiver: Int32Array


def held_moves(warmth: Warmth, staged: StagedRound) -> HeldMoves:
    """Find the moves of a round.

    Args:
        warmth: facts of the round with R resources.
        staged: what the policy decided.
    """
    receiver = _receivers_of(staged)
    taken = warmth.keeps & (staged.plan.assigned != warmth.group.owner)
    moves = (receiver != warmth.group.owner) & (taken | _planned_in(warmth, staged))
    cold = moves & warmth.waits_for(receiver)
    receiver = np.where(warmth.keeps & ~moves, NOBODY, receiver).astype(np.int32)
    return HeldMoves(held=cold & ~taken, made=cold & taken, receiver=receiver)


def _receivers_of(staged: StagedRound) -> Int32Array:
    """Return the receivers of a round's moves: promised ones, else the target."""
    target = staged.plan.target
    if staged.state is None:
        return target
    rows = staged.state.resources
    return np.where(rows.promised, rows.receiver, target).astype(np.int32)


def _planned_in(warmth: Warmth, staged: StagedRound) -> BoolArray:
    """Return the resources that a round plans to take later: bool (R,)."""
    if staged.state is None:
        return warmth.keeps & staged.plan.waiting
    return warmth.keeps & staged.state.resources.planned


# --- the round ------------------------------------------------------------------------------------
# `Warming`: a round with warm-ups, around any assignor and any policy.
#
# The leader calls these steps, between the calls of policy and assignor:
#
# 1. `shown`: the assignor's view.
# 2. `shown_again` and `better`: its second view, and the better of its two answers.
# 3. `target_of`: the target, with warm members preferred.
# 4. `staged`: the policy's round with the warm-ups of the plan.
#
# Limits of cold warm-ups: those of moves come first, running ones before new ones, each by
# resource; then those of standbys in the same order. A member that is kept warm does not count.
#
# The leader remembers each warm-up and when it began, the receiver of each unfinished move, and the
# pairs that timed out or were declined. A new leader knows only the members' warm sets. It keeps
# them warm in its first round, and starts the time of cold warm-ups anew.


@frozen(kw_only=True, eq=False)
class Warming:
    """Warm-ups of one round.

    Attributes:
        warmth: facts of the round.
        context: circumstances of the round.
        offer: the policy's offer.
        taken: bool (R,): waits or returns in the offer, and a warm member takes it.
    """

    warmth: Warmth
    context: RoundContext
    offer: Offer
    taken: BoolArray

    @classmethod
    def of(cls, context: RoundContext, offer: Offer) -> Warming | None:
        """Return the warm-ups of a round; None for a round without them."""
        warmth = context.warmth
        if warmth is None:
            return None
        taken = taken_over(warmth, offer.owner, offer.withheld_from_assignor)
        return cls(warmth=warmth, context=context, offer=offer, taken=taken)

    @property
    def shown(self) -> Offer:
        """The offer as the assignor should see it."""
        return Offer(
            owner=shown_owner(self.warmth, self.offer.owner, self.taken),
            withheld_from_assignor=self.offer.withheld_from_assignor & ~self.taken,
        )

    def shown_again(self, answer: Int32Array) -> Int32Array | None:
        """Return the owners for a second question to the assignor: int32 (R,).

        Args:
            answer: int32 (R,): its answer to the first one.

        Returns:
            None if a second answer cannot be better.
        """
        moves = _moves_of(self.warmth, answer)
        exchanged = moves.move & ~moves.settled
        instead = _instead(self.warmth, answer, exchanged) if exchanged.any() else NO_KEYS
        if not instead.size:
            return None
        group, done = self.warmth.group, np.where(moves.settled, answer, self.shown.owner)
        done[resources_of(group, instead)] = members_of(group, instead)
        return done.astype(np.int32)

    def better(self, first: Int32Array, second: Int32Array) -> Int32Array:
        """Return the better one of two answers of the assignor."""
        return min(first, second, key=lambda answer: _moves_of(self.warmth, answer).cost)

    def target_of(self, answer: Int32Array) -> Int32Array:
        """Return the assignor's answer with free resources given to warm members: int32 (R,).

        If the assignor has limits, only it knows whether a warm member has a place.
        """
        returns = (self.offer.owner != NOBODY) & ~self.taken
        past = facts_of(self.warmth.group, self.context).recalled.past
        given = given_to_warm(self.warmth, answer, returns, past == Past.RELEASED)
        if self.context.has_limits:
            given = np.where(self.warmth.free, answer, given).astype(np.int32)
        return given

    def staged(self, answer: Int32Array, target: Int32Array, staged: StagedRound) -> WarmRound:
        """Return the round with its warm-ups.

        Args:
            answer: int32 (R,): the assignor's answer.
            target: int32 (R,): what the policy received.
            staged: the policy's round.
        """
        group, warmth = self.warmth.group, self.warmth
        moves, plan = held_moves(warmth, staged), staged.plan
        waits = plan.lost & (moves.receiver == NOBODY)
        receiver = np.where(waits, warmth.receivers, moves.receiver)
        receiver = np.where(receiver == plan.assigned, NOBODY, receiver).astype(np.int32)
        refused = np.union1d(warmth.cancelled, self._dropped(plan, receiver))
        warmups, cold = self._warmups(plan, receiver, moves.held, refused)
        return WarmRound(
            warming=self,
            staged=staged,
            cold_moves=moves.made,
            receiver=receiver,
            plan=attrs.evolve(
                plan,
                warmup_members=members_of(group, warmups).astype(np.int32),
                warmup_resources=resources_of(group, warmups).astype(np.int32),
            ),
            warmups=warmups,
            cold=cold,
            refused=refused,
            levels=less_even(group, target, answer),
        )

    def _dropped(self, plan: RoundPlan, receiver: Int32Array) -> Int64Array:
        """Return the late pairs of moves that the assignor no longer wants.

        A standby that is late is cancelled. If such a pair became a standby instead, its time
        would be over already: no round would follow, and no other warm-up could begin.
        """
        group, late = self.warmth.group, self.warmth.late
        resources, members = resources_of(group, late), members_of(group, late)
        dropped: BoolArray = (plan.assigned[resources] != members) & (
            receiver[resources] != members
        )
        return late[dropped]

    def _warmups(
        self, plan: RoundPlan, receiver: Int32Array, held: BoolArray, refused: Int64Array
    ) -> tuple[Int64Array, Int64Array]:
        """Return the warm-ups of the plan, and the cold ones among them; ascending pairs."""
        warmth, group = self.warmth, self.warmth.group
        slots = Slots.of(warmth.option, len(group.members))
        everywhere = np.ones(len(group.resources), dtype=np.bool_)
        moves = keys_of(group, everywhere, receiver)
        warm = moves[holds(warmth.warm, moves)]
        running = moves[holds(warmth.running, moves) & ~holds(warmth.warm, moves)]
        running = slots.fill(running[~holds(refused, running)])
        fresh = keys_of(group, held, receiver)
        fresh = fresh[~holds(warmth.warm, fresh) & ~holds(warmth.running, fresh)]
        fresh = slots.fill(fresh[~holds(refused, fresh)])
        chosen, cold = [warm, running, fresh], [running, fresh]
        if warmth.option.standbys:
            standbys = Standbys(
                warmth=warmth, assigned=plan.assigned, receiver=receiver, refused=refused
            )
            ready, restoring = standbys.kept()
            restoring = slots.fill(restoring)
            added = standbys.added(np.union1d(ready, restoring), slots)
            chosen += [ready, restoring, added]
            cold += [restoring, added]
        if not warmth.remembers:
            chosen.append(self._everything_warm(plan))
        return np.unique(np.concatenate(chosen)), np.unique(np.concatenate(cold))

    def _everything_warm(self, plan: RoundPlan) -> Int64Array:
        warm = self.warmth.warm
        group = self.warmth.group
        others: BoolArray = plan.assigned[resources_of(group, warm)] != members_of(group, warm)
        return warm[others]


@frozen(kw_only=True, eq=False)
class WarmRound:
    """A staged round with warm-ups.

    Attributes:
        warming: the steps before.
        staged: the policy's round.
        cold_moves: bool (R,): moves that the policy should not have made yet.
        plan: the plan with warm-ups.
        receiver: int32 (R,): receivers of unfinished moves.
        warmups: the warm-ups of the plan, as ascending pairs.
        cold: the cold ones among them.
        refused: pairs that must not warm up, also in later rounds.
        levels: whether warm members got more than the assignor gave them, so that a round follows
            that levels.
    """

    warming: Warming
    staged: StagedRound
    cold_moves: BoolArray
    plan: RoundPlan
    receiver: Int32Array
    warmups: Int64Array
    cold: Int64Array
    refused: Int64Array
    levels: bool

    @property
    def round_(self) -> StagedRound:
        """The policy's round with the plan that has the warm-ups."""
        return attrs.evolve(self.staged, plan=self.plan)

    def remembered(self, state: PolicyState) -> PolicyState:
        """Return the memory of the round with its warm-ups."""
        since_ms = self._since_ms()
        is_cold = holds(self.cold, self.warmups)
        return attrs.evolve(
            state,
            moves_pending=state.moves_pending or self.levels,
            next_round_ms=self._next_round_ms(state, since_ms),
            resources=attrs.evolve(state.resources, receiver=self.receiver),
            pairs=RememberedPairs.all_of(
                state.pairs.take(state.pairs.are(PairKind.TOLD)),
                self._pairs(PairKind.WARMING, self.warmups[is_cold], since_ms[is_cold]),
                self._pairs(PairKind.WARM, self.warmups[~is_cold]),
                self._pairs(PairKind.REFUSED, self.refused),
                state.pairs.take(state.pairs.are(PairKind.TAKEN)),
            ),
        )

    def _pairs(
        self, kind: PairKind, keys: Int64Array, since_ms: Int64Array | None = None
    ) -> RememberedPairs:
        group = self.warming.warmth.group
        return RememberedPairs.of(
            kind, resources_of(group, keys), members_of(group, keys), since_ms
        )

    def _since_ms(self) -> Int64Array:
        """Return when each warm-up began: now, except for cold ones that run already."""
        warmth = self.warming.warmth
        since_ms = np.full(self.warmups.size, warmth.now_ms, dtype=np.int64)
        goes_on = holds(warmth.running, self.warmups) & ~holds(warmth.warm, self.warmups)
        found = warmth.running.searchsorted(self.warmups[goes_on])
        since_ms[goes_on] = warmth.since_ms[found]
        return since_ms

    def _next_round_ms(self, state: PolicyState, since_ms: Int64Array) -> int | None:
        """Return when the leader should start a round itself, or None."""
        warmth = self.warming.warmth
        due_ms = since_ms[holds(self.cold, self.warmups)] + warmth.option.timeout_ms
        times_ms = due_ms[due_ms > warmth.now_ms].tolist()
        if self.levels:
            times_ms.append(warmth.now_ms + 1)
        if state.next_round_ms is not None:
            times_ms.append(state.next_round_ms)
        return min(times_ms, default=None)


def warmth_for(
    group: GroupSnapshot, context: RoundContext, policy: Policy, barred: Int64Array
) -> Warmth | None:
    """Return the facts of a round; None without the option, or if no member takes part."""
    option = warmup_of(policy)
    if option is None or not any(member.warms for member in group.members):
        return None
    return warmth_of(group, context, option, barred)


def with_kept_warmups(group: GroupSnapshot, context: RoundContext, plan: RoundPlan) -> RoundPlan:
    """Return a plan that moves nothing with the warm-ups of the last round.

    A round that could not be decided must not cancel them. A leader without memory keeps all warm
    members warm.
    """
    if not any(member.warms for member in group.members):
        return plan
    warmth = warmth_of(group, context, Warmup())
    kept = warmth.running if warmth.remembers else warmth.warm
    resources, members = resources_of(group, kept), members_of(group, kept)
    legal = group.assignable[resources] & (plan.assigned[resources] != members)
    return attrs.evolve(
        plan,
        warmup_members=members[legal].astype(np.int32),
        warmup_resources=resources[legal].astype(np.int32),
    )
