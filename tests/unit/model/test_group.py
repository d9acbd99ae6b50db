"""Queries of a group snapshot."""

import numpy as np

from coopgroup.model import NOBODY, MemberClaim, ReplicaRacks, ResourceSet, resolve_claims
from tests.support.groups import claim, group_of


def test_subscribed_names_when_classes_differ_is_a_table_of_classes_and_names() -> None:
    """A row per class. Names without resources have no column."""
    group = group_of(
        {"a": [0], "b": [0, 1], "c": [0]},
        claim("m1", topics=["a", "b"]),
        claim("m2", topics=["b", "absent"]),
        claim("m3", topics=["b", "a"]),
    )
    assert group.subscriptions == (("a", "b"), ("absent", "b"))
    assert group.subscribed_names().tolist() == [[True, True, False], [False, True, False]]
    assert group.subscribed().tolist() == [True, True, True, False]


def test_may_hold_when_holder_is_nobody_or_a_stranger_is_false() -> None:
    """Only a member that subscribes may hold a resource."""
    group = group_of({"a": [0, 1, 2]}, claim("m1", topics=["a"]), claim("m2", topics=["b"]))
    holder = np.array([0, 1, NOBODY], dtype=np.int32)
    assert group.may_hold(holder).tolist() == [True, False, False]


def test_by_member_when_somebody_holds_nothing_gives_an_empty_set() -> None:
    """One set per member in their order. Names without resources are omitted."""
    group = group_of({"a": range(3), "b": range(2)}, claim("m1"), claim("m2"), claim("m3"))
    holder = np.array([2, 0, 2, NOBODY, 0], dtype=np.int32)
    assert group.by_member(holder) == (
        ResourceSet({"a": [1], "b": [1]}),
        ResourceSet(),
        ResourceSet({"a": [0, 2]}),
    )


def test_view_when_taken_changes_owner_and_assignable_only() -> None:
    """A policy may show the assignor other owners and fewer resources. The group is unchanged."""
    group = group_of({"a": [0, 1]}, claim("m1", {"a": [0, 1]}, topics=["a"]))
    owner = np.array([NOBODY, 0], dtype=np.int32)
    view = group.view(owner=owner, assignable=np.array([False, True]))
    assert (view.owner.tolist(), view.assignable.tolist()) == ([NOBODY, 0], [False, True])
    assert (group.owner.tolist(), group.assignable.tolist()) == ([0, 0], [True, True])
    assert (view.members, view.resources) == (group.members, group.resources)


def test_replica_racks_when_some_are_unknown_stay_empty_there() -> None:
    """Racks become numbers in ascending order, one row per resource."""
    resources = ResourceSet({"a": range(3), "b": [0]})
    racks = ReplicaRacks.build(resources, {"a": {0: ["r2", "r1", "r2"], 2: ["r3"]}, "z": {0: []}})
    assert racks.racks == ("r1", "r2", "r3")
    assert racks.starts.tolist() == [0, 2, 2, 3, 3]
    assert racks.numbers.tolist() == [0, 1, 2]


def test_snapshot_when_racks_are_given_carries_them() -> None:
    """Racks of resources outside the metadata are unknown."""
    group = resolve_claims(
        [MemberClaim(member_id="m", topics=("a",), owned=ResourceSet({"gone": [0]}))],
        ResourceSet({"a": [0]}),
        {"a": {0: ["r1"]}},
    )
    racks = group.replica_racks
    assert racks is not None
    assert (racks.racks, racks.starts.tolist()) == (("r1",), [0, 1, 1])
