"""Safety rules for every target and every plan, whoever made them.

The leader runs both checks in every round, for built-in and for users' policies. They only read
values and share no code with the policies. Each rule is one function. Its message is one sentence
that names the first wrong resource.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from coopgroup.core.model import NOBODY
from coopgroup.errors import AssignorError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coopgroup.core.model import GroupSnapshot, RoundPlan
    from coopgroup.core.model.resource_set import BoolArray, Int32Array, Int64Array
    from coopgroup.core.policies.warmth import Warmup


_TIMEOUT_MS_MAX: Final = 2**31 - 1


def check_target(group: GroupSnapshot, target: Int32Array) -> None:
    """Refuse a target that violates the contract of assignors.

    Args:
        group: the assignor's input: only its `assignable` resources may be placed.
        target: the assignor's result.

    Raises:
        AssignorError: names the first violation.
    """
    malformed = _holder_form_problem(group, "target", target)
    problem = malformed or next(_misplacements(group, target), None)
    if problem is not None:
        raise AssignorError(problem)


def violations(
    group: GroupSnapshot,
    plan: RoundPlan,
    *,
    stops_the_world: bool = False,
    warmup: Warmup | None = None,
    cold_moves: BoolArray | None = None,
) -> tuple[str, ...]:
    """Return the safety rules that a plan violates.

    Args:
        group: the group with R resources and K claims.
        plan: plan of a policy.
        stops_the_world: whether members stop everything before they join, so that claims do not
            count: rules (b), (f) and (g) are then skipped.
        warmup: limits of the warm-ups; None for no limits.
        cold_moves: bool (R,): is taken from its owner for a member that should warm up first; None
            for no resource.

    Returns:
        One sentence for each violated rule, empty for a safe plan. If arrays have a wrong form,
        only these are reported.
    """
    malformed = tuple(_form_problems(group, plan))
    if malformed:
        return malformed
    if stops_the_world:
        return tuple(_eager_problems(group, plan))
    problems = (*_plan_problems(group, plan), *_warmup_problems(group, plan, warmup))
    return problems if cold_moves is None else (*problems, *made_too_early(group, cold_moves))


def _misplacements(group: GroupSnapshot, target: Int32Array) -> Iterator[str]:
    placed = target != NOBODY
    yield from _first(group, placed & ~group.assignable, "target places what is not assignable")
    yield from _first(
        group, placed & ~group.may_hold(target), "target names a holder that does not subscribe"
    )
    yield from _first(
        group,
        ~placed & group.assignable & group.subscribed(),
        "target leaves out what is assignable and has a subscriber",
    )


def _form_problems(group: GroupSnapshot, plan: RoundPlan) -> Iterator[str]:
    """Rule (a): arrays have the right shape, type and range."""
    for field in ("target", "assigned"):
        problem = _holder_form_problem(group, field, getattr(plan, field))
        if problem is not None:
            yield problem
    for field in ("lost", "created", "waiting"):
        problem = _array_form_problem(getattr(plan, field), field, np.bool_, len(group.resources))
        if problem is not None:
            yield problem
    for field, size in (
        ("waiting_for_members", len(group.resources)),
        ("stopping", group.claim_members.size),
    ):
        array = getattr(plan, field)
        problem = None if array is None else _array_form_problem(array, field, np.bool_, size)
        if problem is not None:
            yield problem
    yield from malformed_warmups(group, plan)


def _holder_form_problem(group: GroupSnapshot, field: str, holder: Int32Array) -> str | None:
    problem = _array_form_problem(holder, field, np.int32, len(group.resources))
    if problem is not None or not holder.size:
        return problem
    if holder.min() < NOBODY or holder.max() >= len(group.members):
        worst = int(holder.min() if holder.min() < NOBODY else holder.max())
        return f"{field} names member {worst} of a group of {len(group.members)}"
    return None


def _array_form_problem(
    array: object, field: str, dtype: type[np.generic], size: int
) -> str | None:
    if not isinstance(array, np.ndarray):
        kind = type(array).__name__
        return f"{field} is a {kind}, expected an array, {np.dtype(dtype)} of shape {(size,)}"
    if array.dtype != dtype or array.shape != (size,):
        given = f"{array.dtype} of shape {array.shape}"
        return f"{field} is {given}, expected {np.dtype(dtype)} of shape {(size,)}"
    return None


def _plan_problems(group: GroupSnapshot, plan: RoundPlan) -> Iterator[str]:
    yield from _granted_while_claimed(group, plan)
    yield from _held_by_strangers(group, plan)
    yield from _dropped(group, plan)
    yield from _falsely_reported(group, plan)
    yield from _badly_announced(group, plan)
    yield from _forgotten(group, plan)


def _eager_problems(group: GroupSnapshot, plan: RoundPlan) -> Iterator[str]:
    yield from _held_by_strangers(group, plan)
    yield from _dropped(group, plan)
    yield from _first(
        group, plan.lost & (plan.assigned != NOBODY), "called lost though it is assigned"
    )


def _granted_while_claimed(group: GroupSnapshot, plan: RoundPlan) -> Iterator[str]:
    """Rules (b) and (g): a resource is not granted while another member claims it."""
    holder = plan.assigned
    yield from _first(
        group,
        (holder != NOBODY) & group.contested,
        "granted though two members claim it in one generation",
    )
    other_claims = holder[group.claim_resources] != group.claim_members
    claimed_by_others = np.zeros(len(group.resources), dtype=np.bool_)
    claimed_by_others[group.claim_resources[other_claims]] = True
    granted = (holder != NOBODY) & (holder != group.owner) & ~group.contested
    yield from _first(
        group, granted & claimed_by_others, "granted while another member still claims it"
    )


def _held_by_strangers(group: GroupSnapshot, plan: RoundPlan) -> Iterator[str]:
    """Rule (c): owners subscribe to their resources, and the resources exist."""
    held = plan.assigned != NOBODY
    yield from _first(group, held & ~group.assignable, "assigned though it is not assignable")
    yield from _first(
        group,
        held & group.assignable & ~group.may_hold(plan.assigned),
        "assigned to a member that does not subscribe to it",
    )


def _dropped(group: GroupSnapshot, plan: RoundPlan) -> Iterator[str]:
    """Rule (d): every subscribed resource is assigned, or the plan says why not."""
    explained = (plan.assigned != NOBODY) | plan.waiting | plan.lost | group.contested
    if plan.waiting_for_members is not None:
        explained |= plan.waiting_for_members
    if not all(member.readable for member in group.members):
        explained |= ~group.claimed()  # a member with an unreadable subscription may own it
    yield from _first(
        group,
        group.assignable & group.subscribed() & ~explained,
        "dropped: neither assigned nor waiting nor lost",
    )


def _falsely_reported(group: GroupSnapshot, plan: RoundPlan) -> Iterator[str]:
    """Rule (d), second half: the reasons in the plan are true."""
    held = plan.assigned != NOBODY
    yield from _first(group, plan.lost & held, "called lost though it is assigned")
    yield from _first(group, plan.lost & group.claimed(), "called lost though it is claimed")
    yield from _first(group, plan.lost & plan.waiting, "called both lost and waiting")
    yield from _first(group, plan.created & ~held, "called created though it is not granted")
    yield from _first(group, plan.created & group.claimed(), "called created though it is claimed")
    if plan.waiting_for_members is not None:
        yield from _first(
            group,
            plan.waiting_for_members & held,
            "called waiting for members though it is assigned",
        )
        yield from _first(
            group,
            plan.waiting_for_members & group.claimed(),
            "called waiting for members though claimed",
        )
        yield from _first(
            group, plan.waiting_for_members & plan.lost, "called both lost and waiting for members"
        )


def _badly_announced(group: GroupSnapshot, plan: RoundPlan) -> Iterator[str]:
    """Rules (e) and (f): a member that stops a resource rejoins; a delay excludes stops.

    Claims that are revoked once more are no reason for all members to rejoin: their members rejoin
    when they have stopped.
    """
    stop = plan.assigned[group.claim_resources] != group.claim_members
    again = np.zeros_like(stop) if plan.stopping is None else plan.stopping
    stopped = _of_claims(group, stop)
    rejoin_in_ms, loss_ends_in_ms = plan.rejoin_in_ms, plan.loss_ends_in_ms
    if rejoin_in_ms is None:
        if loss_ends_in_ms is not None:
            yield f"a loss ends in {loss_ends_in_ms} ms without a scheduled rejoin"
    else:
        if not 1 <= rejoin_in_ms <= _TIMEOUT_MS_MAX:
            yield f"rejoin in {rejoin_in_ms} ms, expected 1 to {_TIMEOUT_MS_MAX}"
        if loss_ends_in_ms is not None and not rejoin_in_ms <= loss_ends_in_ms <= _TIMEOUT_MS_MAX:
            expected = f"{rejoin_in_ms} to {_TIMEOUT_MS_MAX}"
            yield f"a loss ends in {loss_ends_in_ms} ms, expected {expected}"
        if plan.follow_up:
            yield f"rejoin in {rejoin_in_ms} ms though a follow-up round comes"
        yield from _first(group, stopped, "revoked under a scheduled rejoin")
    if not plan.follow_up:
        newly = _of_claims(group, stop & ~again)
        yield from _first(group, newly, "revoked without a follow-up round")
    kept = _of_claims(group, again & ~stop)
    yield from _first(group, kept, "called stopping though its claimant keeps it")


def _forgotten(group: GroupSnapshot, plan: RoundPlan) -> Iterator[str]:
    """Rule (h): another round will come for every resource in `lost` or `waiting_for_members`."""
    put_off = (
        plan.lost if plan.waiting_for_members is None else plan.lost | plan.waiting_for_members
    )
    comes = plan.follow_up or plan.rejoin_in_ms is not None
    if not comes and (plan.stopping is None or not plan.stopping.any()):
        yield from _first(group, put_off, "put off though no round comes")


def _warmup_problems(group: GroupSnapshot, plan: RoundPlan, limits: Warmup | None) -> Iterator[str]:
    for wrong, sentence in misplaced_warmups(group, plan):
        yield from _first(group, wrong, sentence)
    if limits is not None:
        yield from too_many_warmups(group, plan, limits)


def _of_claims(group: GroupSnapshot, claims: BoolArray) -> BoolArray:
    mask = np.zeros(len(group.resources), dtype=np.bool_)
    mask[group.claim_resources[claims]] = True
    return mask


def _first(group: GroupSnapshot, wrong: BoolArray, sentence: str) -> Iterator[str]:
    """Yield the sentence with the first wrong resource and the number of wrong resources."""
    if np.count_nonzero(wrong):  # a third of the time of `any`
        positions = np.flatnonzero(wrong)
        one = np.zeros(len(group.resources), dtype=np.bool_)
        one[positions[0]] = True
        ((name, index),) = group.resources.take(one)
        more = f" and {positions.size - 1} more" if positions.size > 1 else ""
        yield f"{sentence}: {name}-{index}{more}"


# --- the rules for warm-ups -----------------------------------------------------------------------


def malformed_warmups(group: GroupSnapshot, plan: RoundPlan) -> Iterator[str]:
    """Rule (a): arrays of numbers in range, pairs in ascending order."""
    size = np.size(plan.warmup_members)
    for field, count in (
        ("warmup_members", len(group.members)),
        ("warmup_resources", len(group.resources)),
    ):
        array: object = getattr(plan, field)
        if not isinstance(array, np.ndarray) or array.dtype != np.int32 or array.shape != (size,):
            yield f"{field} is no array, int32 of shape {(size,)}"
            return
        if size and (array.min() < 0 or array.max() >= count):
            yield f"{field} has a number outside 0 to {count - 1}"
            return
    pairs = _pairs(group, plan.warmup_resources, plan.warmup_members)
    if (pairs[1:] <= pairs[:-1]).any():
        yield "warm-ups are not in ascending order, each once"


def misplaced_warmups(group: GroupSnapshot, plan: RoundPlan) -> Iterator[tuple[BoolArray, str]]:
    """Rule (i): yield the resources, bool (R,), that a member should not warm up, and why."""
    members, resources = plan.warmup_members, plan.warmup_resources
    if not members.size:
        return
    takes_part = np.array([member.warms for member in group.members], dtype=np.bool_)
    names = group.resources.name_numbers[resources]
    subscribed = group.subscribed_names()[group.class_of[members], names]
    for wrong, sentence in (
        (~takes_part[members], "warm-up of a member that takes no part"),
        (~subscribed, "warm-up of a member that does not subscribe"),
        (plan.assigned[resources] == members, "warm-up of the owner"),
        (~group.assignable[resources], "warm-up though it is not assignable"),
    ):
        mask = np.zeros(len(group.resources), dtype=np.bool_)
        mask[resources[wrong]] = True
        yield mask, sentence


def too_many_warmups(group: GroupSnapshot, plan: RoundPlan, limits: Warmup) -> Iterator[str]:
    """Rule (i), second half: cold warm-ups obey the limits.

    A member that stops a resource has its state, so it is not cold.
    """
    members, resources = plan.warmup_members, plan.warmup_resources
    warm = _pairs(group, group.warm_resources, group.warm_members)
    is_warm = np.isin(_pairs(group, resources, members), warm)
    cold = members[~is_warm & (group.owner[resources] != members)]
    if cold.size > limits.max_concurrent:
        yield f"{cold.size} cold warm-ups, expected at most {limits.max_concurrent}"
    most = int(np.bincount(cold).max(initial=0))
    if most > limits.per_member:
        yield f"{most} cold warm-ups of one member, expected at most {limits.per_member}"


def made_too_early(group: GroupSnapshot, cold_moves: BoolArray) -> Iterator[str]:
    """Rule (j): a move waits, and the owner works on, until the receiver is warm."""
    expected = "expected it to wait while `context.warmth.waits_for(target)`"
    yield from _first(group, cold_moves, f"taken for a member that is cold, {expected}")


def _pairs(group: GroupSnapshot, resources: Int32Array, members: Int32Array) -> Int64Array:
    pairs: Int64Array = resources.astype(np.int64) * len(group.members) + members
    return pairs
