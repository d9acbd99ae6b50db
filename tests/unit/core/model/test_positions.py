"""Positions of the resources of many small sets in a large set."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from coopgroup.core.model import ResourceSet
from coopgroup.core.model.positions import ABSENT, positions_in

SETS = st.builds(
    ResourceSet,
    st.dictionaries(
        st.sampled_from(["a", "b", "c", "d"]),
        st.lists(st.one_of(st.integers(-1, 6), st.sampled_from([-(2**31), 2**31 - 1])), max_size=6),
    ),
)


def expected(resources: ResourceSet, sets: list[ResourceSet]) -> list[int]:
    place_of = {one: place for place, one in enumerate(resources)}
    return [place_of.get(one, ABSENT) for some in sets for one in some]


@example(resources=ResourceSet({"b": [0], "c": [1]}), sets=[ResourceSet({"c": [0]})])
@given(resources=SETS, sets=st.lists(SETS, max_size=5))
def test_positions_in_when_given_any_sets_finds_present_resources(
    resources: ResourceSet, sets: list[ResourceSet]
) -> None:
    assert positions_in(resources, sets).tolist() == expected(resources, sets)
