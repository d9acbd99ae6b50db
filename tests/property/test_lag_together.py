"""Large groups, in which many pairs of members exchange at the same time: the same invariants.

The same code runs with small numbers: the threshold for pairs is lowered.
"""

from collections.abc import Iterator
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coopgroup.assignors import Assignor, DrainTimeAssignor, LagAwareAssignor
from coopgroup.model import NOBODY
from coopgroup.model.group import GroupSnapshot
from coopgroup.model.resource_set import Int64Array
from tests.support.groups import claim, group_of

SIZE = 8


@pytest.fixture(autouse=True, scope="module")
def few_are_many() -> Iterator[None]:
    """Count two members as a large group."""
    with (
        mock.patch("coopgroup.assignors.levelling.steps._TOGETHER_MIN", 2),
        mock.patch("coopgroup.assignors.levelling.pairing._PAIRS_MIN", 1),
    ):
        yield


@st.composite
def groups(draw: st.DrawFn) -> tuple[GroupSnapshot, Int64Array]:
    """Draw one topic with any owners, and its lags."""
    owners = draw(st.lists(st.integers(-1, SIZE - 1), min_size=1, max_size=60))
    values = draw(st.lists(st.integers(0, 9) | st.integers(0, 10_000), min_size=1))
    owned: list[list[int]] = [[] for _ in range(SIZE)]
    for index, owner in enumerate(owners):
        if owner >= 0:
            owned[owner].append(index)
    members = [claim(f"m{number}", {"t": some}, topics=["t"]) for number, some in enumerate(owned)]
    return group_of({"t": range(len(owners))}, *members), np.resize(np.array(values), len(owners))


assignors = st.builds(
    LagAwareAssignor, max_skew=st.integers(1, 4), gain_min=st.sampled_from([0, 0.05, 0.3])
) | st.builds(DrainTimeAssignor, gain_min=st.sampled_from([0, 0.05, 0.3]))


@settings(max_examples=60)
@given(groups(), assignors)
def test_target_when_reached_is_kept(
    given_group: tuple[GroupSnapshot, Int64Array], assignor: Assignor
) -> None:
    group, lags = given_group
    target = assignor.assign(group, lags)
    assert (target != NOBODY).all()
    again = group.view(owner=target, assignable=group.assignable)
    assert assignor.assign(again, lags).tolist() == target.tolist()


@settings(max_examples=60)
@given(groups(), st.integers(1, 4), st.integers(0, 4))
def test_counts_and_budget_are_kept_when_steps_are_taken_together(
    given_group: tuple[GroupSnapshot, Int64Array], skew: int, budget: int
) -> None:
    group, lags = given_group
    target = LagAwareAssignor(max_skew=skew, moves_max=budget, gain_min=0).assign(group, lags)
    by_counts = LagAwareAssignor(max_skew=skew, moves_max=0).assign(group, lags)
    counts = np.bincount(target, minlength=SIZE)
    assert np.ptp(counts) <= skew
    owned = group.owner != NOBODY
    moved, fewest = ((one != group.owner)[owned].sum() for one in (target, by_counts))
    assert moved <= fewest + budget


@settings(max_examples=40)
@given(groups())
def test_highest_lag_when_steps_are_taken_together_is_no_higher_than_without_any(
    given_group: tuple[GroupSnapshot, Int64Array],
) -> None:
    """Each exchange relieves the slower of two members."""
    group, lags = given_group
    none = LagAwareAssignor(moves_max=0).assign(group, lags)
    some = LagAwareAssignor().assign(group, lags)
    assert np.bincount(some, lags).max() <= np.bincount(none, lags).max()
