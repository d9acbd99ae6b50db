"""Episodes of histories that are written by hand: rebalances, outages, absences and skew.

Each story is a group of its own, and all episodes are computed in one run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from attrs import evolve
from pyspark.sql import functions as sql

from tests.spark.departures import AWAY, RETURNS
from tests.spark.frames import commit, rows
from tests.spark.stories import REMOVED, State, Story, episodes_of, every

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MINUTE_MS = 60_000
HOUR_MS = 3_600_000
TIMES = ("partition", "begin_ms", "end_ms", "unavailable_ms", "error_ms")
STORIES: dict[str, Story] = {}


@pytest.fixture(scope="module")
def episodes(spark: SparkSession) -> dict[str, DataFrame]:
    return episodes_of(spark, STORIES)


def found(
    episodes: dict[str, DataFrame], story: str, table: str, *columns: str
) -> list[tuple[Any, ...]]:
    return rows(episodes[table].where(f"`group` = '{story}'"), *columns)


# --- a group from its first member to its last one ------------------------------------------------

# "a" came first, "b" joined in two rounds, "c" replaced it, all left, and at last "a" subscribed to
# more topics.
BOTH = ("orders", "paid")
STORIES["whole"] = Story(
    states=(
        State(at_ms=9_000, generation=0),
        State(at_ms=10_000, generation=1, held={"a": (0, 1)}),
        State(at_ms=60_000, generation=2, held={"a": (0,), "b": ()}),
        State(at_ms=61_000, generation=3, held={"a": (0,), "b": (1,)}),
        State(at_ms=90_000, generation=4, held={"a": (0,), "c": (1,)}),
        State(at_ms=120_000, generation=5, held={"a": (0, 1), "c": ()}, topics=BOTH),
        State(at_ms=150_000, generation=6, held={"a": (0, 1)}, topics=BOTH),
        State(at_ms=180_000, generation=7),
    ),
    # Partition 0 has a commit every second; partition 1 has none while it moves.
    commits=(
        *every(1_000, (0, 179_000)),
        *every(1_000, (0, 59_000), (64_000, 88_000), (95_000, 179_000), partition=1),
    ),
    lag=[
        {"topic": "orders", "partition": partition, "at_ms": at_ms, "lag": lag}
        for at_ms, lags in (
            (5_000, (9, 9)),
            (70_000, (30, 10)),
            (70_500, (0, 0)),
            (130_000, (6, 4)),
        )
        for partition, lag in enumerate(lags)
    ],
)


def test_rebalances_have_a_trigger_rounds_and_members(episodes: dict[str, DataFrame]) -> None:
    """Rounds within five seconds belong together; joins and departures give the reason."""
    columns = ("first_generation", "trigger", "rounds", "members_before", "members_after")
    assert found(episodes, "whole", "rebalances", *columns, "joined", "left") == [
        (1, "created", 1, 0, 1, 1, 0),
        (2, "join", 2, 1, 2, 1, 0),
        (4, "exchange", 1, 2, 2, 1, 1),
        (5, "subscription", 1, 2, 2, 0, 0),
        (6, "leave", 1, 2, 1, 0, 1),
        (7, "emptied", 1, 1, 0, 0, 1),
    ]


def test_rebalances_have_times_within_bounds(episodes: dict[str, DataFrame]) -> None:
    """At the earliest the previous round, and at most the time that members have to rejoin."""
    columns = ("first_generation", "begin_earliest_ms", "begin_ms", "end_ms", "duration_ms")
    assert found(episodes, "whole", "rebalances", *columns)[:4] == [
        (1, 10_000, 10_000, 10_000, 0),
        (2, 30_000, 60_000, 61_000, 1_000),
        (4, 61_000, 90_000, 90_000, 0),
        (5, 90_000, 120_000, 120_000, 0),
    ]


def test_partitions_that_change_hands_have_moved(episodes: dict[str, DataFrame]) -> None:
    """From process to process, even if they had no owner in between."""
    columns = ("first_generation", "partitions", "moved", "moved_twice")
    assert found(episodes, "whole", "rebalances", *columns) == [
        (1, 2, 0, 0),
        (2, 2, 1, 0),
        (4, 2, 1, 0),
        (5, 2, 1, 0),
        (6, 2, 0, 0),
        (7, 0, 0, 0),
    ]


def test_outages_are_gaps_between_commits(episodes: dict[str, DataFrame]) -> None:
    """The gap minus the usual interval; the error is at most that interval."""
    columns = ("first_generation", "partition", "begin_ms", "end_ms", "unavailable_ms", "error_ms")
    assert found(episodes, "whole", "outages", *columns) == [
        (2, 1, 59_000, 64_000, 4_000, 1_000),
        (4, 1, 88_000, 95_000, 6_000, 1_000),
        (5, 1, 120_000, 121_000, 0, 1_000),
    ]
    sums = found(
        episodes, "whole", "rebalances", "first_generation", "unavailable_partition_s", "unobserved"
    )
    assert sums == [(1, 0.0, 0), (2, 4.0, 0), (4, 6.0, 0), (5, 0.0, 0), (6, 0.0, 0), (7, 0.0, 0)]


def test_skew_is_of_those_who_are_in_the_group(episodes: dict[str, DataFrame]) -> None:
    """A member without partitions counts; a time before the group has no skew."""
    columns = ("at_ms", "generation", "members", "lag_total", "lag_max", "lag_mean", "imbalance")
    assert found(episodes, "whole", "skew", *columns) == [
        (70_000, 3, 2, 40, 30, 20.0, 1.5),
        (70_500, 3, 2, 0, 0, 0.0, None),
        (130_000, 5, 2, 10, 10, 5.0, 2.0),
    ]


STORIES["unobserved"] = Story(
    states=[
        State(at_ms=number * 100_000, generation=number, held={"a": [0][odd:], "b": [0][1 - odd :]})
        for number, odd in ((1, 0), (4, 1), (7, 0))
    ]
)


def test_outages_that_cannot_be_seen_count_for_their_own_rebalances(
    episodes: dict[str, DataFrame],
) -> None:
    """A partition without commits moves twice: each move counts one unobserved outage."""
    columns = ("first_generation", "moved", "unobserved")
    assert found(episodes, "unobserved", "rebalances", *columns) == [
        (1, 0, 0),
        (4, 1, 1),
        (7, 1, 1),
    ]


# --- stories in which episodes were wrong ---------------------------------------------------------

BACK_MS = 100_000 + 9 * MINUTE_MS
STORIES["restart"] = Story(
    states=(
        State(at_ms=10_000, generation=1, held={"a1/s1": [0], "b1/s2": [1]}),
        State(at_ms=100_000, generation=2, held={"a1/s1": [0, 1]}),
        State(at_ms=BACK_MS, generation=2, held={"a2/s1": [0, 1]}),
    ),
    commits=(
        *every(1_000, (10_000, BACK_MS - 6_000), (BACK_MS + 1_000, 800_000)),
        *every(
            1_000,
            *((10_000, 76_000), (101_000, BACK_MS - 6_000), (BACK_MS + 1_000, 800_000)),
            partition=1,
        ),
    ),
)


def test_a_static_restart_does_not_hide_the_outage_before_it(
    episodes: dict[str, DataFrame],
) -> None:
    """In one generation: s2 leaves, its partition stands still for 24 s, and later s1 restarts."""
    columns = ("first_generation", "begin_ms", "trigger", "rounds", "joined", "left", "moved")
    assert found(episodes, "restart", "rebalances", *columns, "unavailable_partition_s") == [
        (1, 10_000, "created", 1, 2, 0, 0, 0.0),
        (2, 100_000, "leave", 1, 0, 1, 1, 24.0),
        (2, BACK_MS, "restart", 0, 0, 0, 0, 12.0),
    ]
    assert found(episodes, "restart", "outages", *TIMES) == [
        (0, BACK_MS - 6_000, BACK_MS + 1_000, 6_000, 1_000),
        (1, 76_000, 101_000, 24_000, 1_000),
        (1, BACK_MS - 6_000, BACK_MS + 1_000, 6_000, 1_000),
    ]


STORIES["repeated"] = Story(
    states=[State(at_ms=at_ms, generation=1, held={"a/s": [0]}) for at_ms in (1_000, 90_000)]
)


def test_a_state_that_is_written_twice_is_no_restart(episodes: dict[str, DataFrame]) -> None:
    assert found(episodes, "repeated", "rebalances", "trigger") == [("created",)]


STORIES["idle"] = Story(
    states=(
        State(at_ms=10_000, generation=1, held={"a": [0], "b": []}),
        State(at_ms=5 * HOUR_MS, generation=2, held={"a": [], "b": [0]}),
    ),
    commits=tuple(every(MINUTE_MS, (10_000, HOUR_MS), (9 * HOUR_MS, 10 * HOUR_MS))),
)


def test_an_idle_topic_is_no_outage(episodes: dict[str, DataFrame]) -> None:
    """Eight hours without records, in which the partition moves."""
    columns = ("trigger", "unavailable_partition_s", "unobserved")
    assert found(episodes, "idle", "outages") == []
    assert found(episodes, "idle", "rebalances", *columns) == [
        ("created", 0.0, 0),
        ("rejoin", None, 1),
    ]


def waiting(at_ms: int, lag: int) -> dict[str, Any]:
    return {"topic": "orders", "partition": 0, "at_ms": at_ms, "lag": lag}


STORIES["waiting"] = Story(
    states=STORIES["idle"].states,
    commits=STORIES["idle"].commits,
    lag=(
        *(waiting(at_ms, 0) for at_ms in range(0, 5 * HOUR_MS, MINUTE_MS)),
        *(waiting(at_ms, 9) for at_ms in range(5 * HOUR_MS, 9 * HOUR_MS, MINUTE_MS)),
    ),
)


def test_an_outage_begins_when_records_wait(episodes: dict[str, DataFrame]) -> None:
    """The lag shows when records arrived; the error covers the time between two moments."""
    begin_ms = 5 * HOUR_MS - MINUTE_MS
    assert found(episodes, "waiting", "outages", *TIMES) == [
        (0, begin_ms, 9 * HOUR_MS, 4 * HOUR_MS, 2 * MINUTE_MS),
    ]


STOPPED = ((10_000, 80_000), (110_000, 200_000))
# No record of partition 1 arrived within the gap.
LATE = [
    {
        **one,
        "partition": 1,
        "source_offset": one["source_offset"] + 1,
        "committed": one["committed"] - (29_000 if one["at_ms"] > 100_000 else 0),
    }
    for one in every(1_000, *STOPPED)
]
STORIES["late"] = Story(
    states=(
        State(at_ms=10_000, generation=1, held={"a": [0, 1], "b": []}),
        State(at_ms=100_000, generation=2, held={"a": [], "b": [0, 1]}),
    ),
    commits=(*every(1_000, *STOPPED), *LATE),
)


def test_the_error_covers_records_that_only_came_after_the_gap(
    episodes: dict[str, DataFrame],
) -> None:
    """Thirty seconds without commits: with arrivals a sure outage, without them an unsure one."""
    assert found(episodes, "late", "outages", *TIMES) == [
        (0, 80_000, 110_000, 29_000, 1_000),
        (1, 80_000, 110_000, 29_000, 29_000),
    ]


STORIES["removed"] = Story(
    states=(
        State(at_ms=1_000, generation=1, held={"a": [0], "b": [1]}),
        State(at_ms=60_000, generation=2, held={"a": [0, 1]}),
        State(at_ms=120_000, generation=3, held={}),
        State(at_ms=200_000, held=REMOVED),
        State(at_ms=300_000, generation=1, held={"x@a@h": [0], "y": [1]}),
        State(at_ms=360_000, generation=2, held={"x@a@h": [0, 1]}),
    ),
    commits=(*every(1_000, (1_000, 119_000)), *every(1_000, (301_000, 400_000))),
)


def test_a_removed_group_keeps_its_past(episodes: dict[str, DataFrame]) -> None:
    """Each life has its episodes; nothing is compared across lives."""
    assert found(episodes, "removed", "rebalances", "begin_ms", "trigger", "moved") == [
        (1_000, "created", 0),
        (60_000, "leave", 1),
        (120_000, "emptied", 0),
        (300_000, "created", 0),
        (360_000, "leave", 1),
    ]
    assert found(episodes, "removed", "outages", "partition") == []
    columns = ("member_id", "returned_as", "observed_until_ms")
    assert found(episodes, "removed", "absences", *columns) == [
        ("a", "never", 200_000),
        ("b", "never", 200_000),
        ("y", "never", 400_000),
    ]


STORIES["anew"] = Story(
    states=(
        State(at_ms=1_000, generation=7, held={"a": [0]}),
        State(at_ms=60_000, generation=8, held={"a": [0], "b": []}),
        State(at_ms=9 * HOUR_MS, generation=1, held={"c": [0]}),
        State(at_ms=10 * HOUR_MS, generation=2, held={"c": [0], "d": []}),
    )
)


def test_a_generation_that_starts_again_is_another_life(episodes: dict[str, DataFrame]) -> None:
    """Compaction has removed the tombstone between them."""
    columns = ("begin_ms", "trigger", "rounds", "missing", "members_before", "moved")
    assert found(episodes, "anew", "rebalances", *columns) == [
        (1_000, "created", 1, 0, 0, 0),
        (60_000, "join", 1, 0, 1, 0),
        (9 * HOUR_MS, "created", 1, 0, 0, 0),
        (10 * HOUR_MS, "join", 1, 0, 1, 0),
    ]


STORIES["compacted"] = Story(
    states=(
        State(at_ms=1_000, generation=1, held={"a": [0]}),
        State(at_ms=9 * HOUR_MS, generation=400, held={"a": [], "b": [0]}),
    )
)


def test_generations_that_compaction_removed_are_no_rounds(
    episodes: dict[str, DataFrame],
) -> None:
    columns = ("first_generation", "rounds", "missing")
    assert found(episodes, "compacted", "rebalances", *columns) == [(1, 1, 0), (400, 1, 398)]


STORIES["weak"] = Story(
    states=(
        State(at_ms=1_000, generation=1, held={"p1@pod@h1": [0], "s1/s": [1], "k": [2]}),
        State(at_ms=60_000, generation=2, held={"k": [0, 1, 2]}),
        State(at_ms=12 * HOUR_MS, generation=3, held={"p2@pod@h2": [0], "s2/s": [1], "k": [2]}),
    )
)


def test_a_weak_name_returns_within_an_hour_or_never(episodes: dict[str, DataFrame]) -> None:
    """A pod of the same deployment, half a day later, is another process; a static id is not."""
    columns = ("member_id", "returned_as", "returned_ms")
    assert found(episodes, "weak", "absences", *columns) == [
        ("p1", "never", None),
        ("s1", "static_id", 12 * HOUR_MS),
    ]


FIRST_MS, SECOND_MS = 5 * HOUR_MS, 8 * HOUR_MS
ONE_POD = {"c@pod@3": [0, 1, 2]}
STORIES["pods"] = Story(
    states=(
        State(at_ms=1_000, generation=1, held={"a@pod@1": [0], "b@pod@2": [1], "c@pod@3": [2]}),
        State(at_ms=60_000, generation=2, held={"b@pod@2": [0, 1], "c@pod@3": [2]}),
        State(at_ms=FIRST_MS, generation=3, held=ONE_POD),
        State(at_ms=FIRST_MS + 20_000, generation=4, held={**ONE_POD, "d@pod@4": []}),
        State(at_ms=SECOND_MS, generation=5, held=ONE_POD),
        State(at_ms=SECOND_MS + 30_000, generation=6, held={**ONE_POD, "e@pod@5": []}),
    )
)


def test_a_member_that_never_returns_does_not_shift_the_returns_of_others(
    episodes: dict[str, DataFrame],
) -> None:
    """Three pods of one name: one leaves for good, and hours later another restarts twice."""
    columns = ("member_id", "returned_member_id", "absent_ms")
    assert found(episodes, "pods", "absences", *columns) == [
        ("a", None, None),
        ("b", "d", 20_000),
        ("d", "e", 30_000),
    ]


MIDNIGHT_MS = 24 * HOUR_MS
STORIES["settled"] = Story(
    states=[
        State(at_ms=MIDNIGHT_MS + at_ms, generation=number, held={"a": [0], "b": [number]})
        for number, at_ms in enumerate((-60_000, -3_000, 2_000, 7_001))
    ]
)


def test_rounds_settle_within_the_bound_and_not_after_it(episodes: dict[str, DataFrame]) -> None:
    """Five seconds belong to the rebalance, a millisecond more does not; midnight has no effect."""
    columns = ("first_generation", "rounds", "begin_ms", "end_ms")
    assert found(episodes, "settled", "rebalances", *columns) == [
        (0, 1, MIDNIGHT_MS - 60_000, MIDNIGHT_MS - 60_000),
        (1, 2, MIDNIGHT_MS - 3_000, MIDNIGHT_MS + 2_000),
        (3, 1, MIDNIGHT_MS + 7_001, MIDNIGHT_MS + 7_001),
    ]


STORIES["deleted"] = Story(
    states=(
        State(at_ms=10_000, generation=1, held={"a": [0], "b": []}),
        State(at_ms=100_000, generation=2, held={"a": [], "b": [0]}),
    ),
    commits=(
        *every(1_000, (10_000, 90_000), (102_000, 200_000)),
        commit(95_000, None, source_offset=999_999),
    ),
)


def test_a_deleted_commit_is_no_sign_of_work(episodes: dict[str, DataFrame]) -> None:
    assert found(episodes, "deleted", "outages", *TIMES) == [(0, 90_000, 102_000, 11_000, 1_000)]


# --- members that leave ---------------------------------------------------------------------------

STORIES.update(AWAY)
STORIES.update({f"{name} again": evolve(story, copies=2) for name, story in AWAY.items()})


def of(episodes: dict[str, DataFrame], *groups: str) -> DataFrame:
    """Return the absences of some groups."""
    return episodes["absences"].where(sql.col("group").isin(*groups))


def test_a_return_is_told_by_what_came_back(episodes: dict[str, DataFrame]) -> None:
    """Static id first, then client and host, then either; no member is matched twice."""
    columns = ("group", "member_id", "returned_as", "returned_member_id", "returned_ms")
    expected = [(story, *one) for story, (_, gone) in RETURNS.items() for one in gone]
    assert rows(of(episodes, *RETURNS), *columns) == sorted(expected)


def test_an_absence_begins_with_the_last_sign_of_work(episodes: dict[str, DataFrame]) -> None:
    """The last commit of its partitions; without commits, the round without the member."""
    times = ("gone_earliest_ms", "gone_ms", "gone_latest_ms", "absent_ms")
    others = ("partitions", "generation", "observed_until_ms")
    assert rows(of(episodes, "worked", "no commits"), "group", *times, *others) == [
        ("no commits", 100, 110, 110, 40, 0, 1, 150),
        ("worked", 104, 104, 110, 46, 1, 1, 1_000),  # its last commit
    ]


def test_no_absence_is_longer_than_the_group_would_have_waited(
    episodes: dict[str, DataFrame],
) -> None:
    """A topic without records has old commits; unknown rounds set no limit."""
    columns = ("group", "gone_earliest_ms", "gone_ms", "gone_latest_ms", "absent_ms")
    assert rows(of(episodes, "quiet", "unknown rounds"), *columns) == [
        ("quiet", 1_990, 2_000, 2_000, 5),
        ("unknown rounds", 999, 999, 2_000, None),
    ]


def test_repeated_records_change_nothing(episodes: dict[str, DataFrame]) -> None:
    again = of(episodes, *(f"{name} again" for name in AWAY))
    once = again.withColumn("group", sql.regexp_replace("group", " again$", ""))
    assert rows(once) == rows(of(episodes, *AWAY))
