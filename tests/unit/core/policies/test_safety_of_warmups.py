"""The leader's check of warm-ups: for each rule, a plan that breaks only that rule."""

import attrs
import numpy as np
import pytest

from coopgroup.core.model import (
    EMPTY,
    GroupSnapshot,
    ResourceSet,
    RoundPlan,
    plan_that_moves_nothing,
)
from coopgroup.policies import Warmup, violations
from tests.support.groups import claim, group_of

LIMITS = Warmup(max_concurrent=2, per_member=1)
RESOURCES = {"T": range(4), "U": [0]}


def _group() -> GroupSnapshot:
    """A, B and C take part; C is warm for T0, and D takes no part. T4 no longer exists."""
    return group_of(
        RESOURCES,
        claim("A", {"T": range(5)}, warm=EMPTY),
        claim("B", warm=EMPTY),
        claim("C", warm=ResourceSet({"T": [0]})),
        claim("D"),
        claim("E", topics="U", warm=EMPTY),
    )


def _plan(group: GroupSnapshot, *pairs: tuple[int, int]) -> RoundPlan:
    """Return a safe plan with warm-ups as (resource, member)."""
    plan = plan_that_moves_nothing(group)
    return attrs.evolve(
        plan,
        waiting=group.assignable & (plan.assigned == -1),
        warmup_resources=np.array([resource for resource, _ in pairs], dtype=np.int32),
        warmup_members=np.array([member for _, member in pairs], dtype=np.int32),
    )


@pytest.mark.parametrize("pairs", [[], [(0, 1)], [(0, 1), (0, 2), (1, 2)], [(0, 1), (1, 2)]])
def test_warm_ups_when_right_break_no_rule(pairs: list[tuple[int, int]]) -> None:
    """A warm one does not count: C may warm up T1 while it stays warm for T0."""
    group = _group()
    assert violations(group, _plan(group, *pairs), warmup=LIMITS) == ()


@pytest.mark.parametrize(
    ("pairs", "sentence"),
    [
        ([(0, 0)], "warm-up of the owner: T-0"),
        ([(1, 3)], "warm-up of a member that takes no part: T-1"),
        ([(0, 4)], "warm-up of a member that does not subscribe: T-0"),
        ([(4, 1)], "warm-up though it is not assignable: T-4"),
        ([(0, 1), (1, 1)], "2 cold warm-ups of one member, expected at most 1"),
        ([(0, 1), (1, 2), (5, 4)], "3 cold warm-ups, expected at most 2"),
        ([(1, 1), (0, 2)], "warm-ups are not in ascending order, each once"),
        ([(0, 1), (0, 1)], "warm-ups are not in ascending order, each once"),
        ([(0, 5)], "warmup_members has a number outside 0 to 4"),
        ([(-1, 1)], "warmup_resources has a number outside 0 to 5"),
    ],
)
def test_warm_ups_when_wrong_are_named(pairs: list[tuple[int, int]], sentence: str) -> None:
    group = _group()
    assert violations(group, _plan(group, *pairs), warmup=LIMITS) == (sentence,)


def test_warm_ups_of_another_type_are_named() -> None:
    group = _group()
    plan = attrs.evolve(_plan(group, (0, 1)), warmup_resources=np.array([0]))
    sentence = "warmup_resources is no array, int32 of shape (1,)"
    assert violations(group, plan) == (sentence,)


def test_limits_count_only_if_they_are_given() -> None:
    group = _group()
    plan = _plan(group, (0, 1), (1, 1), (2, 1))
    assert violations(group, plan) == ()
    assert len(violations(group, plan, warmup=LIMITS)) == 2
