"""From claims to rightful owners: the cases of KIP-792."""

from typing import Any

import numpy as np

from coopgroup.core.model import GroupMember, MemberClaim, ResourceSet, resolve_claims
from tests.support.checkers import claims_of
from tests.support.groups import by_member, claim, group_of

RESOURCES = {"t": range(4)}


def test_stale_claim_when_beside_a_newer_one_loses() -> None:
    """A owns t0-t3 in generation 5, B claims t3 in generation 3: A owns all four.

    If the last claim in the list counted, t3 would have two owners for a round.
    """
    group = group_of(
        RESOURCES,
        claim("A", {"t": range(4)}, topics=["t"], generation=5),
        claim("B", {"t": [3]}, topics=["t"], generation=3),
    )
    assert by_member(group, group.owner) == {"A": {"t": [0, 1, 2, 3]}, "B": {}}
    assert group.contested.tolist() == [False] * 4
    assert claims_of(group) == {
        ("t", 0): {"A"},
        ("t", 1): {"A"},
        ("t", 2): {"A"},
        ("t", 3): {"A", "B"},
    }


def test_tied_claims_when_of_the_newest_generation_belong_to_nobody() -> None:
    """Two claims in one generation cancel each other (KAFKA-12984), and an older third one too."""
    group = group_of(
        RESOURCES,
        claim("A", {"t": [0, 1]}, topics=["t"], generation=5),
        claim("B", {"t": [1, 2]}, topics=["t"], generation=5),
        claim("C", {"t": [1, 3]}, topics=["t"], generation=4),
    )
    assert by_member(group, group.owner) == {"A": {"t": [0]}, "B": {"t": [2]}, "C": {"t": [3]}}
    assert group.contested.tolist() == [False, True, False, False]


def test_members_when_given_in_any_order_are_numbered_by_id() -> None:
    told: dict[str, Any] = {
        "instance_id": "host-b",
        "rack": "r1",
        "rejoin_in_ms": 70,
        "loss_ends_in_ms": 900,
    }
    group = resolve_claims(
        [
            MemberClaim(member_id="b", topics=("t",), generation=2, **told),
            MemberClaim(member_id="a", topics=("s", "t")),
            MemberClaim(member_id="c", topics=(), readable=False),
            MemberClaim(member_id="d", topics=("s", "t")),
        ],
        ResourceSet({"t": [0]}),
    )
    assert group.members == (
        GroupMember(member_id="a"),
        GroupMember(member_id="b", **told),
        GroupMember(member_id="c", readable=False),
        GroupMember(member_id="d"),
    )
    assert group.subscriptions == (("s", "t"), ("t",), ())
    assert group.class_of.tolist() == [0, 1, 2, 0]


def test_warm_pairs_ascend_and_leave_out_what_does_not_count() -> None:
    """Missing resources and rightfully owned ones are left out; stale claims do not own."""
    group = group_of(
        RESOURCES,
        claim("A", {"t": [0]}, topics=["t"], warm=ResourceSet({"t": [0, 1, 7], "u": [0]})),
        claim("B", topics=["t"], warm=ResourceSet({"t": [3, 1]})),
        claim("C", {"t": [2, 9]}, topics=["t"]),
        claim("D", topics=["t"], warm=ResourceSet()),
    )
    pairs = list(zip(group.warm_resources.tolist(), group.warm_members.tolist(), strict=True))
    assert pairs == [(1, 0), (1, 1), (3, 1)]
    assert [member.warms for member in group.members] == [True, True, False, True]


def test_weights_are_those_of_the_resources_that_exist() -> None:
    weights = np.array([7, 9], dtype=np.int64)
    claims = [claim("A", {"s": [4], "t": [0]}, topics=["t"])]
    group = resolve_claims(claims, ResourceSet({"t": [0, 1]}), weights=weights)
    assert group.weights is not None
    assert dict(zip(map(tuple, group.resources), group.weights.tolist(), strict=True)) == {
        ("s", 4): 0,
        ("t", 0): 7,
        ("t", 1): 9,
    }
    assert group_of(RESOURCES).weights is None
