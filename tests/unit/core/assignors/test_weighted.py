"""The assignor of weighted resources: its balance, and its reasons to move nothing."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coopgroup.assignors import WeightedAssignor
from coopgroup.core.model import GroupSnapshot, ResourceSet, resolve_claims
from coopgroup.core.model.resource_set import Int32Array, Int64Array
from coopgroup.errors import ConfigurationError
from tests.support.groups import claim

Weights = dict[tuple[str, int], int]


def _group(weights: Weights, **owned: dict[str, list[int]]) -> tuple[GroupSnapshot, Int64Array]:
    """Return members that subscribe to all names, and the weights in the group's order."""
    existing = ResourceSet.from_pairs(weights)
    names = sorted({name for name, _ in weights})
    group = resolve_claims(
        [claim(member, held, topics=names) for member, held in owned.items()], existing
    )
    values = [weights.get((one.name, one.index), 0) for one in group.resources]
    return group, np.array(values, dtype=np.int64)


def _held(group: GroupSnapshot, target: Int32Array) -> dict[str, list[tuple[str, int]]]:
    return {
        member: [(one.name, one.index) for one in held]
        for member, held in zip(group.member_ids, group.by_member(target), strict=True)
    }


def _loads(group: GroupSnapshot, target: Int32Array, weights: Int64Array) -> list[int]:
    return [int(weights[target == number].sum()) for number in range(len(group.members))]


def test_heavy_resources_when_nobody_owns_any_are_spread_by_weight() -> None:
    weights = {("heavy", 0): 30, **{("light", index): 10 for index in range(6)}}
    group, values = _group(weights, a={}, b={}, c={})
    target = WeightedAssignor().assign(group, values)
    assert _held(group, target)["a"] == [("heavy", 0)]
    assert _loads(group, target, values) == [30, 30, 30]


def test_connectors_are_balanced_apart_from_tasks() -> None:
    weights = {(f"c{number}", -1): 100 for number in range(4)}
    weights |= {(f"c{number}", index): 1 for number in range(4) for index in range(3)}
    group, values = _group(weights, a={}, b={})
    held = _held(group, WeightedAssignor().assign(group, values))
    for member in ("a", "b"):
        assert sum(index == -1 for _, index in held[member]) == 2
        assert sum(index >= 0 for _, index in held[member]) == 6


def test_weights_whose_sum_overflows_are_compared() -> None:
    """Some weights are lags, which have no upper bound."""
    weights = {("t", index): 2**63 - 1 for index in range(4)} | {("t", 4): 1}
    group, values = _group(weights, a={"t": [0, 1, 2, 3, 4]}, b={})
    target = WeightedAssignor().assign(group, values)
    assert sorted(np.bincount(target).tolist()) == [2, 3]


@given(
    st.lists(st.tuples(st.integers(1, 9) | st.integers(1, 10_000), st.integers(0, 3)), min_size=1)
)
def test_levels_when_reached_no_gift_and_no_swap_with_the_lightest_helps(
    things: list[tuple[int, int]],
) -> None:
    owned: dict[str, list[int]] = {member: [] for member in "abcd"}
    for index, (_, owner) in enumerate(things):
        owned["abcd"[owner]].append(index)
    weights = {("t", index): weight for index, (weight, _) in enumerate(things)}
    group, values = _group(weights, **{member: {"t": some} for member, some in owned.items()})
    target = WeightedAssignor(tolerance=0).assign(group, values)
    loads = _loads(group, target, values)
    lightest = loads.index(min(loads))
    gifts = [0, *values[target == lightest].tolist()]
    for member in set(range(4)) - {lightest}:
        ahead = loads[member] - loads[lightest]
        rests = [
            abs(ahead - 2 * (given - taken))
            for given in values[target == member].tolist()
            for taken in gifts
        ]
        assert ahead <= 1 or min(rests, default=ahead) >= ahead


def test_many_equal_resources_of_one_owner_are_levelled_at_once() -> None:
    """A tenth of a second of CPU time. A search of all resources for each move took nine."""
    group, values = _group(
        {("t", index): 1 for index in range(20_000)},
        a={"t": list(range(20_000))},
        **{f"b{number}": {} for number in range(9)},
    )
    began_s = time.thread_time()
    target = WeightedAssignor().assign(group, values)
    assert time.thread_time() - began_s < 2
    assert max(counts := np.bincount(target)) - min(counts) <= 200


@pytest.mark.parametrize("tolerance", [-0.1, 1.1, True, "much"])
def test_tolerance_that_is_no_share_is_refused(tolerance: object) -> None:
    with pytest.raises(ConfigurationError, match=r"tolerance: got .*, expected a number from 0"):
        WeightedAssignor(tolerance=tolerance)  # type: ignore[arg-type] # a user's mistake
