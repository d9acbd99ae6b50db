"""Rebalances and outages of our own groups, from telemetry written by hand: one story per group."""

from __future__ import annotations

import json
from itertools import chain
from typing import TYPE_CHECKING, Any

import pytest

from coopgroup.pipeline.episodes.job import checkpointed, telemetry_episodes
from coopgroup.pipeline.episodes.work_spans import SESSION_MS, known_members
from tests.spark.frames import make, rows
from tests.spark.stories import Claims

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
    return events, [{**row, "follow_up": False, "rejoin_in_ms": None}], []


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


claim = Claims()
REBALANCES = "first_generation moved unavailable_partition_s unavailable_error_s"
OUTAGES = "partition begin_ms end_ms error_ms"
claim(
    "a static member that returns hours after the round prolongs no rebalance",
    *("static", "rebalances", "begin_ms end_ms"),
    (1_000, 1_500),
)
# Generations count within one life.
claim(
    "a group that was removed and made anew has two lives",
    *("lives", "rebalances"),
    "first_generation begin_ms trigger rounds members_before moved",
    (1, 10_000, "created", 1, 0, 0),
    (1, 99_000, "created", 1, 0, 0),
    (2, 20_000, "join", 1, 1, 0),
    (2, 110_000, "join", 1, 1, 0),
)
claim("no group that could pause existed between two lives", "lives", "outages", OUTAGES)
claim(
    "a lower generation with the same members is a slow clock, and no new life",
    *("skewed", "rebalances"),
    "first_generation trigger members_before",
    *((1, "created", 0), (2, "leave", 2), (3, "join", 1)),
)
# A member writes no telemetry in a quiet time, so its last record may be old.
claim(
    "work of a killed member ends a session before the group goes on",
    *("killed", "outages", OUTAGES),
    (0, HOUR_MS - 10_000, HOUR_MS + 100, 30_000),
    (1, HOUR_MS - 10_000, HOUR_MS + 600, 30_000),
)
claim(
    "the history knows that a-2 is the process of a-1",
    *("killed", "rebalances", REBALANCES),
    (1, 0, 0.0, 0.0),
    (2, 1, 10.1, 30.0),
    (3, 0, 10.6, 30.0),
)
UNKNOWN_MS = HOUR_MS - SESSION_MS  # by the default session timeout
claim(
    "if the timeouts are unknown, the last words bound the error",
    *("unknown", "outages", OUTAGES),
    (0, UNKNOWN_MS, HOUR_MS + 100, UNKNOWN_MS - 1_000),
)
claim(
    "work of a process with a name ends with its member",
    *("named", "outages", OUTAGES),
    (0, 1_500, 9_000, 7_400),
)
claim(
    "the return of a process under another member id is no move",
    *("named", "rebalances", "first_generation moved"),
    *((1, 0), (2, 0)),
)
# Records after the return do not prove earlier life; a normal end is exact.
claim(
    "work of a killed member ends before it comes back as itself",
    *("kept", "outages", OUTAGES),
    (0, UNKNOWN_MS, HOUR_MS + 50, UNKNOWN_MS - 1_000),
    (0, HOUR_MS + 1_000, HOUR_MS + 2_100, 0),
)
claim(
    "a stop without an id belongs to the member whose records end, not to its successor",
    *("fenced", "outages", OUTAGES),
    (0, 5_000, 6_000, 0),
    (1, 1_000, 6_000, 4_900),
    (1, 8_000, 8_500, 0),
)


@pytest.mark.parametrize(("group", "table", "columns", "expected"), claim.cases)
def test_telemetry(
    group: str,
    table: str,
    columns: list[str],
    expected: list[object],
    episodes: dict[str, DataFrame],
) -> None:
    assert rows(episodes[table].where(f"`group` = '{group}'"), *columns) == expected
