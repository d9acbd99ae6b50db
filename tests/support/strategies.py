"""Hypothesis strategies for groups in any condition, including broken ones."""

import attrs
import numpy as np
from hypothesis import strategies as st

from coopgroup.core.model import GroupSnapshot, MemberClaim, ResourceSet, resolve_claims
from coopgroup.core.model.resource_set import Int64Array

NAMES = ("T0", "T1", "T2", "T3")

indices = st.lists(st.integers(-1, 6), max_size=6)
indices_by_name = st.dictionaries(st.sampled_from(NAMES), indices, max_size=4)
wide_indices_by_name = st.dictionaries(
    st.text(max_size=3), st.lists(st.integers(-(2**31), 2**31 - 1), max_size=8), max_size=5
)
arrivals = st.none() | st.lists(st.integers(0, 3) | st.floats(0, 1e6), min_size=1)
rates = st.none() | st.sampled_from([0.0, 1.0, 3.0]) | st.floats(0, 1e7)


@st.composite
def claims(draw: st.DrawFn, topics: st.SearchStrategy[list[str]]) -> list[MemberClaim]:
    """Draw claims of any kind: stale, foreign, unsubscribed, overlapping, of any generation."""
    count = draw(st.integers(0, 6))
    return [
        MemberClaim(
            member_id=f"m{number}",
            topics=tuple(sorted(set(draw(topics)))),
            owned=ResourceSet(draw(indices_by_name)),
            generation=draw(st.integers(-1, 3)),
            consumption_rate_per_s=draw(rates),
        )
        for number in range(count)
    ]


mixed_topics = st.lists(st.sampled_from((*NAMES, "absent")), max_size=4)


@st.composite
def mixed_groups(draw: st.DrawFn) -> GroupSnapshot:
    """Draw groups in which members subscribe to different topics."""
    return resolve_claims(draw(claims(mixed_topics)), ResourceSet(draw(indices_by_name)))


@st.composite
def uniform_groups(draw: st.DrawFn) -> GroupSnapshot:
    """Draw groups in which all members subscribe to all topics."""
    members = draw(claims(st.just(list(NAMES))))
    return resolve_claims(members, ResourceSet(draw(indices_by_name)))


def repeated_lags(group: GroupSnapshot, values: list[int]) -> Int64Array:
    """Return drawn lags, over and over, for the resources of a group."""
    return np.resize(np.array(values, dtype=np.int64), len(group.resources))


def with_arrivals(group: GroupSnapshot, values: list[float] | None) -> GroupSnapshot:
    """Return a group whose drawn arrival rates are known, over and over, unless there are none."""
    if values is None:
        return group
    figures = np.resize(np.array(values, dtype=np.float64), len(group.resources))
    return attrs.evolve(group, arrivals_per_s=figures)
