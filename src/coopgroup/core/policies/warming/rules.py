"""Safety rules for the warm-ups of a plan, part of module `policies.safety`.

Like the other safety rules they share no code with the decisions that they check.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coopgroup.core.model import GroupSnapshot, RoundPlan
    from coopgroup.core.model.resource_set import BoolArray, Int32Array, Int64Array
    from coopgroup.core.policies.warming.option import Warmup


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


def _pairs(group: GroupSnapshot, resources: Int32Array, members: Int32Array) -> Int64Array:
    pairs: Int64Array = resources.astype(np.int64) * len(group.members) + members
    return pairs
