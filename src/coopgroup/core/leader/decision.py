"""Decide a round on values: from a group to a checked plan.

Assignor and policy may be a user's code. An error that they raise is a value here, and so is a plan
that fails the safety check (`_Refusal`). In both cases the answer is the round that moves nothing,
with a record that gives the reason. The arrays that they receive are read-only, so that their bugs
cannot change the data of the check.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

import attrs
import numpy as np
import numpy.typing as npt
from attrs import frozen

from coopgroup.core.assignors.base import Placement
from coopgroup.core.leader.declines import passed_on
from coopgroup.core.model import EMPTY, NOBODY, Resource, ResourceSet, plan_that_moves_nothing
from coopgroup.core.model.pairs import NO_KEYS, refusals
from coopgroup.core.model.plan import revoked_claims
from coopgroup.core.model.replacing import replaced
from coopgroup.core.policies.built_in import EagerPolicy
from coopgroup.core.policies.bundles import BundledRound
from coopgroup.core.policies.facts import facts_of, fitted, remember_round, with_facts
from coopgroup.core.policies.memory import PairKind, Past, PolicyState, RememberedPairs
from coopgroup.core.policies.safety import check_target, violations
from coopgroup.core.policies.warmth import warmup_of
from coopgroup.core.policies.warmups import Warming, warmth_for, with_kept_warmups, with_leavers
from coopgroup.core.telemetry.records import RoundDecided, RoundRefused, WithoutRoom
from coopgroup.errors import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from coopgroup.core.assignors.base import Assignor
    from coopgroup.core.model import GroupSnapshot, RoundPlan
    from coopgroup.core.model.lags import Lags
    from coopgroup.core.model.resource_set import BoolArray, Int32Array, Int64Array
    from coopgroup.core.policies.policy import Offer, Policy, RoundContext, StagedRound
    from coopgroup.core.telemetry.records import Record

_ANSWERS_MAX: Final = 10
_REASONS_MAX: Final = 5


@frozen(kw_only=True, eq=False)
class RoundDecision:
    """The decision of a round.

    Attributes:
        group: the group, claims resolved.
        plan: assignment of each member.
        state: memory for the next round, if the same member leads it.
        records: telemetry of the round, in order.
        refused: whether the plan moves nothing because of an error; `records` give the reason.
        assignments: (member id, embedded assignment) of every member, ascending by member id;
            empty until the plan is encoded.
    """

    group: GroupSnapshot
    plan: RoundPlan
    state: PolicyState
    records: tuple[Record, ...]
    refused: bool
    assignments: tuple[tuple[str, bytes], ...] = ()


@frozen
class _Refusal:
    """Why a round cannot be decided: one sentence for each problem."""

    problems: tuple[str, ...]


@frozen(eq=False)
class _NoRoom:
    """An assignor leaves out resources that it may place.

    Attributes:
        left: bool (R,): these resources.
        reasons: the reason for each of them.
    """

    left: BoolArray
    reasons: Mapping[Resource, str]


@frozen(eq=False)
class _Decided:
    """A plan that breaks no safety rule, and the memory of its round."""

    plan: RoundPlan
    state: PolicyState


def decide_round(
    group: GroupSnapshot,
    lags: Lags,
    *,
    assignor: Assignor,
    policy: Policy,
    context: RoundContext,
) -> RoundDecision:
    """Decide the owner of each resource after the round.

    Args:
        group: the group, claims resolved.
        lags: lags for assignors that need them.
        assignor: decides where.
        policy: decides when.
        context: circumstances of the round.
    """
    group, context = _with_facts(group, context)
    bundled = BundledRound.of(group, context, lags, policy)
    placed, reasons = group, dict[Resource, str]()
    outcome: _Decided | _Refusal | _NoRoom
    for _ in range(_ANSWERS_MAX):
        asked = (placed, context, lags) if bundled is None else bundled.asked
        outcome = _decided(*asked, assignor, policy)
        if not isinstance(outcome, _NoRoom) or bundled is not None:
            break
        # For the policy these resources do not exist. No member keeps them, no round waits.
        placed = replaced(placed, assignable=placed.assignable & ~outcome.left)
        context = attrs.evolve(context, facts=facts_of(placed, context))
        reasons |= outcome.reasons
    if bundled is not None and isinstance(outcome, _Decided):
        outcome = _opened(group, bundled, outcome)
    if isinstance(outcome, _NoRoom):
        part, why = next(iter(outcome.reasons.items()))
        bundle = f"the bundle of {tuple(part)}: {why}"
        what = "more with each answer" if bundled is None else bundle
        outcome = _Refusal((f"assignor {assignor.name} leaves out {what}",))
    if isinstance(outcome, _Refusal):
        return refused_round(
            group, outcome.problems, assignor=assignor, policy=policy, context=context
        )
    left = group.resources.take(group.assignable & ~placed.assignable)
    records: list[Record] = [round_record(group, outcome.plan, assignor, policy, context)]
    if left:
        records += _without_room(left, reasons)
    return RoundDecision(
        group=placed, plan=outcome.plan, state=outcome.state, records=tuple(records), refused=False
    )


def _opened(group: GroupSnapshot, bundled: BundledRound, decided: _Decided) -> _Decided | _Refusal:
    """Return the round of bundles for all their parts."""
    plan, state = bundled.opened(decided.plan, decided.state)
    problems = violations(with_leavers(group), plan)
    return _Refusal(problems) if problems else _Decided(plan, state)


def _without_room(left: ResourceSet, reasons: Mapping[Resource, str]) -> Iterator[WithoutRoom]:
    """Yield a record for each reason; if there are many, the last record has the rest."""
    resources: dict[str, list[Resource]] = {}
    for one in left:
        resources.setdefault(reasons[one], []).append(one)
    names = sorted(resources)
    parts = [[why] for why in names]
    if len(names) > _REASONS_MAX:
        parts[_REASONS_MAX - 1 :] = [names[_REASONS_MAX - 1 :]]
    for part in parts:
        pairs = [one for why in part for one in resources[why]]
        told = tuple(part[:_REASONS_MAX])
        yield WithoutRoom(resources=ResourceSet.from_pairs(pairs), reasons=told)


def _decided(
    group: GroupSnapshot, context: RoundContext, lags: Lags, assignor: Assignor, policy: Policy
) -> _Decided | _NoRoom | _Refusal:
    """Ask policy, assignor, and policy again. Their errors are problems of the round."""
    whom = f"assignor {assignor.name}"
    try:
        unfit = NO_KEYS if warmup_of(policy) is None else _barred(group, assignor)
        whom = f"policy {policy.name}"
        context = attrs.evolve(
            context,
            warmth=warmth_for(group, context, policy, unfit),
            has_limits=_has_limits(assignor),
        )
        offer = policy.offer(group, context)
        warming = Warming.of(context, offer)
        view = _view(group, offer if warming is None else warming.shown, lags)
        whom = f"assignor {assignor.name}"
        answer = _answer(assignor, view, read_only(lags.aligned(group.resources)), warming)
        if isinstance(answer, _NoRoom):
            return answer
        whom = f"policy {policy.name}"
        target = answer if warming is None else warming.target_of(answer)
        staged = policy.stage(group, read_only(target.copy()), context, offer)
        if staged.state is not None:
            staged = attrs.evolve(staged, state=fitted(group, staged.state))
        warm = None if warming is None else warming.staged(answer, target, staged)
        staged = staged if warm is None else warm.round_
        problems = violations(
            group if warm is None else warm.warming.warmth.kept_group,
            staged.plan,
            stops_the_world=isinstance(policy, EagerPolicy),
            warmup=warmup_of(policy),
            cold_moves=None if warm is None else warm.cold_moves,
        )
        if problems:  # such a plan may have any form, and nothing can be remembered of it
            return _Refusal(problems)
        state = _memory_of(group, context, staged)
        return _Decided(staged.plan, state if warm is None else warm.remembered(state))
    except Exception as error:  # noqa: BLE001 -- of a user's code
        return _Refusal((f"{whom}: {one_line(error)}",))


def _barred(group: GroupSnapshot, assignor: Assignor) -> Int64Array:
    """Return the pairs of a resource and a member that could not start it, ascending.

    Such a member does not keep the resource warm. There are none if no member takes part.
    """
    if not any(member.warms for member in group.members):
        return NO_KEYS
    misfits = getattr(assignor, "misfits", None)
    unfit = None if misfits is None else misfits(group)
    return np.union1d(refusals(group), NO_KEYS if unfit is None else np.flatnonzero(unfit.T))


def _view(group: GroupSnapshot, offer: Offer, lags: Lags) -> GroupSnapshot:
    """Return the group as the assignor sees it."""
    arrivals = lags.aligned_arrivals(group.resources)
    return group.view(
        owner=read_only(offer.owner.copy()),
        assignable=read_only(group.assignable & ~offer.withheld_from_assignor),
        arrivals_per_s=None if arrivals is None else read_only(arrivals),
    )


def _answer(
    assignor: Assignor, view: GroupSnapshot, lags: Int64Array, warming: Warming | None
) -> Int32Array | _NoRoom:
    """Return the assignor's answer, or its second one if that is better for warm members."""
    answer = _placed(assignor, view, lags)
    if warming is None or isinstance(answer, _NoRoom):
        return answer
    shown = warming.shown_again(answer)
    if shown is None:
        return answer
    second = _placed(assignor, replaced(view, owner=read_only(shown)), lags)
    return second if isinstance(second, _NoRoom) else warming.better(answer, second)


def _placed(assignor: Assignor, view: GroupSnapshot, lags: Int64Array) -> Int32Array | _NoRoom:
    """Return one answer of the assignor without declined resources, or what is left out."""
    answer = assignor.assign(view, lags)
    reasons: dict[Resource, str] = {}
    if isinstance(answer, Placement):
        target = answer.target
        reasons = {Resource(*one): why for one, why in answer.no_room.items()}
        left = view.mask_of(ResourceSet.from_pairs(reasons))
        check_target(replaced(view, assignable=view.assignable & ~left), target)
    else:
        target = answer
        check_target(view, target)
    target, declined = passed_on(view, target, has_limits=_has_limits(assignor))
    reasons |= declined
    if not reasons:
        return target
    left = view.assignable & view.mask_of(ResourceSet.from_pairs(reasons))
    return _NoRoom(left, reasons) if left.any() else target


def _has_limits(assignor: Assignor) -> bool:
    return getattr(assignor, "has_limits", False)


def refused_round(
    group: GroupSnapshot,
    problems: tuple[str, ...],
    *,
    assignor: Assignor,
    policy: Policy,
    context: RoundContext,
) -> RoundDecision:
    """Return the round that moves nothing.

    A running delay continues, because a round that decides nothing must not end it.

    Args:
        group: the group, claims resolved.
        problems: reasons, one sentence each.
        assignor: its target is not used.
        policy: its plan is not used.
        context: circumstances of the round.
    """
    group, context = _with_facts(group, context)
    warms = warmup_of(policy) is not None
    plan = plan_that_moves_nothing(with_leavers(group) if warms else group)
    if not plan.follow_up:
        plan = _with_running_delay(group, plan)
    if warms:
        plan = with_kept_warmups(group, context, plan)
    return RoundDecision(
        group=group,
        plan=plan,
        state=_state_after_refusal(group, context, plan.assigned),
        records=(
            RoundRefused(violations=problems),
            round_record(group, plan, assignor, policy, context),
        ),
        refused=True,
    )


def _with_facts(group: GroupSnapshot, context: RoundContext) -> tuple[GroupSnapshot, RoundContext]:
    """Return the group and the circumstances with everything that the memory says about them."""
    if context.facts is not None and context.facts.group is group:
        return group, context
    context = _without_hearsay(context)
    group, facts = with_facts(group, context)
    _make_read_only(group, facts.recalled, facts.recalled.remembered)
    if context.state is not None:
        _make_read_only(context.state.resources, context.state.pairs)
    return group, attrs.evolve(context, facts=facts)


def _without_hearsay(context: RoundContext) -> RoundContext:
    """Remove the last round's messages from the memory if members may not have received them.

    If the leader's own SyncGroup of that round failed (its generation did not advance), it does not
    know whether any member received its assignment. An unreadable member that was assigned nothing
    may still own resources. A member may not know that it must stop a resource, so the moves of
    that round are still pending.
    """
    state = context.state
    if state is None or context.generation > state.generation:
        return context
    told, taken = state.pairs.are(PairKind.TOLD), state.pairs.are(PairKind.TAKEN)
    planned = state.resources.planned.copy()
    planned[state.pairs.resource[told]] = True
    state = attrs.evolve(
        state,
        silent=(),
        resources=attrs.evolve(state.resources, planned=planned),
        pairs=state.pairs.take(~told & ~taken),
        moves_pending=state.moves_pending or bool(told.any()),
    )
    return attrs.evolve(context, state=state)


def _memory_of(group: GroupSnapshot, context: RoundContext, staged: StagedRound) -> PolicyState:
    """Return the leader's memory of a round, with the policy's own memory in it."""
    state = staged.state
    if state is None:
        unclaimed = facts_of(group, context).unclaimed
        state = remember_round(group, context, unclaimed, staged.plan.assigned)
    return state if staged.memory is None else attrs.evolve(state, memory=staged.memory)


def _with_running_delay(group: GroupSnapshot, plan: RoundPlan) -> RoundPlan:
    losses = {member.loss_ends_in_ms or 0 for member in group.members} - {0}
    rejoins = {member.rejoin_in_ms or 0 for member in group.members} - {0} | losses
    return attrs.evolve(
        plan,
        rejoin_in_ms=min(rejoins, default=None),
        loss_ends_in_ms=min(losses, default=None),
    )


def _state_after_refusal(
    group: GroupSnapshot, context: RoundContext, assigned: Int32Array
) -> PolicyState:
    """Return the memory after a round that moved nothing: the earlier memory, brought up to date.

    Departures and joins since the last decided round are still undecided. So the members of that
    round, and their resources, are remembered. The results of this round are written anew: an
    unreadable member that is readable now owns its rightful resources.

    A leader without memory knows nothing more in its next round. So the state stays blind and keeps
    the pause that members know of. Otherwise the next round would treat the group as settled, and
    shares would stay uneven.
    """
    fresh = remember_round(group, context, facts_of(group, context).unclaimed, assigned)
    if context.state is None:
        known = [m.rejoin_in_ms for m in group.members if m.rejoin_in_ms is not None]
        return attrs.evolve(
            fresh,
            blind=True,
            moves_pending=any(m.rejoins_to_move for m in group.members),
            moves_due_ms=context.now_ms + min(known) if known else None,
        )
    state = context.state
    gone = state.resources.take(group.resources.positions(state.resources.names) < 0)
    rows = attrs.evolve(state.resources.aligned(group.resources), past=fresh.resources.past)
    rows = rows.over(attrs.evolve(gone, past=np.full_like(gone.past, Past.NEVER_OWNED)))
    # A newcomer has no position in the memory. What it must stop still moves.
    position_of = {member: position for position, member in enumerate(state.members.ids)}
    positions = np.array([position_of.get(member, NOBODY) for member in fresh.members.ids])
    others = state.pairs.take(~state.pairs.are(PairKind.TOLD))
    return attrs.evolve(
        state,
        generation=fresh.generation,
        resources=rows,
        pairs=RememberedPairs.all_of(
            fresh.pairs.renumbered(
                rows.names.positions(group.resources)[fresh.pairs.resource],
                positions[fresh.pairs.member],
            ),
            others.renumbered(rows.names.positions(state.resources.names)[others.resource]),
        ),
        silent=fresh.silent,
    )


_Scalar = TypeVar("_Scalar", bound=np.generic)


def read_only(array: npt.NDArray[_Scalar]) -> npt.NDArray[_Scalar]:
    """Make an array read-only, and return it."""
    array.flags.writeable = False
    return array


def _make_read_only(*tables: attrs.AttrsInstance) -> None:
    """Make all arrays of some tables read-only."""
    for table in tables:
        for field in attrs.fields(type(table)):
            value = getattr(table, field.name)
            if isinstance(value, np.ndarray):
                value.flags.writeable = False


def round_record(
    group: GroupSnapshot,
    plan: RoundPlan,
    assignor: Assignor,
    policy: Policy,
    context: RoundContext,
) -> RoundDecided:
    """Return the record of a round: what it gives, takes, and puts off."""
    stopped = revoked_claims(group, plan.assigned)
    kept = np.zeros(len(group.resources), dtype=np.bool_)
    kept[group.claim_resources[~stopped]] = True
    revoked = np.zeros(len(group.resources), dtype=np.bool_)
    revoked[group.claim_resources[stopped]] = True
    take, state = group.resources.take, context.state
    remembered = EMPTY if state is None else state.resources.owned - group.resources
    return RoundDecided(
        policy=policy.name,
        assignor=assignor.name,
        members=group.member_ids,
        granted=take((plan.assigned != NOBODY) & ~kept),
        revoked=take(revoked),
        lost=take(plan.lost),
        created=take(plan.created),
        waiting=take(plan.waiting),
        contested=take(group.contested),
        follow_up=plan.follow_up,
        rejoin_in_ms=plan.rejoin_in_ms,
        protocol=context.protocol,
        gone=take(~group.assignable) | remembered,
    )
