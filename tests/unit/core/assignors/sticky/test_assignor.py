"""`StickyAssignor`: retained and revoked resources, and the spread of free ones."""

import pytest

from coopgroup.assignors import Assignor, CooperativeStickyAssignor, StickyAssignor
from coopgroup.core.assignors import quotas
from coopgroup.core.model import GroupSnapshot
from tests.support.checkers import check_balanced, check_each_resource_once, unfair_holders
from tests.support.groups import by_member, claim, group_of, no_lags

Held = dict[str, dict[str, list[int]]]


def _target(group: GroupSnapshot) -> Held:
    return by_member(group, StickyAssignor().assign(group, no_lags(group)))


def test_fresh_group_when_assigned_takes_turns() -> None:
    group = group_of({"a": range(3), "b": range(4)}, *(claim(m, topics=["a", "b"]) for m in "CAB"))
    assert _target(group) == {
        "A": {"a": [0], "b": [0, 3]},
        "B": {"a": [1], "b": [1]},
        "C": {"a": [2], "b": [2]},
    }


def test_surplus_when_given_up_is_spread_over_the_owners_topics() -> None:
    """A member that gives up half of its load halves it in every topic (librdkafka#4044)."""
    topics = ["a", "b", "c"]
    group = group_of(
        {name: range(4) for name in topics},
        claim("A", {name: range(4) for name in topics}, topics=topics),
        claim("B", topics=topics),
    )
    half: Held = {
        "A": {name: [0, 2] for name in topics},
        "B": {name: [1, 3] for name in topics},
    }
    assert _target(group) == half


def test_long_chain_when_sweeps_run_out_still_has_a_valid_target(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The steps of levelling are bounded. The next round continues."""
    names = [f"t{number:02}" for number in range(30)]
    group = group_of(
        {name: range(30) for name in names} | {"t00": range(450)},
        *(
            claim(f"m{place:02}", {name: range(450)}, topics=names[max(place - 1, 0) : place + 1])
            for place, name in enumerate(names)
        ),
    )
    monkeypatch.setattr(quotas, "_SWEEPS_MAX", 1)
    monkeypatch.setattr(quotas, "ARCS_MAX", 0)
    early = StickyAssignor().assign(group, no_lags(group))
    check_each_resource_once(group, early)
    assert unfair_holders(group, early) != {}
    monkeypatch.undo()
    check_balanced(group, StickyAssignor().assign(group, no_lags(group)))


def test_cooperative_sticky_when_compared_has_the_same_target() -> None:
    group = group_of({"t": range(5)}, claim("A", {"t": range(5)}, topics=["t"]), claim("B"))
    plain, cooperative = StickyAssignor(), CooperativeStickyAssignor()
    assert [
        (one.name, one.needs_lags, isinstance(one, Assignor)) for one in (plain, cooperative)
    ] == [
        ("sticky", False, True),
        ("cooperative-sticky", False, True),
    ]
    lags = no_lags(group)
    assert cooperative.assign(group, lags).tolist() == plain.assign(group, lags).tolist()
