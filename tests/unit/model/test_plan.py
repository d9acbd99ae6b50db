"""A plan names the holders. The revocations follow from it."""

from coopgroup.model import plan_that_moves_nothing
from coopgroup.model.plan import revoked_by_member, revoked_claims
from tests.support.groups import by_member, claim, group_of, holder_of, told


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


def test_plan_that_moves_nothing_when_claims_are_stale_stops_only_those() -> None:
    group = group_of(
        {"T": range(3)}, claim("A", {"T": [0, 1]}), claim("B", {"T": [1]}, generation=0)
    )
    plan = plan_that_moves_nothing(group)
    assert told(group, plan) == {"A": ({"T": [0, 1]}, {}), "B": ({}, {"T": [1]})}
    assert by_member(group, plan.target) == {"A": {"T": [0, 1]}, "B": {}}


def test_plan_that_moves_nothing_when_owner_may_not_hold_takes_it_away() -> None:
    group = group_of({"T": [0], "U": [0]}, claim("A", {"T": [0, 9], "U": [0]}))
    assert told(group, plan_that_moves_nothing(group)) == {
        "A": ({"T": [0]}, {"T": [9], "U": [0]}),
    }
