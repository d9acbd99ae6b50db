"""Lag and load, computed by hand."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from attrs import evolve

from coopgroup.errors import PipelineError
from coopgroup.pipeline.asof import in_log_order
from coopgroup.pipeline.episodes.job import checkpointed
from coopgroup.pipeline.lag import (
    RESETS,
    committed_topics,
    interests_of,
    lag_of,
    loads_of,
    subscribed_moments,
    unknown_of,
    write_lag,
)
from coopgroup.pipeline.scope import Scope
from coopgroup.pipeline.spark.session import FEW_ROWS
from coopgroup.pipeline.tables import Tables
from tests.spark.frames import commit, killed_at, make, rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HOUR_MS = 3_600_000


def end(
    at_ms: int, offset: int | None, partition: int = 0, begin: int = 0, topic: str = "orders"
) -> dict[str, Any]:
    """Return the end offset of a partition."""
    return {
        "topic": topic,
        "partition": partition,
        "at_ms": at_ms,
        "begin": begin,
        "end": offset,
    }


def test_a_group_wants_what_it_committed_or_subscribed_to(spark: SparkSession) -> None:
    commits = make(spark, "commits", commit(50, 1), commit(20, 1), commit(9, 1, topic="paid"))
    members = make(spark, "members", {"group": "g", "at_ms": 7, "topics": ["orders", "new"]})
    assert rows(interests_of(commits, members)) == [
        ("g", "new", 7),
        ("g", "orders", 7),
        ("g", "paid", 9),
    ]


# --- groups of one topic each, which has the name of the group; computed together -----------------

COMMITS: list[dict[str, Any]] = []
ENDS: list[dict[str, Any]] = []
GENERATIONS: list[dict[str, Any]] = []
MEMBERS: list[dict[str, Any]] = []


def tell(group: str, commits: Sequence[dict[str, Any]], ends: Sequence[dict[str, Any]]) -> None:
    """Add a group, with its commits and the ends of its topic."""
    COMMITS.extend({**one, "group": group, "topic": group} for one in commits)
    ENDS.extend({**one, "topic": group} for one in ends)


def live(group: str, *states: tuple[int, int | None], topic: str = "") -> None:
    """Add the states of a group: times and numbers of members, which subscribe to its topic."""
    for at_ms, count in states:
        place = {"group": group, "source_partition": 0, "source_offset": 10 * at_ms + 1}
        state = {"member_count": count, "is_tombstone": count is None}
        GENERATIONS.append({**place, **state, "at_ms": at_ms})
        for number in range(count or 0):
            who = {"member_id": f"m{number}", "topics": [topic or group]}
            MEMBERS.append({**place, **who, "at_ms": at_ms})


@pytest.fixture(scope="module")
def computed(spark: SparkSession) -> dict[str, DataFrame]:
    """Return the lags of all groups with each rule, and their loads."""
    commits, ends = make(spark, "commits", *COMMITS), make(spark, "ends", *ENDS)
    members = make(spark, "members", *MEMBERS)
    interests = checkpointed(interests_of(commits, members))
    states = make(spark, "generations", *GENERATIONS), members
    subscribed = checkpointed(subscribed_moments(ends, interests, *states))
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")  # which must not matter
    try:
        loads = checkpointed(loads_of(ends, commits, interests))
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))
    said = checkpointed(in_log_order(commits))
    lags = {
        reset: checkpointed(lag_of(ends, said, interests, subscribed, reset)) for reset in RESETS
    }
    return {**lags, "loads": loads}


def found(
    computed: dict[str, DataFrame], frame: str, group: str, *columns: str
) -> list[tuple[Any, ...]]:
    return rows(computed[frame].where(f"`group` = '{group}'"), *columns)


tell(
    "rules",
    [
        commit(10, 4),
        commit(20, 7),
        commit(20, 9, source_offset=201),
        commit(30, None),
        commit(40, 60),
    ],
    [
        end(5, 3),  # before the group subscribed to the topic
        end(15, 10),
        end(20, 20),
        end(35, 30, begin=3),
        end(41, 50),  # below the commit
        end(41, 80, partition=1, begin=5),
        end(41, 80, partition=1, begin=5),  # a repetition
    ],
)


live("rules", (10, 1))

# Retention deletes 40 records; later the topic is made again with 7.
tell(
    "outside",
    [commit(10, 30), commit(50, 45)],
    [
        end(20, 60, begin=40),  # looked up later, so these records may have existed then
        end(25, 60, begin=40) | {"is_present": True},
        end(55, 60, begin=40) | {"is_present": True},
        end(60, 7) | {"is_present": False},
        end(65, 7, begin=2) | {"is_present": True},
    ],
)


@pytest.mark.parametrize(("reset", "lags"), [("earliest", [20, 5]), ("latest", [0, 0])])
def test_commit_outside_of_the_log_counts_as_none(
    reset: str, lags: list[int], computed: dict[str, DataFrame]
) -> None:
    """Decided only for moments at which the brokers were asked."""
    assert found(computed, reset, "outside", "at_ms", "committed", "lag", "rule") == [
        (20, 30, 30, "committed"),
        (25, 30, lags[0], reset),
        (55, 45, 15, "committed"),
        (60, 45, None, "unknown"),  # the group has read records that the end does not count
        (65, 45, lags[1], reset),
    ]


# A record of the year 2100 is at offset 5: its offset is the end of each moment before 2100.
# The second partition has no commit beyond the record, and the brokers tell its timestamp.
tell(
    "ahead",
    [commit(10, 4), commit(20, 7), commit(10, 4, partition=1)],
    [
        *(end(at_ms, 5, one) for at_ms in (15, 25) for one in (0, 2)),
        *(end(at_ms, None, 1) for at_ms in (15, 25)),
        end(30, 9) | {"is_present": True},
        end(30, 9, 1) | {"is_present": True},
    ],
)
live("ahead", (10, 1))


@pytest.mark.parametrize(("reset", "uncommitted"), [("earliest", 5), ("latest", 0)])
def test_lag_before_a_record_of_the_future_is_unknown(
    reset: str, uncommitted: int, computed: dict[str, DataFrame]
) -> None:
    columns = ("partition", "at_ms", "end", "lag", "rule")
    assert found(computed, reset, "ahead", *columns) == [
        (0, 15, 5, 1, "committed"),
        (0, 25, 5, None, "unknown"),
        (0, 30, 9, 2, "committed"),
        (1, 15, None, None, "unknown"),
        (1, 25, None, None, "unknown"),
        (1, 30, 9, 5, "committed"),
        (2, 15, 5, uncommitted, reset),
        (2, 25, 5, uncommitted, reset),
    ]
    # An unknown end is left out of the loads.
    assert found(computed, "loads", "ahead", "partition", "arrival_s") == [
        (0, 0.015),
        (2, 0.01),
    ]


@pytest.mark.parametrize(
    ("reset", "deleted", "uncommitted"), [("earliest", 27, 75), ("latest", 0, 0)]
)
def test_lag_is_end_less_what_was_committed_by_then(
    reset: str, deleted: int, uncommitted: int, computed: dict[str, DataFrame]
) -> None:
    """Simultaneous commits count, later ones do not; a partition without one has its own rule."""
    columns = ("partition", "at_ms", "end", "committed", "lag", "rule")
    assert found(computed, reset, "rules", *columns) == [
        (0, 15, 10, 4, 6, "committed"),
        (0, 20, 20, 9, 11, "committed"),
        (0, 35, 30, None, deleted, reset),
        (0, 41, 50, 60, None, "unknown"),
        (1, 41, 80, None, uncommitted, reset),
    ]


LATE = [commit(10, 4), commit(20, 7), commit(12, 5)]
for name, given in (("late", LATE), ("again", [*reversed(LATE), LATE[0], LATE[2]])):
    tell(name, given, [end(15, 10), end(25, 20)])


@pytest.mark.parametrize("group", ["late", "again"])
def test_late_and_repeated_commits_change_only_what_they_are_about(
    group: str, computed: dict[str, DataFrame]
) -> None:
    """Neither the order of rows nor a repeated row matters."""
    columns = ("at_ms", "end", "committed", "lag", "rule")
    assert found(computed, "latest", group, *columns) == [
        (15, 10, 5, 5, "committed"),
        (25, 20, 7, 13, "committed"),
    ]


tell("dead", [commit(10, 4), commit(40, None)], [end(at_ms, 100) for at_ms in range(5, 100, 10)])
live("dead", (10, 1), (30, 0), (60, None), (80, 2))


def test_a_dead_group_has_no_lag(computed: dict[str, DataFrame]) -> None:
    """Its commits expire after its members are gone; when it starts again, it lags again."""
    assert found(computed, "earliest", "dead", "at_ms", "lag", "rule") == [
        (15, 96, "committed"),
        (25, 96, "committed"),
        (35, 96, "committed"),  # its members are gone, its commit is not
        (85, 100, "earliest"),
        (95, 100, "earliest"),
    ]


# The clock of a broker goes back by 2 ms.
tell(
    "back",
    [
        commit(50, 50),
        commit(60, None),
        commit(58, 60, source_offset=601),
        commit(70, 95),
        commit(69, 100, source_offset=701),
    ],
    [end(at_ms, 110) for at_ms in (55, 59, 65, 75)],
)


def test_the_last_record_of_the_log_counts_whatever_its_time(
    computed: dict[str, DataFrame],
) -> None:
    columns = ("at_ms", "committed", "lag")
    expected = [(55, 50, 60), (59, 50, 60), (65, 60, 50), (75, 100, 10)]
    assert found(computed, "latest", "back", *columns) == expected


tell("unsubscribed", [commit(10, 4), commit(40, None)], [end(at_ms, 9) for at_ms in (15, 35, 45)])
live("unsubscribed", (5, 1))
live("unsubscribed", (30, 1), topic="other")
tell(
    "only commits",
    [commit(10, 4), commit(40, None)],
    [end(at_ms, 9, partition) for at_ms in (15, 45) for partition in (0, 1)],
)


@pytest.mark.parametrize(
    ("group", "expected"), [("unsubscribed", [(15, 5), (35, 5)]), ("only commits", [(15, 5)])]
)
def test_lag_ends_when_the_offsets_of_an_unread_topic_are_deleted(
    group: str, expected: list[tuple[int, int]], computed: dict[str, DataFrame]
) -> None:
    """A group without members assigns itself: only partitions that it committed count."""
    assert found(computed, "earliest", group, "at_ms", "lag") == expected


# The topic is deleted after 30 and made again before 50; the group commits to it from 70 on.
tell(
    "again made",
    [commit(10, 4, topic_id="a"), commit(20, 7, topic_id="a"), commit(70, 2, topic_id="b")],
    [
        end(15, 9) | {"topic_id": "a"},  # looked up in the first life
        *(end(at_ms, at_ms // 10) | {"topic_id": "b"} for at_ms in (18, 25, 40, 60, 75)),
        end(80, 8),  # the broker did not tell the id
    ],
)


def test_two_lives_of_a_topic_are_told_apart(computed: dict[str, DataFrame]) -> None:
    expected = [(15, 9, 5), (75, 7, 5), (80, 8, 6)]
    assert found(computed, "latest", "again made", "at_ms", "end", "lag") == expected


# Eight records an hour, seen once in two and a half hours, across midnight.
tell("night", [commit(0, 1)], [end(22 * HOUR_MS + HOUR_MS // 2, 0), end(25 * HOUR_MS, 20)])


def test_a_long_interval_is_part_of_each_of_its_hours(computed: dict[str, DataFrame]) -> None:
    per_s = pytest.approx(8 / 3_600)
    assert found(computed, "loads", "night", "hour", "arrival_per_s", "arrival_s") == [
        (0, per_s, 3_600.0),
        (22, per_s, 1_800.0),
        (23, per_s, 3_600.0),
    ]


tell(
    "hours",
    [
        commit(0, 0),
        commit(10_000, 50),
        commit(20_000, 60),
        commit(25_000, 10),  # reset
        commit(HOUR_MS, 20),
    ],
    [end(0, 0), end(20_000, 400), end(24 * HOUR_MS + 20_000, 400)],
)


def test_loads_are_rates_by_hour_of_the_day(computed: dict[str, DataFrame]) -> None:
    """All records over all seconds of an hour (UTC); offsets that go back do not count."""
    every = found(computed, "loads", "hours")
    # The interval of a day has no records, and is part of all hours of the day.
    assert [row[:4] for row in every] == [("hours", "hours", 0, hour) for hour in range(24)]
    first, second, third = every[:3]
    assert first[4:] == (pytest.approx(400 / 3_620), pytest.approx(70 / 3_595), 3_620.0, 3_595.0)
    assert second[4:] == (0.0, None, 3_600.0, None)
    assert third[4:] == (0.0, None, 3_600.0, None)


# --- the job --------------------------------------------------------------------------------------


@pytest.mark.verify
def test_lag_is_written_from_the_tables(
    tables: Tables, spark: SparkSession, ordinary: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job replaces lag and loads on each run, with a user's settings, for few rows and many."""
    tables.append("history", 0, {"commits": make(spark, "commits", commit(10, 4), commit(30, 5))})
    tables.merge({"ends": make(spark, "ends", end(15, 10), end(35, 20))})
    sessions: list[SparkSession] = []

    def seen(ends: DataFrame, *others: DataFrame) -> DataFrame:
        sessions.append(ends.sparkSession)
        return loads_of(ends, *others)

    monkeypatch.setattr("coopgroup.pipeline.lag.loads_of", seen)
    # At first two commits and two ends, then also two rows of lag.
    for few, reset in ((FEW_ROWS, "earliest"), (5, "latest")):
        monkeypatch.setattr("coopgroup.pipeline.tables.FEW_ROWS", few)
        write_lag(evolve(tables, spark=ordinary), reset)
        assert rows(tables.read("lag"), "at_ms", "lag") == [(15, 6), (35, 15)]
    assert [one is ordinary for one in sessions] == [False, True]
    assert rows(tables.read("loads"), "arrival_s", "consumption_s") == [(0.02, 0.02)]
    write_lag(tables, "latest", Scope(since_ms=20))
    assert rows(tables.read("lag"), "at_ms", "lag") == [(35, 15)]


def test_unknown_lags_are_counted_by_partition(tables: Tables, spark: SparkSession) -> None:
    commits = [commit(10, 7), commit(10, 7, partition=1), commit(10, 7, group="h", topic="paid")]
    tables.append("history", 0, {"commits": make(spark, "commits", *commits)})
    ends = [end(15, 9), end(15, 5, 1), end(20, 5, 1), end(20, None, topic="paid")]
    tables.merge({"ends": make(spark, "ends", *ends)})
    write_lag(tables, "latest")
    assert unknown_of(tables) == [("orders", 1, 2), ("paid", 0, 1)]
    assert unknown_of(tables, Scope(groups=("g",), since_ms=18)) == [("orders", 1, 1)]


def test_no_lag_is_later_than_the_end_of_the_history(tables: Tables, spark: SparkSession) -> None:
    """A minute after `history`, the commits of this minute are not read yet."""
    day_ms = 24 * HOUR_MS
    until_ms = day_ms + 50
    tables.append("history", 0, {"commits": make(spark, "commits", commit(10, 4))})
    tables.read_until(until_ms)
    ends = [end(at_ms, 9) for at_ms in (20, until_ms, until_ms + 1, 2 * day_ms)]
    tables.merge({"ends": make(spark, "ends", *ends)})
    write_lag(tables, "latest")
    assert rows(tables.read("lag"), "at_ms", "lag") == [(20, 5), (until_ms, 5)]
    assert tables.as_of_ms() == until_ms
    tables.append("history", 1, {"commits": make(spark, "commits", commit(until_ms + 1, 9))})
    tables.read_until(2 * day_ms)
    write_lag(tables, "latest")
    expected = [(20, 5), (until_ms, 5), (until_ms + 1, 0), (2 * day_ms, 0)]
    assert rows(tables.read("lag"), "at_ms", "lag") == expected
    # Nothing new: the end of the history moved on, and no end of a partition is later.
    tables.read_until(3 * day_ms)
    write_lag(tables, "latest")
    assert rows(tables.read("lag"), "at_ms", "lag") == expected


def test_lag_of_one_group_keeps_the_rows_of_others(tables: Tables, spark: SparkSession) -> None:
    given = [commit(10, 4), commit(10, 3, group="h"), commit(10, 3, group="i", topic="paid")]
    tables.append("history", 0, {"commits": make(spark, "commits", *given)})
    tables.merge({"ends": make(spark, "ends", end(15, 10))})
    assert committed_topics(tables, Scope(groups=("g", "h"))) == (("orders",), 10)
    write_lag(tables, "latest")
    assert rows(tables.read("lag"), "group", "lag") == [("g", 6), ("h", 7)]
    later = [commit(12, 9, group=group) for group in "gh"]
    tables.append("history", 1, {"commits": make(spark, "commits", *later)})
    write_lag(tables, "latest", Scope(groups=("g",)))
    assert rows(tables.read("lag"), "group", "lag") == [("g", 1), ("h", 7)]


def test_lives_of_a_topic_are_told_apart_in_the_hours_after(
    tables: Tables, spark: SparkSession
) -> None:
    """New moments follow from the lag of the hour before, which does not know a commit's id.

    Topic `again` is made again in hour 1 and gets its first commit in hour 3. In hour 3 topic
    `late` is made again, and the commit to it is of a broker that writes no id.
    """
    first = [commit(10, 7, topic="again", topic_id="a"), commit(10, 4, topic="late")]
    tables.append("history", 0, {"commits": make(spark, "commits", *first)})
    lives = {"again": "abbbb", "late": "aaabb"}
    for hour in range(5):
        at_ms = hour * HOUR_MS + 20
        moments = [
            end(at_ms, 9, topic=name) | {"topic_id": ids[hour]} for name, ids in lives.items()
        ]
        tables.merge({"ends": make(spark, "ends", *moments)})
        if hour == 3:
            said = commit(at_ms - 1, 2, topic="again", topic_id="b")
            tables.append("history", 1, {"commits": make(spark, "commits", said)})
        write_lag(tables, "earliest")
    assert rows(tables.read("lag"), "topic", "at_ms", "lag") == [
        *(("again", hour * HOUR_MS + 20, lag) for hour, lag in ((0, 2), (3, 7), (4, 7))),
        *(("late", hour * HOUR_MS + 20, 5) for hour in range(5)),
    ]


def test_the_hour_before_new_moments_is_read_with_its_first_ms(
    tables: Tables, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit, or the last earlier moment, is exactly an hour before, a ms earlier or later.

    Afterwards nothing is new, so the job reads no rows.
    """
    commits, moments = [commit(1, 1, topic="quiet")], [end(HOUR_MS, 9, topic="quiet")]
    for older, said, seen in product((0, 1), (-1, 0, 1), (-1, 0, 1)):
        topic = f"{older} {said} {seen}"
        commits += [commit(1, 1, topic=topic)] * older
        commits.append(commit(HOUR_MS + said, 5, topic=topic))
        moments.append(end(HOUR_MS + seen, 9, topic=topic))
    tables.append("history", 0, {"commits": make(spark, "commits", *commits)})
    for some in (moments, [one | {"at_ms": 2 * HOUR_MS} for one in moments]):
        tables.merge({"ends": make(spark, "ends", *some)})
        write_lag(tables, "latest")
    last = rows(tables.read("lag").where(f"at_ms = {2 * HOUR_MS}"), "topic", "lag")
    assert last == [*((one["topic"], 4) for one in moments[1:]), ("quiet", 8)]
    monkeypatch.delattr(Tables, "read")
    write_lag(tables, "latest")


@pytest.mark.verify
def test_what_is_new_is_added_to_lag_as_if_all_were_computed(
    tables: Tables, spark: SparkSession, tmp_path: Path
) -> None:
    """Late commits, deletions, dead groups, midnight; days without new input keep their files."""
    chance = random.Random(5)
    day_ms, step_ms = 24 * HOUR_MS, HOUR_MS // 2
    old_files: set[str] = set()
    expected: list[tuple[Any, ...]] = []
    for number, (first, last) in enumerate([(0, 2), (2, 3), (1, 4)]):
        span = range(first * day_ms + step_ms, last * day_ms, step_ms)
        times = sorted(chance.sample(range(first * day_ms, last * day_ms), 16))
        tables.append("history", number, history_of(spark, chance, times, 100 * number))
        moments = [end(at_ms, at_ms // HOUR_MS, one) for at_ms in span for one in range(3)]
        tables.merge({"ends": make(spark, "ends", *moments)})
        write_lag(tables, "earliest")
        commits, members, generations, ends = map(
            tables.read, ("commits", "members", "generations", "ends")
        )
        interests = interests_of(commits, members)
        subscribed = subscribed_moments(ends, interests, generations, members)
        said = in_log_order(commits)
        expected = rows(lag_of(ends, said, interests, subscribed, "earliest"))
        assert rows(tables.read("lag")) == expected
        files = {path.name for path in tmp_path.glob("v1/lag/day=1970-01-01/*.parquet")}
        assert number == 0 or files == old_files
        old_files = files
    assert tables.read("lag").count() > 20
    since = Scope(since_ms=3 * day_ms)
    write_lag(tables, "earliest", since)
    assert rows(tables.read("lag")) == [row for row in expected if row[3] >= since.since_ms]


def history_of(
    spark: SparkSession, chance: random.Random, times: Sequence[int], offset: int
) -> dict[str, DataFrame]:
    """Return commits, deletions, members and deaths of two groups at some times."""
    found: dict[str, list[dict[str, Any]]] = {"commits": [], "generations": [], "members": []}
    for number, at_ms in enumerate(times, offset):
        place = {"group": chance.choice("gh"), "at_ms": at_ms, "source_offset": number}
        place["source_partition"] = 0
        if chance.random() < 0.7:
            done = chance.choice([None, at_ms // HOUR_MS])
            some = chance.randrange(2 + offset // 100)  # partition 2 comes late
            found["commits"].append(commit(at_ms, done, partition=min(some, 2)) | place)
        else:
            count = chance.randrange(2)
            found["generations"].append({**place, "member_count": count, "is_tombstone": False})
            found["members"] += [{**place, "topics": ["orders"], "member_id": "m"}] * count
    return {name: make(spark, name, *some) for name, some in found.items()}


@pytest.mark.verify
def test_rows_that_a_killed_run_deleted_come_back(tables: Tables, spark: SparkSession) -> None:
    """The second run is killed after it has deleted the rows before its later begin."""
    day_ms = 24 * HOUR_MS
    tables.append("history", 0, {"commits": make(spark, "commits", commit(10, 4))})
    moments = [end(day * day_ms, 9) for day in range(1, 5)]
    tables.merge({"ends": make(spark, "ends", *moments)})

    def days_since(day: int) -> list[int]:
        write_lag(tables, "latest", Scope(since_ms=day * day_ms))
        return [row[0] // day_ms for row in rows(tables.read("lag"), "at_ms")]

    assert days_since(1) == [1, 2, 3, 4]
    tables.append("history", 1, {"commits": make(spark, "commits", commit(3 * day_ms, 5))})
    with killed_at(Tables, "replace"):
        days_since(3)
    assert days_since(2) == [2, 3, 4]


@pytest.mark.verify
def test_loads_are_computed_again_after_an_hour(tables: Tables, spark: SparkSession) -> None:
    """They are rates of whole hours over all commits and ends."""

    def seconds(hours: float) -> list[tuple[Any, ...]]:
        at_ms = int(hours * HOUR_MS)
        tables.append("history", at_ms, {"commits": make(spark, "commits", commit(at_ms, 1))})
        tables.merge({"ends": make(spark, "ends", end(at_ms, 9))})
        tables.read_until(at_ms)
        write_lag(tables, "latest")
        return rows(tables.read("loads").groupBy().sum("consumption_s"))

    assert seconds(1.0) == [(None,)]
    assert seconds(1.5) == [(None,)]
    assert seconds(2.0) == [(3_600.0,)]
    write_lag(tables, "latest", Scope(since_ms=int(1.5 * HOUR_MS)))
    assert rows(tables.read("loads").groupBy().sum("consumption_s")) == [(1_800.0,)]


@pytest.mark.verify
def test_of_two_runs_at_once_one_fails_and_the_next_run_mends_the_lag(
    tables: Tables, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run with older input writes its rows after those of the other run."""

    def add(number: int, committed: int) -> None:
        frame = make(spark, "commits", commit(10 * number, committed))
        tables.append("history", number, {"commits": frame})

    add(1, 1)
    tables.merge({"ends": make(spark, "ends", end(100, 100), end(200, 100))})
    write_lag(tables, "latest")
    add(2, 3)
    is_ready, may_write = threading.Event(), threading.Event()
    replace = Tables.replace
    older = threading.Thread(target=write_lag, args=(tables, "latest"))

    def interleaved(*args: Any) -> None:  # noqa: ANN401
        if threading.current_thread() is older:
            is_ready.set()
            assert may_write.wait(300)
            replace(*args)
        else:
            replace(*args)
            may_write.set()
            older.join(300)

    with monkeypatch.context() as patched:
        patched.setattr(Tables, "replace", interleaved)
        older.start()
        assert is_ready.wait(300)
        add(3, 5)
        with pytest.raises(PipelineError, match="at the same time; run this job again"):
            write_lag(tables, "latest")
    write_lag(tables, "latest")
    assert rows(tables.read("lag"), "at_ms", "lag") == [(100, 95), (200, 95)]
