"""Decide a round on values: from claims to a checked plan.

Assignor and policy may be a user's code. Whatever they raise or return, the round is answered. A
plan that fails the safety check is never sent. In both cases the answer is the round that moves
nothing, with a record that gives the reason. The arrays that they receive are read-only, so that
their bugs cannot change the data of the check.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import attrs
import numpy as np
import numpy.typing as npt
from attrs import frozen

from coopgroup.model import NO_LOSS, NOBODY, plan_that_moves_nothing, resolve_claims
from coopgroup.model.plan import revoked_claims
from coopgroup.policies.eager import EagerPolicy
from coopgroup.policies.safety import check_target, violations
from coopgroup.policies.state import NO_CLAIMS
from coopgroup.policies.stopping import with_holders_rights
from coopgroup.policies.unclaimed import find_unclaimed, remember_round
from coopgroup.telemetry import RoundLed, RoundRefused

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from coopgroup.assignors.base import Assignor
    from coopgroup.leader.request import Lags, TopicMetadata
    from coopgroup.model import GroupSnapshot, MemberClaim, RoundPlan
    from coopgroup.model.resource_set import Int32Array
    from coopgroup.policies.base import Policy, RoundContext, StagedRound
    from coopgroup.policies.state import PolicyState
    from coopgroup.telemetry import Record

__all__ = ["DecidedRound", "decide_round", "refused_round"]

_Scalar = TypeVar("_Scalar", bound=np.generic)


@frozen(kw_only=True, eq=False)
class DecidedRound:
    """The decision of a round.

    Attributes:
        group: the group, claims resolved.
        plan: assignment of each member.
        state: memory for the same leader's next round.
        records: telemetry of the round, in order.
        refused: whether the plan moves nothing because of an error.
    """

    group: GroupSnapshot
    plan: RoundPlan
    state: PolicyState
    records: tuple[Record, ...]
    refused: bool


class _UnusableAnswerError(Exception):
    """An assignor or a policy raised or violated its contract; the message names it."""


def decide_round(
    claims: Sequence[MemberClaim],
    metadata: TopicMetadata,
    lags: Lags,
    *,
    assignor: Assignor,
    policy: Policy,
    context: RoundContext,
) -> DecidedRound:
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
    group = resolve_claims(claims, metadata.resources, metadata.racks)
    group = _read_only_group(with_holders_rights(group, context))
    try:
        staged = _stage(group, lags, assignor, policy, context)
        with _asking(f"policy {policy.name}"):
            problems = violations(
                group, staged.plan, stops_the_world=isinstance(policy, EagerPolicy)
            )
    except _UnusableAnswerError as error:
        problems = (str(error),)
        staged = None
    if problems or staged is None:
        return refused_round(group, problems, assignor=assignor, policy=policy, context=context)
    return DecidedRound(
        group=group,
        plan=staged.plan,
        state=staged.state,
        records=(_led(group, staged.plan, assignor, policy, context),),
        refused=False,
    )


def refused_round(
    group: GroupSnapshot,
    problems: tuple[str, ...],
    *,
    assignor: Assignor,
    policy: Policy,
    context: RoundContext,
) -> DecidedRound:
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
    plan = plan_that_moves_nothing(group)
    if not plan.follow_up:
        plan = _with_running_delay(group, plan)
    return DecidedRound(
        group=group,
        plan=plan,
        state=_state_after_refusal(group, context, plan.assigned),
        records=(
            RoundRefused(violations=problems),
            _led(group, plan, assignor, policy, context),
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
) -> StagedRound:
    with _asking(f"policy {policy.name}"):
        offer = policy.offer(group, context)
        arrivals = lags.aligned_arrivals(group.resources)
        view = group.view(
            owner=_read_only(offer.owner.copy()),
            assignable=_read_only(group.assignable & ~offer.held),
            arrivals_per_s=None if arrivals is None else _read_only(arrivals),
        )
    with _asking(f"assignor {assignor.name}"):
        target = assignor.assign(view, _read_only(lags.aligned(group.resources)))
        check_target(view, target)
    with _asking(f"policy {policy.name}"):
        return policy.stage(group, _read_only(target.copy()), context)


@contextmanager
def _asking(whom: str) -> Iterator[None]:
    """Attribute errors inside the block to the named assignor or policy."""
    try:
        yield
    except Exception as error:
        said = " ".join(str(error).split())
        raise _UnusableAnswerError(f"{whom}: {type(error).__name__}: {said}") from error


def _read_only(array: npt.NDArray[_Scalar]) -> npt.NDArray[_Scalar]:
    array.flags.writeable = False
    return array


def _read_only_group(group: GroupSnapshot) -> GroupSnapshot:
    for field in attrs.fields(type(group)):
        value = getattr(group, field.name)
        if isinstance(value, np.ndarray):
            value.flags.writeable = False
    return group


def _with_running_delay(group: GroupSnapshot, plan: RoundPlan) -> RoundPlan:
    waits = {member.known_loss_ms or 0 for member in group.members} - {0}
    delays = {member.remaining_delay_ms or 0 for member in group.members} - {0}
    if not waits | delays:
        return plan
    delay_ms, wait_ms = min(waits | delays), min(waits, default=NO_LOSS)
    return attrs.evolve(
        plan,
        scheduled_rebalance_timeout_ms=delay_ms,
        loss_timeout_ms=None if wait_ms == delay_ms else wait_ms,
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
        known = [m.remaining_delay_ms for m in group.members if m.remaining_delay_ms is not None]
        return attrs.evolve(
            fresh,
            blind=True,
            moves_pending=any(m.remaining_loss_ms is not None for m in group.members),
            moves_due_ms=context.now_ms + min(known) if known else None,
        )
    return attrs.evolve(
        context.state,
        generation=fresh.generation,
        known=fresh.known,
        granted=fresh.granted,
        released=fresh.released,
        silent=fresh.silent,
        stopping=fresh.stopping,
    )


def _led(
    group: GroupSnapshot,
    plan: RoundPlan,
    assignor: Assignor,
    policy: Policy,
    context: RoundContext,
) -> RoundLed:
    stopped = revoked_claims(group, plan.assigned)
    kept = np.zeros(len(group.resources), dtype=np.bool_)
    kept[group.claim_resources[~stopped]] = True
    revoked = np.zeros(len(group.resources), dtype=np.bool_)
    revoked[group.claim_resources[stopped]] = True
    take = group.resources.take
    return RoundLed(
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
        scheduled_rebalance_timeout_ms=plan.scheduled_rebalance_timeout_ms,
        protocol=context.protocol,
    )
