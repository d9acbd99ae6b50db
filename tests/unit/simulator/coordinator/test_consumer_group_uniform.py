"""The uniform assignor of the model."""

import pytest

from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.simulator.coordinator.consumer_group import assign_uniformly

SEVEN = ResourceSet({"T": range(7)})


def test_shares_differ_by_one_at_most() -> None:
    shares = assign_uniformly({"a": ("T",), "b": ("T",), "c": ("T",)}, {}, SEVEN)
    assert sorted(map(len, shares.values())) == [2, 2, 3]
    assert ResourceSet.union_all(list(shares.values())) == SEVEN


@pytest.mark.parametrize("members", ["abc", "abcd", "ab"])
def test_few_partitions_move(members: str) -> None:
    before = assign_uniformly({"a": ("T",), "b": ("T",), "c": ("T",)}, {}, SEVEN)
    after = assign_uniformly(dict.fromkeys(members, ("T",)), before, SEVEN)
    kept = sum(len(share & before.get(member, EMPTY)) for member, share in after.items())
    assert kept == {"abc": 7, "abcd": 6, "ab": 5}[members]


def test_partition_goes_to_a_subscriber() -> None:
    existing = ResourceSet({"T": range(2), "U": range(3)})
    shares = assign_uniformly({"a": ("T", "U"), "b": ("U",), "c": ()}, {}, existing)
    assert shares["c"] == EMPTY
    assert shares["b"].restrict_names(["T"]) == EMPTY
    assert ResourceSet.union_all(list(shares.values())) == existing
