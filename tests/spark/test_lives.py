"""Restarts, idle topics, removed groups and compaction: stories in which episodes were wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.spark.frames import commit, rows
from tests.spark.stories import REMOVED, State, Story, every

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MINUTE_MS = 60_000
HOUR_MS = 3_600_000
TIMES = ("partition", "begin_ms", "end_ms", "unavailable_ms", "error_ms")


def test_a_static_restart_does_not_hide_the_outage_before_it(spark: SparkSession) -> None:
    """In one generation: s2 leaves, its partition stands still for 24 s, and later s1 restarts."""
    back_ms = 100_000 + 9 * MINUTE_MS
    story = Story(
        states=(
            State(at_ms=10_000, generation=1, held={"a1/s1": [0], "b1/s2": [1]}),
            State(at_ms=100_000, generation=2, held={"a1/s1": [0, 1]}),
            State(at_ms=back_ms, generation=2, held={"a2/s1": [0, 1]}),
        ),
        commits=(
            *every(1_000, (10_000, back_ms - 6_000), (back_ms + 1_000, 800_000)),
            *every(
                1_000,
                *((10_000, 76_000), (101_000, back_ms - 6_000), (back_ms + 1_000, 800_000)),
                partition=1,
            ),
        ),
    )
    found = story.episodes(spark)
    columns = ("first_generation", "begin_ms", "trigger", "rounds", "joined", "left", "moved")
    assert rows(found["rebalances"], *columns, "unavailable_partition_s") == [
        (1, 10_000, "created", 1, 2, 0, 0, 0.0),
        (2, 100_000, "leave", 1, 0, 1, 1, 24.0),
        (2, back_ms, "restart", 0, 0, 0, 0, 12.0),
    ]
    assert rows(found["outages"], *TIMES) == [
        (0, back_ms - 6_000, back_ms + 1_000, 6_000, 1_000),
        (1, 76_000, 101_000, 24_000, 1_000),
        (1, back_ms - 6_000, back_ms + 1_000, 6_000, 1_000),
    ]


def test_a_state_that_is_written_twice_is_no_restart(spark: SparkSession) -> None:
    held = {"a/s": [0]}
    states = [State(at_ms=at_ms, generation=1, held=held) for at_ms in (1_000, 90_000)]
    found = Story(states=states).episodes(spark)
    assert rows(found["rebalances"], "trigger") == [("created",)]


IDLE = (
    State(at_ms=10_000, generation=1, held={"a": [0], "b": []}),
    State(at_ms=5 * HOUR_MS, generation=2, held={"a": [], "b": [0]}),
)
BUSY = ((10_000, HOUR_MS), (9 * HOUR_MS, 10 * HOUR_MS))


def test_an_idle_topic_is_no_outage(spark: SparkSession) -> None:
    """Eight hours without records, in which the partition moves."""
    story = Story(states=IDLE, commits=tuple(every(60_000, *BUSY)))
    found = story.episodes(spark)
    columns = ("trigger", "unavailable_partition_s", "unobserved")
    assert rows(found["outages"]) == []
    assert rows(found["rebalances"], *columns) == [("created", 0.0, 0), ("rejoin", None, 1)]


def waiting(at_ms: int, lag: int) -> dict[str, Any]:
    return {"group": "g", "topic": "orders", "partition": 0, "at_ms": at_ms, "lag": lag}


def test_an_outage_begins_when_records_wait(spark: SparkSession) -> None:
    """The lag shows when records arrived; the error covers the time between two moments."""
    story = Story(
        states=IDLE,
        commits=tuple(every(60_000, *BUSY)),
        lag=(
            *(waiting(at_ms, 0) for at_ms in range(0, 5 * HOUR_MS, MINUTE_MS)),
            *(waiting(at_ms, 9) for at_ms in range(5 * HOUR_MS, 9 * HOUR_MS, MINUTE_MS)),
        ),
    )
    begin_ms = 5 * HOUR_MS - MINUTE_MS
    assert rows(story.episodes(spark)["outages"], *TIMES) == [
        (0, begin_ms, 9 * HOUR_MS, 4 * HOUR_MS, 2 * MINUTE_MS),
    ]


def test_the_error_covers_records_that_only_came_after_the_gap(spark: SparkSession) -> None:
    """Thirty seconds without commits: with arrivals a sure outage, without them an unsure one."""
    states = (
        State(at_ms=10_000, generation=1, held={"a": [0, 1], "b": []}),
        State(at_ms=100_000, generation=2, held={"a": [], "b": [0, 1]}),
    )
    spans = ((10_000, 80_000), (110_000, 200_000))
    late = [{**one, "partition": 1} for one in every(1_000, *spans)]
    for one in late:  # none arrived within the gap
        one["source_offset"] += 1
        one["committed"] -= 29_000 if one["at_ms"] > 100_000 else 0
    story = Story(states=states, commits=(*every(1_000, *spans), *late))
    assert rows(story.episodes(spark)["outages"], *TIMES) == [
        (0, 80_000, 110_000, 29_000, 1_000),
        (1, 80_000, 110_000, 29_000, 29_000),
    ]


def test_a_removed_group_keeps_its_past(spark: SparkSession) -> None:
    """Each life has its episodes; nothing is compared across lives."""
    states = (
        State(at_ms=1_000, generation=1, held={"a": [0], "b": [1]}),
        State(at_ms=60_000, generation=2, held={"a": [0, 1]}),
        State(at_ms=120_000, generation=3, held={}),
        State(at_ms=200_000, held=REMOVED),
        State(at_ms=300_000, generation=1, held={"x@a@h": [0], "y": [1]}),
        State(at_ms=360_000, generation=2, held={"x@a@h": [0, 1]}),
    )
    commits = (*every(1_000, (1_000, 119_000)), *every(1_000, (301_000, 400_000)))
    found = Story(states=states, commits=commits).episodes(spark)
    assert rows(found["rebalances"], "begin_ms", "trigger", "moved") == [
        (1_000, "created", 0),
        (60_000, "leave", 1),
        (120_000, "emptied", 0),
        (300_000, "created", 0),
        (360_000, "leave", 1),
    ]
    assert rows(found["outages"], "partition") == []
    columns = ("member_id", "returned_as", "observed_until_ms")
    assert rows(found["absences"], *columns) == [
        ("a", "never", 200_000),
        ("b", "never", 200_000),
        ("y", "never", 400_000),
    ]


def test_a_generation_that_starts_again_is_another_life(spark: SparkSession) -> None:
    """Compaction has removed the tombstone between them."""
    states = (
        State(at_ms=1_000, generation=7, held={"a": [0]}),
        State(at_ms=60_000, generation=8, held={"a": [0], "b": []}),
        State(at_ms=9 * HOUR_MS, generation=1, held={"c": [0]}),
        State(at_ms=10 * HOUR_MS, generation=2, held={"c": [0], "d": []}),
    )
    found = Story(states=states).episodes(spark)
    columns = ("begin_ms", "trigger", "rounds", "missing", "members_before", "moved")
    assert rows(found["rebalances"], *columns) == [
        (1_000, "created", 1, 0, 0, 0),
        (60_000, "join", 1, 0, 1, 0),
        (9 * HOUR_MS, "created", 1, 0, 0, 0),
        (10 * HOUR_MS, "join", 1, 0, 1, 0),
    ]


def test_generations_that_compaction_removed_are_no_rounds(spark: SparkSession) -> None:
    states = (
        State(at_ms=1_000, generation=1, held={"a": [0]}),
        State(at_ms=9 * HOUR_MS, generation=400, held={"a": [], "b": [0]}),
    )
    found = Story(states=states).episodes(spark)
    assert rows(found["rebalances"], "first_generation", "rounds", "missing") == [
        (1, 1, 0),
        (400, 1, 398),
    ]


def test_a_weak_name_returns_within_an_hour_or_never(spark: SparkSession) -> None:
    """A pod of the same deployment, half a day later, is another process; a static id is not."""
    late_ms = 12 * HOUR_MS
    states = (
        State(at_ms=1_000, generation=1, held={"p1@pod@h1": [0], "s1/s": [1], "k": [2]}),
        State(at_ms=60_000, generation=2, held={"k": [0, 1, 2]}),
        State(at_ms=late_ms, generation=3, held={"p2@pod@h2": [0], "s2/s": [1], "k": [2]}),
    )
    found = Story(states=states).episodes(spark)
    assert rows(found["absences"], "member_id", "returned_as", "returned_ms") == [
        ("p1", "never", None),
        ("s1", "static_id", late_ms),
    ]


def test_a_member_that_never_returns_does_not_shift_the_returns_of_others(
    spark: SparkSession,
) -> None:
    """Three pods of one name: one leaves for good, and hours later another restarts twice."""
    first_ms, second_ms = 5 * HOUR_MS, 8 * HOUR_MS
    pods = {"a@pod@1": [0], "b@pod@2": [1], "c@pod@3": [2]}
    left = {"b@pod@2": [0, 1], "c@pod@3": [2]}
    one = {"c@pod@3": [0, 1, 2]}
    states = (
        State(at_ms=1_000, generation=1, held=pods),
        State(at_ms=60_000, generation=2, held=left),
        State(at_ms=first_ms, generation=3, held=one),
        State(at_ms=first_ms + 20_000, generation=4, held={**one, "d@pod@4": []}),
        State(at_ms=second_ms, generation=5, held=one),
        State(at_ms=second_ms + 30_000, generation=6, held={**one, "e@pod@5": []}),
    )
    found = Story(states=states).episodes(spark)
    assert rows(found["absences"], "member_id", "returned_member_id", "absent_ms") == [
        ("a", None, None),
        ("b", "d", 20_000),
        ("d", "e", 30_000),
    ]


def test_rounds_settle_within_the_bound_and_not_after_it(spark: SparkSession) -> None:
    """Five seconds belong to the rebalance, a millisecond more does not; midnight has no effect."""
    midnight_ms = 24 * HOUR_MS
    states = [
        State(at_ms=midnight_ms + at_ms, generation=number, held={"a": [0], "b": [number]})
        for number, at_ms in enumerate((-60_000, -3_000, 2_000, 7_001))
    ]
    found = Story(states=states).episodes(spark)
    columns = ("first_generation", "rounds", "begin_ms", "end_ms")
    assert rows(found["rebalances"], *columns) == [
        (0, 1, midnight_ms - 60_000, midnight_ms - 60_000),
        (1, 2, midnight_ms - 3_000, midnight_ms + 2_000),
        (3, 1, midnight_ms + 7_001, midnight_ms + 7_001),
    ]


def test_a_deleted_commit_is_no_sign_of_work(spark: SparkSession) -> None:
    story = Story(
        states=(
            State(at_ms=10_000, generation=1, held={"a": [0], "b": []}),
            State(at_ms=100_000, generation=2, held={"a": [], "b": [0]}),
        ),
        commits=(
            *every(1_000, (10_000, 90_000), (102_000, 200_000)),
            commit(95_000, None, source_offset=999_999),
        ),
    )
    assert rows(story.episodes(spark)["outages"], *TIMES) == [
        (0, 90_000, 102_000, 11_000, 1_000),
    ]
