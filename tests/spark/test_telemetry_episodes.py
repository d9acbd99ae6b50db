"""Rebalances and outages of our own groups, from telemetry written by hand: one story per group."""

from __future__ import annotations

import json
from itertools import chain
from typing import TYPE_CHECKING, Any

import pytest

from coopgroup.pipeline.episodes.job import checkpointed, telemetry_episodes
from coopgroup.pipeline.episodes.work_spans import SESSION_MS, known_members
from tests.spark.frames import make, rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HOUR_MS = 3_600_000
Row = dict[str, Any]
Lines = tuple[list[Row], list[Row], list[Row]]
"""Rows of `events`, `rounds` and `work`."""


def told(*lines: Lines) -> Lines:
    """Return the lines of all records."""
    events, rounds, work = (list(chain(*parts)) for parts in zip(*lines, strict=True))
    return events, rounds, work


def said(group: str, at_ms: int, member: str, kind: str, record: str = "{}", **more: Any) -> Lines:  # noqa: ANN401 - any column
    line = {"group": group, "at_ms": at_ms, "member": member, "client": "", "kind": kind}
    return [{**line, "record": record, **more}], [], []


def led(group: str, at_ms: int, generation: int, *members: str) -> Lines:
    """Return a round that is a rebalance by itself."""
    row = {"group": group, "at_ms": at_ms, "generation": generation, "members": list(members)}
    events, _, _ = said(group, at_ms, members[0], "round_decided")
    return events, [{**row, "follow_up": False, "scheduled_rebalance_timeout_ms": 0}], []


def joined(group: str, at_ms: int, member: str) -> Lines:
    record = json.dumps({"before": "stable", "after": "joining"})
    return said(group, at_ms, member, "state_changed", record)


def came_back(group: str, at_ms: int, member: str) -> Lines:
    """Return the start of a process that resumes its earlier member."""
    record = json.dumps({"before": "unsubscribed", "after": "returning"})
    return said(group, at_ms, member, "state_changed", record)


def worked(
    group: str, at_ms: int, member: str, partition: int, *, stop: bool = False, client: str = ""
) -> Lines:
    """Return the start or stop of a member's work on a partition."""
    kind = "resources_stopped" if stop else "resources_started"
    events, _, _ = said(group, at_ms, member, kind, client=client)
    row = {"group": group, "at_ms": at_ms, "member": member, "client": client}
    return events, [], [{**row, "topic": "orders", "partition": partition, "is_start": not stop}]


STORIES = told(
    # b-1 gets its assignment again, under another id, hours after the round.
    led("static", 1_000, 7, "a-1", "b-1"),
    said("static", 1_200, "a-1", "assignment_received", generation=7),
    said("static", 1_500, "b-1", "assignment_received", generation=7),
    said("static", 3 * HOUR_MS, "a-2", "assignment_received", generation=7),
    # All members leave, the group is removed, and other members create it again; a-1 had begun to
    # join again.
    led("lives", 10_000, 1, "a-1"),
    worked("lives", 10_100, "a-1", 0),
    led("lives", 20_000, 2, "a-1", "b-1"),
    joined("lives", 25_000, "a-1"),
    worked("lives", 30_000, "a-1", 0, stop=True),
    joined("lives", 99_000, ""),
    led("lives", 100_000, 1, "c-1"),
    worked("lives", 100_100, "c-1", 0),
    led("lives", 110_000, 2, "c-1", "d-1"),
    # The clock of the leader of generation 2 is slow.
    led("skewed", 1_000, 1, "a-1", "b-1"),
    led("skewed", 2_000, 3, "a-1", "b-1"),
    led("skewed", 2_010, 2, "a-1"),
    # a-1 is killed after a quiet hour; one partition moves to b-1, the other returns as a-2.
    led("killed", 900, 1, "a-1", "b-1"),
    worked("killed", 1_000, "a-1", 0),
    worked("killed", 1_000, "a-1", 1),
    led("killed", HOUR_MS, 2, "b-1"),
    worked("killed", HOUR_MS + 100, "b-1", 0),
    led("killed", HOUR_MS + 500, 3, "a-2", "b-1"),
    worked("killed", HOUR_MS + 600, "a-2", 1),
    # The same, without a history that knows the timeouts.
    led("unknown", 900, 1, "a-1", "b-1"),
    worked("unknown", 1_000, "a-1", 0),
    led("unknown", HOUR_MS, 2, "b-1"),
    worked("unknown", HOUR_MS + 100, "b-1", 0),
    # A process with a name is killed, and returns as another member.
    led("named", 900, 1, "a-1"),
    worked("named", 1_000, "a-1", 0, client="pod"),
    said("named", 1_500, "a-1", "request_refused", client="pod"),
    led("named", 8_900, 2, "a-2"),
    worked("named", 9_000, "a-2", 0, client="pod"),
    # a-1 is killed after a quiet hour and resumes its membership within its session. Then it stops
    # normally and starts again.
    led("kept", 900, 1, "a-1"),
    worked("kept", 1_000, "a-1", 0),
    came_back("kept", HOUR_MS, "a-1"),
    worked("kept", HOUR_MS + 50, "a-1", 0),
    worked("kept", HOUR_MS + 1_000, "a-1", 0, stop=True),
    came_back("kept", HOUR_MS + 2_000, "a-1"),
    worked("kept", HOUR_MS + 2_100, "a-1", 0),
    # a-1 loses its membership: it stops in time on one partition, and too late on the other.
    led("fenced", 900, 1, "a-1", "b-1"),
    worked("fenced", 1_000, "a-1", 0),
    worked("fenced", 1_000, "a-1", 1),
    worked("fenced", 5_000, "", 0, stop=True),
    led("fenced", 5_900, 2, "b-1", "c-1"),
    worked("fenced", 6_000, "b-1", 0),
    worked("fenced", 6_000, "b-1", 1),
    worked("fenced", 7_000, "", 1, stop=True),
    worked("fenced", 8_000, "b-1", 1, stop=True),
    worked("fenced", 8_500, "c-1", 1),
)
HISTORY = [
    {"member_id": member, "process": f"client:{name}"}
    for member, name in (("a-1", "x@h"), ("a-2", "x@h"), ("b-1", "y@h"))
]


@pytest.fixture(scope="module")
def episodes(spark: SparkSession) -> dict[str, DataFrame]:
    tables = zip(("events", "rounds", "work"), STORIES, strict=True)
    frames = [make(spark, name, *given).localCheckpoint() for name, given in tables]
    limits = {"group": "killed", "session_timeout_ms": 10_000, "rebalance_timeout_ms": 30_000}
    present = spark.createDataFrame(
        [{**one, **limits} for one in HISTORY],
        "group string, member_id string, process string, session_timeout_ms int,"
        " rebalance_timeout_ms int",
    )
    found = telemetry_episodes(*frames, known=known_members(present))
    return {name: checkpointed(frame) for name, frame in found.items()}


def outages(episodes: dict[str, DataFrame], group: str) -> list[tuple[Any, ...]]:
    """Return partition, begin, end and error of the outages of a group."""
    chosen = episodes["outages"].where(f"group = '{group}'")
    return rows(chosen, "partition", "begin_ms", "end_ms", "error_ms")


def rebalances(episodes: dict[str, DataFrame], group: str, *columns: str) -> list[tuple[Any, ...]]:
    """Columns of the rebalances of a group."""
    return rows(episodes["rebalances"].where(f"group = '{group}'"), *columns)


def test_a_static_member_that_returns_prolongs_no_rebalance(episodes: dict[str, DataFrame]) -> None:
    """It gets its assignment again, in the old generation, hours after the round."""
    assert rebalances(episodes, "static", "begin_ms", "end_ms") == [(1_000, 1_500)]


def test_a_group_that_was_removed_and_made_anew_has_two_lives(
    episodes: dict[str, DataFrame],
) -> None:
    """Generations count within one life; between the lives no group existed that could pause."""
    columns = ("first_generation", "begin_ms", "trigger", "rounds", "members_before", "moved")
    assert rebalances(episodes, "lives", *columns) == [
        (1, 10_000, "created", 1, 0, 0),
        (1, 99_000, "created", 1, 0, 0),
        (2, 20_000, "join", 1, 1, 0),
        (2, 110_000, "join", 1, 1, 0),
    ]
    assert outages(episodes, "lives") == []


def test_clocks_that_are_apart_make_no_new_life(episodes: dict[str, DataFrame]) -> None:
    """A lower generation with the same members is a slow clock."""
    columns = ("first_generation", "trigger", "members_before")
    assert rebalances(episodes, "skewed", *columns) == [
        (1, "created", 0),
        (2, "leave", 2),
        (3, "join", 1),
    ]


def test_work_of_a_killed_member_ends_a_session_before_the_group_goes_on(
    episodes: dict[str, DataFrame],
) -> None:
    """A member writes no telemetry in a quiet time, so its last record may be old."""
    begin_ms = HOUR_MS - 10_000
    assert outages(episodes, "killed") == [
        (0, begin_ms, HOUR_MS + 100, 30_000),
        (1, begin_ms, HOUR_MS + 600, 30_000),
    ]
    columns = ("first_generation", "moved", "unavailable_partition_s", "unavailable_error_s")
    assert rebalances(episodes, "killed", *columns) == [
        (1, 0, 0.0, 0.0),
        (2, 1, 10.1, 30.0),
        (3, 0, 10.6, 30.0),  # the history knows that a-2 is the process of a-1
    ]


def test_where_the_time_outs_are_unknown_the_last_words_bound_the_error(
    episodes: dict[str, DataFrame],
) -> None:
    """The estimate uses the default session timeout."""
    begin_ms = HOUR_MS - SESSION_MS
    assert outages(episodes, "unknown") == [(0, begin_ms, HOUR_MS + 100, begin_ms - 1_000)]


def test_work_of_a_process_with_a_name_ends_with_its_member(
    episodes: dict[str, DataFrame],
) -> None:
    """Its return under another member id does not continue the work, and is no move."""
    assert outages(episodes, "named") == [(0, 1_500, 9_000, 7_400)]
    assert rebalances(episodes, "named", "first_generation", "moved") == [(1, 0), (2, 0)]


def test_work_of_a_killed_member_ends_before_it_comes_back_as_itself(
    episodes: dict[str, DataFrame],
) -> None:
    """Records after the return do not prove earlier life; a normal end is exact."""
    begin_ms = HOUR_MS - SESSION_MS
    assert outages(episodes, "kept") == [
        (0, begin_ms, HOUR_MS + 50, begin_ms - 1_000),
        (0, HOUR_MS + 1_000, HOUR_MS + 2_100, 0),
    ]


def test_who_lost_its_membership_stops_without_an_id(episodes: dict[str, DataFrame]) -> None:
    """The stop belongs to the member whose records end, not to its successor."""
    assert outages(episodes, "fenced") == [
        (0, 5_000, 6_000, 0),
        (1, 1_000, 6_000, 4_900),
        (1, 8_000, 8_500, 0),
    ]
