"""Rebalances, outages and skew of small histories, written by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from coopgroup.pipeline.episodes.job import checkpointed, history_episodes
from coopgroup.pipeline.episodes.outages import outages_of
from tests.spark.frames import commit, make, rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Time of each complete round, and the partitions of its members. "a" came first, "b" joined in two
# rounds, "c" replaced it, all left, and at last "a" subscribed to more topics.
STORY: tuple[tuple[int, dict[str, tuple[int, ...]], tuple[str, ...]], ...] = (
    (9_000, {}, ()),
    (10_000, {"a": (0, 1)}, ("orders",)),
    (60_000, {"a": (0,), "b": ()}, ("orders",)),
    (61_000, {"a": (0,), "b": (1,)}, ("orders",)),
    (90_000, {"a": (0,), "c": (1,)}, ("orders",)),
    (120_000, {"a": (0, 1), "c": ()}, ("orders", "paid")),
    (150_000, {"a": (0, 1)}, ("orders", "paid")),
    (180_000, {}, ()),
)

# Lag of both partitions at some times.
LAGS = ((5_000, (9, 9)), (70_000, (30, 10)), (70_500, (0, 0)), (130_000, (6, 4)))


@pytest.fixture(scope="module")
def episodes(spark: SparkSession) -> dict[str, DataFrame]:
    generations: list[dict[str, Any]] = []
    members: list[dict[str, Any]] = []
    assignments: list[dict[str, Any]] = []
    for number, (at_ms, held, topics) in enumerate(STORY):
        place = {"group": "g", "generation": number, "at_ms": at_ms}
        place |= {"source_partition": 0, "source_offset": number}
        state = {"member_count": len(held), "is_tombstone": False, "written_ms": at_ms}
        generations.append({**place, **state})
        for name, partitions in held.items():
            who = {"member_id": name, "client_id": name, "client_host": "h"}
            limits = {"session_timeout_ms": 6_000, "rebalance_timeout_ms": 30_000}
            members.append({**place, **who, **limits, "topics": list(topics)})
            assignments += [
                {**place, "member_id": name, "topic": "orders", "partition": one}
                for one in partitions
            ]
    # Partition 0 has a commit every second; partition 1 has none while it moves.
    still = ((59_000, 64_000), (88_000, 95_000))
    commits = [commit(ms, ms, partition=0) for ms in range(0, 180_000, 1_000)]
    commits += [
        commit(ms, ms, partition=1, source_offset=ms + 1)
        for ms in range(0, 180_000, 1_000)
        if not any(begin < ms < end for begin, end in still)
    ]
    lag = [
        {"group": "g", "topic": "orders", "partition": partition, "at_ms": at_ms, "lag": lag}
        for at_ms, lags in (
            (5_000, (9, 9)),
            (70_000, (30, 10)),
            (70_500, (0, 0)),
            (130_000, (6, 4)),
        )
        for partition, lag in enumerate(lags)
    ]
    tables = (
        make(spark, "commits", *commits),
        make(spark, "generations", *generations),
        make(spark, "members", *members),
        make(spark, "assignments", *assignments),
    )
    found = history_episodes(*tables, lag=make(spark, "lag", *lag))
    return {name: checkpointed(frame) for name, frame in found.items()}


def test_rebalances_have_a_trigger_rounds_and_members(episodes: dict[str, DataFrame]) -> None:
    """Rounds within five seconds belong together; joins and departures give the reason."""
    columns = ("first_generation", "trigger", "rounds", "members_before", "members_after")
    assert rows(episodes["rebalances"], *columns, "joined", "left") == [
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
    assert rows(episodes["rebalances"], *columns)[:4] == [
        (1, 10_000, 10_000, 10_000, 0),
        (2, 30_000, 60_000, 61_000, 1_000),
        (4, 61_000, 90_000, 90_000, 0),
        (5, 90_000, 120_000, 120_000, 0),
    ]


def test_partitions_that_change_hands_have_moved(episodes: dict[str, DataFrame]) -> None:
    """From process to process, even if they had no owner in between."""
    columns = ("first_generation", "partitions", "moved", "moved_twice")
    assert rows(episodes["rebalances"], *columns) == [
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
    assert rows(episodes["outages"], *columns) == [
        (2, 1, 59_000, 64_000, 4_000, 1_000),
        (4, 1, 88_000, 95_000, 6_000, 1_000),
        (5, 1, 120_000, 121_000, 0, 1_000),
    ]
    sums = rows(episodes["rebalances"], "first_generation", "unavailable_partition_s", "unobserved")
    assert sums == [(1, 0.0, 0), (2, 4.0, 0), (4, 6.0, 0), (5, 0.0, 0), (6, 0.0, 0), (7, 0.0, 0)]


def test_skew_is_of_those_who_are_in_the_group(episodes: dict[str, DataFrame]) -> None:
    """A member without partitions counts; a time before the group has no skew."""
    columns = ("at_ms", "generation", "members", "lag_total", "lag_max", "lag_mean", "imbalance")
    assert rows(episodes["skew"], *columns) == [
        (70_000, 3, 2, 40, 30, 20.0, 1.5),
        (70_500, 3, 2, 0, 0, 0.0, None),
        (130_000, 5, 2, 10, 10, 5.0, 2.0),
    ]


def test_outages_that_cannot_be_seen_count_for_their_own_rebalances(spark: SparkSession) -> None:
    """A partition without commits moves twice: each move counts one unobserved outage."""
    held = {"group": "g", "topic": "orders", "partition": 0}
    changes = make(
        spark,
        "assignments",
        *(
            {**held, "at_ms": generation * 10_000, "generation": generation}
            for generation in (1, 4)
        ),
    ).selectExpr(
        *("*", "generation AS first_state", "generation AS first_generation"),
        *("at_ms AS lost_ms", "true AS is_move", "false AS is_resumed"),
    )
    patience = spark.createDataFrame([], "`group` string, patience_ms long")
    outages = outages_of(changes, make(spark, "commits"), make(spark, "lag"), patience)
    columns = ("first_generation", "is_observed")
    assert rows(outages, *columns) == [(1, False), (4, False)]
