"""Which moves reduce uneven lags, and which are not worth making."""

from collections.abc import Mapping, Sequence

import attrs
import numpy as np
import pytest

from coopgroup.assignors import LagAwareAssignor
from coopgroup.core.model import NOBODY, GroupSnapshot, ResourceSet
from coopgroup.core.model.replacing import replaced
from coopgroup.core.model.resource_set import Int32Array
from coopgroup.core.policies.balance import lag_loads, lag_moves
from coopgroup.policies import BalanceRule
from tests.support.groups import Indices, by_member, claim, group_of, holder_of, lags_of

RULE = BalanceRule(
    interval_ms=1_000,
    ratio=1.5,
    calm_ratio=1.2,
    looks=3,
    lag_min=10,
    cooldown_ms=10_000,
    moves_max=2,
)
TWO_HOT: Mapping[str, Sequence[int]] = {"T": [500, 500, 10, 10, 20, 20]}
A01 = {"A": {"T": [0, 1]}, "B": {"T": [2, 3]}, "C": {"T": [4, 5]}}
EXCHANGED = {"A": {"T": [1, 2]}, "B": {"T": [0, 3]}, "C": {"T": [4, 5]}}


def group(owned: Mapping[str, Indices]) -> GroupSnapshot:
    """A group whose members own these partitions of T and U."""
    claims = [claim(member, has, topics=("T", "U")) for member, has in owned.items()]
    existing = {
        name: [one for has in owned.values() for one in has.get(name, ())] for name in ("T", "U")
    }
    return group_of({name: numbers for name, numbers in existing.items() if numbers}, *claims)


def chosen(
    some: GroupSnapshot,
    target: Mapping[str, Indices],
    lags: Mapping[str, Sequence[int]],
    rule: BalanceRule = RULE,
) -> dict[str, Indices]:
    goal = holder_of(some, target)
    moves = lag_moves(some, goal, lags_of(some, lags), some.owner != goal, rule)
    return {member: gets for member, gets in by_member(some, moves).items() if gets}


def test_exchange_that_the_target_wants_is_chosen() -> None:
    assert chosen(group(A01), EXCHANGED, TWO_HOT) == {"A": {"T": [2]}, "B": {"T": [0]}}


def test_choice_when_more_is_wanted_is_what_evens_out_most() -> None:
    target = {"A": {"T": [2, 4]}, "B": {"T": [0, 3]}, "C": {"T": [1, 5]}}
    lags = {"T": [100, 500, 10, 10, 20, 20]}
    assert chosen(group(A01), target, lags) == {"A": {"T": [2]}, "B": {"T": [1]}}


def test_partner_of_an_exchange_does_not_get_what_it_declines() -> None:
    """The target passes partitions around a circle, so the policy chooses the partner."""
    target = {"A": {"T": [2, 4]}, "B": {"T": [0, 3]}, "C": {"T": [1, 5]}}
    lags = {"T": [100, 500, 10, 10, 20, 20]}
    some = group(A01)
    members = list(some.members)
    members[1] = attrs.evolve(members[1], declined=ResourceSet({"T": [1]}))
    declining = replaced(some, members=tuple(members))
    assert chosen(declining, target, lags) == {"A": {"T": [2]}, "B": {"T": [0]}}


def test_partner_under_limits_is_that_of_the_target() -> None:
    target = {"A": {"T": [2, 4]}, "B": {"T": [0, 3]}, "C": {"T": [1, 5]}}
    lags = lags_of(group(A01), {"T": [100, 500, 10, 10, 20, 20]})
    some = group(A01)
    goal = holder_of(some, target)
    moves = lag_moves(some, goal, lags, some.owner != goal, RULE, has_limits=True)
    gets = {member: has for member, has in by_member(some, moves).items() if has}
    assert gets == {"A": {"T": [2]}, "B": {"T": [0]}}


def test_exchange_of_two_topics_is_chosen_only_where_the_target_wants_just_that() -> None:
    """Otherwise a member could get an unsubscribed topic, or a topic would be spread unevenly."""
    has = {"A": {"T": [0, 1]}, "B": {"U": [2]}, "C": {"T": [3], "U": [4]}}
    lags = {"T": [500, 500, 5], "U": [5, 5]}
    just = {"A": {"T": [1], "U": [2]}, "B": {"T": [0]}, "C": {"T": [3], "U": [4]}}
    assert chosen(group(has), just, lags) == {"A": {"U": [2]}, "B": {"T": [0]}}
    circle = {"A": {"T": [1], "U": [4]}, "B": {"T": [0]}, "C": {"T": [3], "U": [2]}}
    assert chosen(group(has), circle, lags) == {}


def test_hand_over_is_chosen_where_the_target_wants_other_counts() -> None:
    has = {"A": {"T": [0, 1, 2]}, "B": {"T": [3]}}
    target = {"A": {"T": [1, 2]}, "B": {"T": [0, 3]}}
    single = attrs.evolve(RULE, moves_max=1)
    assert chosen(group(has), target, {"T": [500, 500, 5, 5]}, single) == {"B": {"T": [0]}}


def test_half_of_an_exchange_is_never_chosen() -> None:
    """It would leave two members with uneven counts, and the move would be reversed."""
    assert chosen(group(A01), EXCHANGED, TWO_HOT, attrs.evolve(RULE, moves_max=1)) == {}


@pytest.mark.parametrize(
    "lags",
    [
        [500, 500, 480, 480, 20, 20],
        [500, 0, 10, 10, 20, 20],
        [9, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0],
    ],
    ids=["the partner carries as much", "it carries one only", "too little", "nothing"],
)
def test_exchange_that_gains_too_little_is_left_alone(lags: list[int]) -> None:
    assert chosen(group(A01), EXCHANGED, {"T": lags}) == {}


def spread(some: GroupSnapshot, moves: Int32Array, lags: Mapping[str, Sequence[int]]) -> float:
    holder = np.where(moves == NOBODY, some.owner, moves).astype(np.int32)
    return float(lag_loads(some, holder, lags_of(some, lags)).max())


def _moves_of_any_group_keep_the_counts_and_make_the_heaviest_lighter(seed: int) -> None:
    dice = np.random.default_rng(seed)
    members, each = 2 + seed % 7, 2 + seed % 5
    has = {
        f"m{number}": {"T": list(range(number * each, (number + 1) * each))}
        for number in range(members)
    }
    some = group(has)
    values = dice.integers(0, 50, members * each)
    values[:each] += 1_000
    lags = {"T": values.tolist()}
    target = LagAwareAssignor().assign(some, lags_of(some, lags))
    moves = lag_moves(some, target, lags_of(some, lags), some.owner != target, RULE)
    moved = moves != NOBODY
    assert moved.sum() == 2
    assert sorted(some.owner[moved].tolist()) == sorted(moves[moved].tolist())
    before = spread(some, np.full_like(moves, NOBODY), lags)
    assert spread(some, moves, lags) < before


def test_moves_of_any_group_keep_the_counts_and_make_the_heaviest_lighter(
    subtests: pytest.Subtests,
) -> None:
    for seed in range(20):
        with subtests.test(seed=seed):
            _moves_of_any_group_keep_the_counts_and_make_the_heaviest_lighter(seed)
