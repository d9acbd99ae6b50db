"""The rows of a snapshot."""

import json

from attrs import evolve

from coopgroup.watch.tables import (
    MEMBER_COLUMNS,
    PARTITION_COLUMNS,
    headline,
    member_rows,
    partition_rows,
)
from coopgroup.watch.values import to_json
from tests.unit.watch.views import view


def test_headline_says_what_the_group_does() -> None:
    assert headline(view(owners=("m-a", "", "m-b"))) == (
        "billing: stable, coopgroup, 2 members, 3 partitions (1 without owner), lag 60, "
        "coordinator broker:9092"
    )


def test_members_of_this_package_tell_more() -> None:
    ours, other = member_rows(view())
    assert ours == ("a", "10.0.0.1", "2", "30", "250", "4", "coopgroup")
    assert other == ("pod-b (static)", "10.0.0.2", "0", "0", "-", "-", "other")
    assert len(ours) == len(MEMBER_COLUMNS)


def test_partition_names_its_owner_and_lag() -> None:
    first = partition_rows(view())[0]
    assert first == ("orders-0", "owned", "a", "30", "-", "10", "40", "-")
    assert len(first) == len(PARTITION_COLUMNS)


def test_partition_that_moves_names_who_is_waited_for() -> None:
    group = view()
    moving = evolve(group.partitions[0], state="moving", target="m-b")
    row = partition_rows(evolve(group, partitions=(moving,)))[0]
    assert row[1:3] == ("waits for a", "pod-b")
    free = evolve(moving, owner="")
    assert partition_rows(evolve(group, partitions=(free,)))[0][1] == "being granted"


def test_trend_and_age_are_shown_once_they_are_known() -> None:
    group = view()
    known = evolve(group.partitions[0], trend_per_s=-1.25, commit_age_s=200.0, lag=None)
    row = partition_rows(evolve(group, partitions=(known,)))[0]
    assert (row[3], row[4], row[7]) == ("-", "-1.2", "3 min ago")


def test_json_has_everything() -> None:
    found = json.loads(json.dumps(to_json(view())))
    assert found["lag"] == 60
    assert found["flapping"] == []
    assert found["members"][1]["instance_id"] == "pod-b"
    assert found["partitions"][2]["owner"] == "m-b"
