"""Decide a round on values: from claims to a checked plan.

Assignor and policy may be a user's code. Whatever they raise or return, the round is answered. A
plan that fails the safety check is never sent. In both cases the answer is the round that moves
nothing, with a record that gives the reason. The arrays that they receive are read-only, so that
their bugs cannot change the data of the check.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

import attrs
import numpy as np
import numpy.typing as npt
from attrs import frozen

from coopgroup.core.assignors.base import Placement
from coopgroup.core.leader.limits import barred, misplaced, with_answer, with_holders
from coopgroup.core.model import EMPTY, NOBODY, ResourceSet, plan_that_moves_nothing, resolve_claims
from coopgroup.core.model.plan import revoked_claims
from coopgroup.core.model.replacing import replaced
from coopgroup.core.policies.built_in import EagerPolicy
from coopgroup.core.policies.bundles import BundledRound
from coopgroup.core.policies.facts import find_unclaimed, remember_round, with_holders_rights
from coopgroup.core.policies.memory import NO_CLAIMS, Claims, PolicyState
from coopgroup.core.policies.safety import check_target, violations
from coopgroup.core.policies.warmth import warmup_of
from coopgroup.core.policies.warmups import Warming, warmth_for, with_kept_warmups, with_leavers
from coopgroup.core.telemetry.records import RoundDecided, RoundRefused, WithoutRoom

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from coopgroup.core.assignors.base import Assignor
    from coopgroup.core.leader.request import TopicMetadata
    from coopgroup.core.model import GroupSnapshot, MemberClaim, Resource, RoundPlan
    from coopgroup.core.model.lags import Lags
    from coopgroup.core.model.resource_set import BoolArray, Int32Array
    from coopgroup.core.policies.policy import Policy, RoundContext, StagedRound
    from coopgroup.core.policies.warmups import WarmRound
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


class _UnusableAnswerError(Exception):
    """An assignor or a policy raised or violated its contract; the message names it."""


class _NoRoomError(Exception):
    """An assignor leaves out resources that it may place.

    Attributes:
        left: bool (R,): these resources.
        reasons: the reason for each of them.
    """

    def __init__(
        self, left: BoolArray, reasons: Mapping[tuple[str, int], str] | Mapping[Resource, str]
    ) -> None:
        super().__init__()
        self.left = left
        self.reasons = reasons


def decide_round(
    claims: Sequence[MemberClaim],
    metadata: TopicMetadata,
    lags: Lags,
    *,
    assignor: Assignor,
    policy: Policy,
    context: RoundContext,
) -> RoundDecision:
    """Decide the owner of each resource after the round.

    Args:
        claims: one per member, in any order, member ids distinct.
        metadata: existing resources.
        lags: lags for assignors that need them.
        assignor: decides where.
        policy: decides when.
        context: circumstances of the round.
    """
    context = _without_hearsay(context)
    group = resolve_claims(claims, metadata.resources, metadata.racks, metadata.weights)
    group = _read_only_group(with_holders_rights(group, context))

    def refused(problems: tuple[str, ...]) -> RoundDecision:
        return refused_round(group, problems, assignor=assignor, policy=policy, context=context)

    placed, reasons = group, dict[tuple[str, int], str]()
    try:
        bundled = BundledRound.of(group, context, lags, policy)
        for _ in range(_ANSWERS_MAX):
            asked = (placed, context, lags) if bundled is None else bundled.asked
            try:
                plan, state, problems = _decided(*asked, assignor, policy)
                break
            except _NoRoomError as error:
                if bundled is not None:
                    part, why = next(iter(error.reasons.items()))
                    said = f"leaves out the bundle of {tuple(part)}: {why}"
                    return refused((f"assignor {assignor.name} {said}",))
                # For the policy they do not exist: nobody keeps them, and no round waits for them.
                placed = replaced(placed, assignable=placed.assignable & ~error.left)
                reasons |= {(name, index): why for (name, index), why in error.reasons.items()}
        else:
            return refused((f"assignor {assignor.name} leaves out more with each answer",))
        if bundled is not None and not problems:
            plan, state = bundled.opened(plan, state)
            problems = violations(with_leavers(group), plan)
    except _UnusableAnswerError as error:
        return refused((str(error),))
    if problems:
        return refused(problems)
    left = group.resources.take(group.assignable & ~placed.assignable)
    records: list[Record] = [round_record(group, plan, assignor, policy, context)]
    if left:
        records += _without_room(left, reasons)
    return RoundDecision(
        group=placed, plan=plan, state=state, records=tuple(records), refused=False
    )


def _without_room(
    left: ResourceSet, reasons: Mapping[tuple[str, int], str]
) -> Iterator[WithoutRoom]:
    """Yield a record for each reason; if there are many, the last record has the rest."""
    resources: dict[str, list[Resource]] = {}
    for one in left:
        resources.setdefault(reasons[one.name, one.index], []).append(one)
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
) -> tuple[RoundPlan, PolicyState, tuple[str, ...]]:
    """Return the plan, the memory, and the safety rules that the plan violates."""
    staged, warm, answer = _stage(group, lags, assignor, policy, context)
    with _asking(f"policy {policy.name}"):
        moved = misplaced(group, assignor, answer, staged.plan.assigned)
        staged = attrs.evolve(staged, plan=with_answer(staged.plan, answer, moved))
        problems = violations(
            group if warm is None else warm.warming.warmth.kept_group,
            staged.plan,
            stops_the_world=isinstance(policy, EagerPolicy),
            warmup=warmup_of(policy),
        )
        if problems:  # such a plan may have any form, and nothing can be remembered of it
            return staged.plan, PolicyState(generation=context.generation, members=()), problems
        state = with_holders(group, _memory_of(group, context, staged), answer, moved)
        return staged.plan, state if warm is None else warm.remembered(state), ()


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
    group = with_holders_rights(group, _without_hearsay(context))
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
    unheard = state.stopping.resources
    state = attrs.evolve(
        state,
        silent=(),
        stopping=NO_CLAIMS,
        moves_pending=state.moves_pending or bool(unheard),
        planned=state.planned | unheard,
    )
    return attrs.evolve(context, state=state)


def _stage(
    group: GroupSnapshot, lags: Lags, assignor: Assignor, policy: Policy, context: RoundContext
) -> tuple[StagedRound, WarmRound | None, Int32Array]:
    """Return the staged round, its warm-ups, and the assignor's last answer."""
    with _asking(f"assignor {assignor.name}"):
        unfit = None if warmup_of(policy) is None else barred(group, assignor)
    with _asking(f"policy {policy.name}"):
        context = attrs.evolve(
            context,
            warmth=warmth_for(group, context, policy, unfit),
            has_limits=getattr(assignor, "has_limits", False),
        )
        offer = policy.offer(group, context)
        arrivals = lags.aligned_arrivals(group.resources)
        if arrivals is not None:
            read_only(arrivals)
        warming = Warming.of(context, offer)
        owner, withheld = offer.owner, offer.withheld_from_assignor
        if warming is not None:
            owner, withheld = warming.shown_owner, warming.withheld
        assignable = group.assignable & ~withheld

    answers: list[Int32Array] = []

    def ask(owner: Int32Array) -> Int32Array:
        answers.append(_ask(owner))
        return answers[-1]

    def _ask(owner: Int32Array) -> Int32Array:
        view = group.view(
            owner=read_only(owner.copy()),
            assignable=read_only(assignable.copy()),
            arrivals_per_s=arrivals,
        )
        with _asking(f"assignor {assignor.name}"):
            answer = assignor.assign(view, read_only(lags.aligned(group.resources)))
            if not isinstance(answer, Placement):
                check_target(view, answer)
                return answer
            left = view.assignable & view.mask_of(ResourceSet.from_pairs(answer.no_room))
            check_target(replaced(view, assignable=view.assignable & ~left), answer.target)
        if left.any():
            raise _NoRoomError(left, answer.no_room)
        return answer.target

    if warming is None:
        answer = target = ask(owner)
    else:
        answer, target = warming.aim(ask)
    with _asking(f"policy {policy.name}"):
        staged = policy.stage(group, read_only(target.copy()), context, offer)
        if warming is None:
            return staged, None, answers[-1]
        warm = warming.staged(answer, target, staged)
        return warm.round_, warm, answers[-1]


def _memory_of(group: GroupSnapshot, context: RoundContext, staged: StagedRound) -> PolicyState:
    """Return the leader's memory of a round, with the policy's own memory in it."""
    state: object = staged.state  # of any type, because it comes from a user's policy
    if state is None:
        unclaimed = find_unclaimed(group, context)
        state = remember_round(group, context, unclaimed, staged.plan.assigned)
    if not isinstance(state, PolicyState):
        raise TypeError(f"expected a PolicyState, got a {type(state).__name__}")
    return state if staged.memory is None else attrs.evolve(state, memory=staged.memory)


@contextmanager
def _asking(whom: str) -> Iterator[None]:
    """Attribute errors inside the block to the named assignor or policy."""
    try:
        yield
    except Exception as error:
        said = " ".join(str(error).split())
        raise _UnusableAnswerError(f"{whom}: {type(error).__name__}: {said}") from error


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
    fresh = remember_round(group, context, find_unclaimed(group, context), assigned)
    if context.state is None:
        known = [m.rejoin_in_ms for m in group.members if m.rejoin_in_ms is not None]
        return attrs.evolve(
            fresh,
            blind=True,
            moves_pending=any(m.rejoins_to_move for m in group.members),
            moves_due_ms=context.now_ms + min(known) if known else None,
        )
    return attrs.evolve(
        context.state,
        generation=fresh.generation,
        known=fresh.known,
        granted=fresh.granted,
        released=fresh.released,
        silent=fresh.silent,
        stopping=_renumbered(fresh.stopping, fresh.members, context.state.members),
    )


def _renumbered(claims: Claims, before: tuple[str, ...], after: tuple[str, ...]) -> Claims:
    """Return claims of the members `before` with positions in `after`.

    Newcomers have none. Their claims are left out, and the next round revokes them again; the
    resources stay, because they still move.
    """
    number_of = {member: number for number, member in enumerate(after)}
    numbers = np.array([number_of.get(member, NOBODY) for member in before], dtype=np.int32)
    claimant = numbers[claims.claimant]
    known = claimant != NOBODY
    return attrs.evolve(claims, resource=claims.resource[known], claimant=claimant[known])


_Scalar = TypeVar("_Scalar", bound=np.generic)


def read_only(array: npt.NDArray[_Scalar]) -> npt.NDArray[_Scalar]:
    """Make an array read-only, and return it."""
    array.flags.writeable = False
    return array


def _read_only_group(group: GroupSnapshot) -> GroupSnapshot:
    """Make all arrays of a group read-only, and return the group."""
    for field in attrs.fields(type(group)):
        value = getattr(group, field.name)
        if isinstance(value, np.ndarray):
            value.flags.writeable = False
    return group


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
    remembered = EMPTY if state is None else (state.known | state.granted) - group.resources
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
