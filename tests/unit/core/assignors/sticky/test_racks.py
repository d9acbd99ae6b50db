"""`StickyAssignor` with racks: the third criterion, after balance and few moves (KIP-881)."""

import pytest

from coopgroup.assignors import StickyAssignor
from coopgroup.core.assignors import quotas
from coopgroup.core.model import GroupSnapshot, MemberClaim, ResourceSet, resolve_claims
from tests.support.groups import by_member, no_lags

Members = dict[str, tuple[str | None, list[int]]]


def _group(racks: list[str], members: Members) -> GroupSnapshot:
    """One topic. A partition's replicas are in the racks that its entry names, between spaces."""
    claims = [
        MemberClaim(
            member_id=member,
            topics=("t",),
            rack=rack,
            owned=ResourceSet({"t": owned}),
            generation=1,
        )
        for member, (rack, owned) in members.items()
    ]
    replicas = {"t": {index: names.split() for index, names in enumerate(racks)}}
    return resolve_claims(claims, ResourceSet({"t": range(len(racks))}), replicas)


def _placed(racks: list[str], members: Members) -> dict[str, list[int]]:
    group = _group(racks, members)
    held = by_member(group, StickyAssignor().assign(group, no_lags(group)))
    return {member: some.get("t", []) for member, some in held.items()}


def test_owner_when_in_another_rack_keeps_what_it_owns() -> None:
    """Racks alone are no reason for a move: a moving resource pauses."""
    racks = ["a", "a", "b", "b"]
    members: Members = {"m1": ("b", [0, 1]), "m2": ("a", [2, 3])}
    assert _placed(racks, members) == {"m1": [0, 1], "m2": [2, 3]}


@pytest.mark.parametrize(
    ("racks", "rack"),
    [(["a", "b", "a", "b"], None), (["", "", "", ""], "a"), (["a", "a b", "a", "a"], "a")],
    ids=["members without racks", "replicas without racks", "everything suits"],
)
def test_racks_when_they_tell_nothing_apart_change_nothing(
    racks: list[str], rack: str | None
) -> None:
    assert _placed(racks, {"m1": (rack, []), "m2": (rack, [])}) == {"m1": [0, 2], "m2": [1, 3]}


def test_member_when_without_a_rack_takes_what_suits_nobody_else() -> None:
    """It probably reads every partition from another rack anyway."""
    racks = ["z", "a", "z", "a"]
    assert _placed(racks, {"m1": (None, []), "m2": ("a", [])}) == {"m1": [0, 2], "m2": [1, 3]}


def test_many_racks_when_known_are_all_told_apart() -> None:
    names = [f"r{number:02}" for number in range(70)]
    members: Members = {f"m{place:02}": (rack, []) for place, rack in enumerate(names[::-1])}
    held = _placed(names, members)
    assert held == {f"m{place:02}": [69 - place] for place in range(70)}


def test_free_partitions_when_racks_are_known_go_to_them() -> None:
    racks = ["a", "a", "a", "b", "b", "c"]
    members: Members = {"m1": ("c", []), "m2": ("b", []), "m3": ("a", [])}
    assert _placed(racks, members) == {"m1": [1, 5], "m2": [3, 4], "m3": [0, 2]}


def test_large_group_when_not_made_the_best_is_still_suited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(quotas, "ARCS_MAX", 0)
    racks = ["a", "b", "c"] * 20
    members: Members = {f"m{place}": (rack, []) for place, rack in enumerate("cbacba")}
    for place, some in enumerate(_placed(racks, members).values()):
        assert {racks[index] for index in some} == {"cbacba"[place]}
        assert len(some) == 10
    owned: Members = {
        f"m{place}": (rack, [*range(10 * place, 10 * place + 10)])
        for place, rack in enumerate("acacac")
    }
    held = _placed(racks, {**owned, "new": ("b", [])})
    assert {racks[index] for index in held["new"]} == {"b"}
