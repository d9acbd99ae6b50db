"""The rows of a snapshot."""

import json
from typing import Any

import pytest
from attrs import evolve

from coopgroup.core.model.choices import MemberChoices
from coopgroup.watch.rows import (
    PARTITION_COLUMNS,
    cards,
    heading,
    headline,
    member_rows,
    move_rows,
    partition_rows,
    time_of_day,
    trouble,
)
from coopgroup.watch.values import MemberView, Move, WarmupView, to_json
from tests.unit.watch.views import MEMBERS, view


def test_headline_says_what_the_group_does_and_who_assigns() -> None:
    said = "billing: stable, coopgroup, 2 members, 3 partitions (1 without owner), lag 60, "
    group = view(owners=("m-a", "", "m-b"))
    assert headline(group) == f"{said}coordinator broker:9092"
    broker = evolve(group, kind="consumer")
    assert headline(broker) == f"{said}coordinator broker:9092, the broker assigns (KIP-848)"


def test_members_of_this_package_tell_more() -> None:
    assert member_rows(view()) == [
        ("a", "10.0.0.1", "2", "30", "250", "-", "-", "4", "coopgroup"),
        ("pod-b (static)", "10.0.0.2", "0", "0", "-", "-", "-", "-", "other"),
    ]


def test_only_telemetry_tells_members_of_this_package_where_the_broker_assigns() -> None:
    """The description of such a group has no subscriptions."""
    group = evolve(view(), kind="consumer")
    silent = [evolve(one, is_coopgroup=False, protocol="consumer") for one in group.members]
    reporting = evolve(silent[0], report_age_s=1.0)
    rows = member_rows(evolve(group, members=(reporting, silent[1])))
    assert [row[-1] for row in rows] == ["coopgroup", "not known"]


SIMPLE = MemberChoices(policy="simple", assignor="sticky", policy_digest=1, assignor_digest=1)


@pytest.mark.parametrize(
    ("others", "line"),
    [
        ((None, None), "simple, sticky"),
        ((SIMPLE, SIMPLE), "simple, sticky"),
        (
            (evolve(SIMPLE, policy="deferred\n"), SIMPLE),
            (
                "members differ, the leader's counts: simple, sticky (n-0, n-2); "
                "deferred\N{REPLACEMENT CHARACTER}, sticky (n-1)"
            ),
        ),
        (
            (evolve(SIMPLE, policy_digest=None), evolve(SIMPLE, assignor_digest=2)),
            (
                "members differ, the leader's counts: "
                "simple with options 00000001, sticky with options 00000001 (n-0); "
                "simple with options 00000001, sticky with options 00000002 (n-2); "
                "simple with options unknown, sticky with options 00000001 (n-1)"
            ),
        ),
        (
            (evolve(SIMPLE, assignor="range"),) * 4,
            "members differ, the leader's counts: simple, range (4 members); simple, sticky (n-0)",
        ),
    ],
)
def test_heading_has_the_policies_and_assignors_of_the_members(
    others: tuple[MemberChoices | None, ...], line: str
) -> None:
    told = (SIMPLE, *others)
    members = tuple(
        MemberView(member_id=f"n-{number}", client_id=f"n-{number}", host="h", choices=one)
        for number, one in enumerate(told)
    )
    group = view(members=members)
    assert heading(group)[1] == f"policy and assignor: {line}"
    assert dict(cards(group))["policy and assignor"] == line
    assert json.loads(json.dumps(to_json(group)))["members"][0]["choices"] == {
        "policy": "simple",
        "assignor": "sticky",
        "policy_digest": 1,
        "assignor_digest": 1,
    }


def test_heading_without_a_member_that_tells_has_no_policy() -> None:
    assert heading(view()) == list(filter(None, (headline(view()), trouble(view()))))
    assert "policy and assignor" not in dict(cards(view()))


def _state(**changed: Any) -> tuple[str, ...]:  # noqa: ANN401 - fields of a partition
    """Return the cells of a partition of a: state, owner, lag, trend and age of the commit."""
    group = view(owners=("m-a",), committed=(10,))
    (one,) = partition_rows(evolve(group, partitions=(evolve(group.partitions[0], **changed),)))
    assert len(one) == len(PARTITION_COLUMNS)
    assert (one[0], *one[5:7]) == ("orders-0", "10", "40")
    return (*one[1:5], one[7])


WARMUPS = (WarmupView(member="m-a", is_warm=False), WarmupView(member="m-b", is_warm=True))
GRANTED = {"state": "moving", "owner": "", "target": "m-b"}
REVOKING = {"state": "revoking", "owner": "", "holder": "m-b"}
WAITING = {"state": "waiting", "owner": ""}
LOST = {**WAITING, "waits_for": "old\n", "until_ms": view().at_ms}
UNTIL = f"old\N{REPLACEMENT CHARACTER} until {time_of_day(view().at_ms)}"
KNOWN = {"trend_per_s": -1.25, "commit_age_s": 200.0, "lag": None}


@pytest.mark.parametrize(
    ("changed", "cells"),
    [
        ({}, ("owned", "a", "30", "-", "-")),
        (KNOWN, ("owned", "a", "-", "-1.2", "3 min ago")),
        ({"state": "moving", "target": "m-b"}, ("waits for a", "pod-b", "30", "-", "-")),
        (GRANTED, ("being granted", "pod-b", "30", "-", "-")),
        ({"warmups": WARMUPS}, ("owned; a warms up; pod-b is warm", "a", "30", "-", "-")),
        (REVOKING, ("revoking", "pod-b", "30", "-", "-")),
        (WAITING, ("waits for its owner", "-", "30", "-", "-")),
        (LOST, (f"waits for {UNTIL}", "-", "30", "-", "-")),
    ],
)
def test_partition_tells_its_state_owner_and_lag(
    changed: dict[str, Any], cells: tuple[str, ...]
) -> None:
    assert _state(**changed) == cells


@pytest.mark.parametrize(
    ("told", "cells"),
    [
        ({"since_poll_s": 0.0, "lease_s": 44.2}, ("now", "44 s")),
        ({"since_poll_s": 130.0, "lease_s": 0.0}, ("2 min ago", "ended")),
        ({"since_poll_s": 12.4}, ("12 s ago", "-")),
        ({"lease_s": 44.2}, ("-", "44 s")),
        ({"since_poll_s": 0.0, "lease_s": 44.2, "report_age_s": 29.0}, ("now", "44 s")),
        ({"lease_s": 44.2, "report_age_s": 31.0}, ("no report for 31 s", "-")),
    ],
)
def test_report_of_a_member_is_shown_while_it_is_fresh(
    told: dict[str, Any], cells: tuple[str, str]
) -> None:
    member = evolve(MEMBERS[0], **{"report_age_s": 1.0, "report_interval_s": 10.0, **told})
    (row,) = member_rows(view(owners=(), committed=(), members=(member,)))
    assert row[5:7] == cells


def test_json_has_everything() -> None:
    found = json.loads(json.dumps(to_json(view())))
    assert found["lag"] == 60
    assert found["flapping"] == []
    assert found["members"][1]["instance_id"] == "pod-b"
    assert found["partitions"][2]["owner"] == "m-b"


def test_members_with_the_same_client_id_are_told_apart() -> None:
    first, second = (evolve(MEMBERS[0], member_id=f"a-{uuid}") for uuid in ("1f0e-77", "2b3c-88"))
    group = view(owners=("a-2b3c-88",), committed=(0,), members=(first, second))
    assert [row[0] for row in member_rows(group)] == ["a 1f0e", "a 2b3c"]
    assert partition_rows(group)[0][2] == "a 2b3c"


def test_characters_that_do_not_print_are_replaced() -> None:
    hostile = evolve(MEMBERS[0], client_id="a\x1b[2J\u202eb", host="h\r\n")
    group = view(members=(hostile, MEMBERS[1]))
    mark = "\N{REPLACEMENT CHARACTER}"
    assert member_rows(group)[0][:2] == (f"a{mark}[2J{mark}b", f"h{mark}{mark}")
    assert partition_rows(group)[0][2] == f"a{mark}[2J{mark}b"
    (move,) = move_rows([Move(at_ms=0, text="a\x07", why="\x9bb joined")])
    assert move[1:] == (f"a{mark}", f"{mark}b joined")


def test_change_at_an_absurd_time_is_shown() -> None:
    (row,) = move_rows([Move(at_ms=10**30, text="round 5", kind="round")])
    assert row == ("?", "round 5", "")


@pytest.mark.parametrize(
    ("changes", "is_told"),
    [
        ({}, True),
        ({"report_age_s": 1.0}, False),
        ({"is_coopgroup": False}, False),
    ],
)
def test_view_without_reports_says_how_a_member_that_hangs_shows(
    changes: dict[str, Any], is_told: bool
) -> None:
    members = (evolve(MEMBERS[0], **changes), MEMBERS[1])
    assert ("--telemetry-topic" in trouble(view(members=members))) is is_told
