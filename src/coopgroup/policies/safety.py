"""What no target and no plan may break, whatever made it.

The leader runs both checks in every round, for its own policies and for those of users. They read
only values and share no code with what they check. Each rule is one function that says in one
sentence what is wrong, and with which resource first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from coopgroup.errors import AssignorError
from coopgroup.model import NOBODY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coopgroup.model import GroupSnapshot, RoundPlan
    from coopgroup.model.resource_set import BoolArray, Int32Array

__all__ = ["check_target", "violations"]

_TIMEOUT_MS_MAX: Final = 2**31 - 1


def check_target(group: GroupSnapshot, target: Int32Array) -> None:
    """Refuse a target that breaks the contract of assignors.

    Args:
        group: what the assignor got: only its `assignable` resources may be placed.
        target: what it gave.

    Raises:
        AssignorError: the first thing that is wrong.
    """
    malformed = _holder_form_problem(group, "target", target)
    problem = malformed or next(_misplacements(group, target), None)
    if problem is not None:
        raise AssignorError(problem)


def violations(group: GroupSnapshot, plan: RoundPlan) -> tuple[str, ...]:
    """Say which safety rules a plan breaks.

    Args:
        group: the group as it is, with R resources.
        plan: what a policy staged.

    Returns:
        One sentence for each broken rule, empty for a safe plan. Arrays of a wrong form are all
        that is said of a plan that has them.
    """
    malformed = tuple(_form_problems(group, plan))
    return malformed or tuple(_plan_problems(group, plan))


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
        problem = _array_form_problem(group, field, getattr(plan, field), np.bool_)
        if problem is not None:
            yield problem


def _holder_form_problem(group: GroupSnapshot, field: str, holder: Int32Array) -> str | None:
    problem = _array_form_problem(group, field, holder, np.int32)
    if problem is not None or not holder.size:
        return problem
    if holder.min() < NOBODY or holder.max() >= len(group.members):
        worst = int(holder.min() if holder.min() < NOBODY else holder.max())
        return f"{field} names member {worst} of a group of {len(group.members)}"
    return None


def _array_form_problem(
    group: GroupSnapshot, field: str, array: object, dtype: type[np.generic]
) -> str | None:
    expected = f"{np.dtype(dtype)} of shape {(len(group.resources),)}"
    if not isinstance(array, np.ndarray):
        return f"{field} is a {type(array).__name__}, expected an array, {expected}"
    if array.dtype != dtype or array.shape != (len(group.resources),):
        return f"{field} is {array.dtype} of shape {array.shape}, expected {expected}"
    return None


def _plan_problems(group: GroupSnapshot, plan: RoundPlan) -> Iterator[str]:
    yield from _granted_while_claimed(group, plan)
    yield from _held_by_strangers(group, plan)
    yield from _dropped(group, plan)
    yield from _falsely_reported(group, plan)
    yield from _badly_announced(group, plan)


def _granted_while_claimed(group: GroupSnapshot, plan: RoundPlan) -> Iterator[str]:
    """Rules (b) and (g): nothing is granted that another member still claims."""
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
    """Rule (c): holders subscribe to what they hold, and it exists."""
    held = plan.assigned != NOBODY
    yield from _first(group, held & ~group.assignable, "assigned though it is not assignable")
    yield from _first(
        group,
        held & group.assignable & ~group.may_hold(plan.assigned),
        "assigned to a member that does not subscribe to it",
    )


def _dropped(group: GroupSnapshot, plan: RoundPlan) -> Iterator[str]:
    """Rule (d): whatever is subscribed is assigned, or it is said why not."""
    explained = (plan.assigned != NOBODY) | plan.waiting | plan.lost | group.contested
    if not all(member.readable for member in group.members):
        explained |= ~group.claimed()  # may be owned by a member whose claims nobody could read
    yield from _first(
        group,
        group.assignable & group.subscribed() & ~explained,
        "dropped: neither assigned nor waiting nor lost",
    )


def _falsely_reported(group: GroupSnapshot, plan: RoundPlan) -> Iterator[str]:
    """Rule (d), its other half: what is said of a resource is true."""
    held = plan.assigned != NOBODY
    yield from _first(group, plan.lost & held, "called lost though it is assigned")
    yield from _first(group, plan.lost & group.claimed(), "called lost though it is claimed")
    yield from _first(group, plan.lost & plan.waiting, "called both lost and waiting")
    yield from _first(group, plan.created & ~held, "called created though it is not granted")
    yield from _first(group, plan.created & group.claimed(), "called created though it is claimed")


def _badly_announced(group: GroupSnapshot, plan: RoundPlan) -> Iterator[str]:
    """Rules (e) and (f): who stops something rejoins at once; a delay needs that nobody does."""
    stopped = np.zeros(len(group.resources), dtype=np.bool_)
    stop = plan.assigned[group.claim_resources] != group.claim_members
    stopped[group.claim_resources[stop]] = True
    timeout_ms: Any = plan.scheduled_rebalance_timeout_ms
    if not 0 <= timeout_ms <= _TIMEOUT_MS_MAX:
        yield f"scheduled rebalance timeout of {timeout_ms} ms, expected 0 to {_TIMEOUT_MS_MAX}"
    if timeout_ms and plan.follow_up:
        yield f"scheduled rebalance timeout of {timeout_ms} ms though a follow-up round comes"
    if timeout_ms:
        yield from _first(group, stopped, "revoked under a scheduled rebalance timeout")
    if not plan.follow_up:
        yield from _first(group, stopped, "revoked without a follow-up round")


def _first(group: GroupSnapshot, wrong: BoolArray, sentence: str) -> Iterator[str]:
    """The sentence with the first resource that it is true of, and how many there are."""
    places = np.flatnonzero(wrong)
    if places.size:
        one = np.zeros(len(group.resources), dtype=np.bool_)
        one[places[0]] = True
        ((name, index),) = group.resources.take(one)
        more = f" and {places.size - 1} more" if places.size > 1 else ""
        yield f"{sentence}: {name}-{index}{more}"
