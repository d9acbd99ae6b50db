"""`StickyAssignor` with racks: the third criterion, after balance and few moves (KIP-881).

In small groups no target is better: `test_target_when_all_are_tried_is_the_best`.
"""

import pytest

from coopgroup.assignors import StickyAssignor
from coopgroup.core.assignors import quotas
from coopgroup.core.model import ResourceSet, resolve_claims
from tests.support.groups import by_member, claim, no_lags

Members = dict[str, tuple[str | None, list[int]]]


def _placed(racks: list[str], members: Members) -> dict[str, list[int]]:
    """One topic. A partition's replicas are in the racks that its entry names, between spaces."""
    claims = [claim(member, {"T": has}, rack=rack) for member, (rack, has) in members.items()]
    replicas = {"T": {index: names.split() for index, names in enumerate(racks)}}
    group = resolve_claims(claims, ResourceSet({"T": range(len(racks))}), replicas)
    held = by_member(group, StickyAssignor().assign(group, no_lags(group)))
    return {member: some.get("T", []) for member, some in held.items()}


@pytest.mark.parametrize(
    ("racks", "rack"),
    [(["a", "b", "a", "b"], None), (["", "", "", ""], "a"), (["a", "a b", "a", "a"], "a")],
    ids=["members without racks", "replicas without racks", "everything suits"],
)
def test_racks_when_they_tell_nothing_apart_change_nothing(
    racks: list[str], rack: str | None
) -> None:
    assert _placed(racks, {"m1": (rack, []), "m2": (rack, [])}) == {"m1": [0, 2], "m2": [1, 3]}


def test_many_racks_when_known_are_all_told_apart() -> None:
    names = [f"r{number:02}" for number in range(70)]
    members: Members = {f"m{place:02}": (rack, []) for place, rack in enumerate(names[::-1])}
    held = _placed(names, members)
    assert held == {f"m{place:02}": [69 - place] for place in range(70)}


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
