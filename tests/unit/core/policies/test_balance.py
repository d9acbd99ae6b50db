"""Continuous lag balance: the count of consecutive checks in which a member is overloaded."""

from typing import Any

import attrs
import numpy as np
import pytest

from coopgroup.core.model import GroupSnapshot, MemberClaim, ResourceSet
from coopgroup.core.policies.balance import count_looks, lag_loads, speeds
from coopgroup.core.policies.memory import PairKind, RememberedPairs
from coopgroup.policies import BalanceRule, Loss
from tests.support.groups import claim, group_of, lags_of
from tests.support.memory import remembered

RULE = BalanceRule(
    interval_ms=1_000,
    ratio=2.0,
    calm_ratio=1.5,
    looks=3,
    lag_min=100,
    cooldown_ms=10_000,
    moves_max=2,
)
IDS = ("A", "B", "C", "D")
CALM = remembered(*IDS, generation=3, owned=ResourceSet({"T": [1]}))


def looks(*rows: tuple[float, ...], rule: BalanceRule = RULE) -> dict[str, int]:
    """Return the counts after these checks of the lags of A, B, C and D."""
    counted: tuple[tuple[str, int], ...] = ()
    for row in rows:
        counted = count_looks(rule, IDS, np.array(row), counted)
    return dict(counted)


HEAVY, BETWEEN = (900, 100, 100, 100), (525, 225, 225, 225)


WANDERING = [tuple(np.roll(HEAVY, place).tolist()) for place in range(8)]
COUNTS: dict[str, tuple[list[tuple[int, ...]], dict[str, int]]] = {
    "at the ratio": ([(600, 200, 200, 200)], {}),
    "between the ratios": ([BETWEEN], {}),
    "between the ratios it stays as it was": ([HEAVY, BETWEEN, HEAVY], {"A": 2}),
    "calm": ([HEAVY, (450, 250, 250, 250)], {}),
    "below the mean": ([HEAVY, (0, 400, 400, 400)], {}),
    "a peak that wanders is no lasting overload": (WANDERING, {"D": 1}),
    "tiny lags say nothing": ([(99, 0, 0, 0)], {}),
    "tiny lags reset the count": ([(900, 0, 0, 0), (99, 0, 0, 0)], {}),
    "enough lag": ([(100, 0, 0, 0)], {"A": 1}),
}


@pytest.mark.parametrize(("rows", "counts"), COUNTS.values(), ids=COUNTS)
def test_count_of_checks_in_which_a_member_is_overloaded(
    rows: list[tuple[float, ...]], counts: dict[str, int]
) -> None:
    assert looks(*rows) == counts


def test_count_when_nothing_lags_or_the_member_is_gone_ends() -> None:
    assert looks((0, 0, 0, 0), rule=attrs.evolve(RULE, lag_min=0)) == {}
    assert count_looks(RULE, ("B",), np.array([500.0]), (("A", 2),)) == ()


def group(**rates: float | None) -> GroupSnapshot:
    """A, B and C own one partition each."""
    claims: list[MemberClaim] = [
        attrs.evolve(claim(member, {"T": [place]}), consumption_rate_per_s=rates.get(member))
        for place, member in enumerate("ABC")
    ]
    return group_of({"T": range(4)}, *claims)


def test_loads_are_lags_where_nobody_tells_how_fast_it_is() -> None:
    some = group()
    lags = lags_of(some, {"T": [10, 20, 30, 40]})
    assert lag_loads(some, some.owner, lags).tolist() == [10, 20, 30]


def test_loads_when_members_tell_how_fast_they_are_are_times() -> None:
    some = group(A=300.0, B=100.0)
    assert speeds(some).tolist() == [1.5, 0.5, 1.0]
    lags = lags_of(some, {"T": [30, 10, 20]})
    assert lag_loads(some, some.owner, lags).tolist() == [20, 20, 20]
    assert speeds(group(A=1e9, B=1e-9, C=1e9)).tolist() == pytest.approx([1.5, 0.1, 1.5])


def test_group_at_rest_may_be_looked_at() -> None:
    assert CALM.is_at_rest(0)
    assert attrs.evolve(CALM, moves_due_ms=50).is_at_rest(50)


BUSY: dict[str, dict[str, Any]] = {
    "a loss waits": {
        "losses": (Loss(owner="E", instance_id=None, deadline_ms=90),),
        "resources": attrs.evolve(CALM.resources, loss=np.array([0], dtype=np.int32)),
    },
    "the group forms": {"initial_until_ms": 90},
    "the leader did not see what went before": {"blind": True},
    "the target was never reached": {"moves_pending": True},
    "moves were put off": {"resources": attrs.evolve(CALM.resources, planned=np.array([True]))},
    "a member is slow to stop": {
        "pairs": RememberedPairs.of(PairKind.TOLD, np.array([0]), np.array([0]))
    },
    "the last moves were a moment ago": {"moves_due_ms": 51},
}


@pytest.mark.parametrize("change", BUSY.values(), ids=BUSY)
def test_group_that_waits_or_moves_is_not_at_rest(change: dict[str, Any]) -> None:
    """Lags during moves say nothing about the group after them."""
    assert not attrs.evolve(CALM, **change).is_at_rest(50)
