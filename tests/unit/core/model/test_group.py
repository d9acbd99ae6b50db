"""A group snapshot, and a plan that names the holders: the revocations follow from it."""

import pytest

from coopgroup.core.model import MemberClaim, ReplicaRacks, ResourceSet, resolve_claims
from coopgroup.core.model.plan import revoked_by_member, revoked_claims
from tests.support.groups import claim, group_of, holder_of


def test_replica_racks_when_some_are_unknown_stay_empty_there() -> None:
    resources = ResourceSet({"a": range(3), "b": [0]})
    racks = ReplicaRacks.build(resources, {"a": {0: ["r2", "r1", "r2"], 2: ["r3"]}, "z": {0: []}})
    assert racks.racks == ("r1", "r2", "r3")
    assert racks.starts.tolist() == [0, 2, 2, 3, 3]
    assert racks.numbers.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        (ResourceSet({"T": [0, 1, 2]}), [True] * 3),
        (ResourceSet({"T": [1], "U": [0]}), [False, True, False]),
        (ResourceSet(), [False] * 3),
    ],
    ids=["the same", "one of them vanished", "none"],
)
def test_mask_of_other_resources(others: ResourceSet, expected: list[bool]) -> None:
    group = resolve_claims(
        [MemberClaim(member_id="a", topics=("T",))], ResourceSet({"T": range(3)})
    )
    assert group.mask_of(others).tolist() == expected


def test_revocations_when_a_resource_moves_are_those_of_its_present_owner() -> None:
    group = group_of(
        {"T": range(1, 5)},
        claim("A", {"T": [1, 4]}),
        claim("B", {"T": [2]}),
        claim("C", {"T": [3, 4]}, generation=0),
    )
    assigned = holder_of(group, {"A": {"T": [1]}, "B": {"T": [2, 3]}})
    assert [stop.to_dict() for stop in revoked_by_member(group, assigned)] == [
        {"T": [4]},
        {},
        {"T": [3, 4]},
    ]
    assert revoked_claims(group, assigned).tolist() == [False, False, True, True, True]
