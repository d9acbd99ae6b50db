"""Rebalances of any group, from its history: the table `rebalances`, with the source "history".

The history has the end of each round but not its begin, so time separates the rebalances. A round
that is complete within `settle_ms` of the previous one belongs to the same rebalance. The begin of
a rebalance is an estimate within bounds; docs/pipeline.md has the definitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as sql

from coopgroup.pipeline.schemas import TABLES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["HISTORY", "SETTLE_MS", "numbered_rounds", "owner_changes", "rebalances_of"]

HISTORY: Final = "history"
SETTLE_MS: Final = 5_000
_MS_PER_S: Final = 1_000
_ROUND: Final = ("group", "generation")
_REBALANCE: Final = ("group", "first_generation")
_PARTITION: Final = ("group", "topic", "partition")
_SOURCE: Final = ("source_partition", "source_offset")


def numbered_rounds(rounds: DataFrame, settle_ms: int = SETTLE_MS) -> DataFrame:
    """Add `first_generation`, the first generation of the rebalance of each round.

    Args:
        rounds: from `processes.completed_rounds`.
        settle_ms: longest pause between two rounds of one rebalance.
    """
    pause_ms = sql.col("at_ms") - sql.col("previous_ms")
    starts = sql.col("previous_ms").isNull() | (pause_ms > settle_ms)
    window = Window.partitionBy("group").orderBy("generation")
    first = sql.last(sql.when(starts, sql.col("generation")), ignorenulls=True).over(window)
    return rounds.withColumn("first_generation", first)


def owner_changes(holders: DataFrame, numbered: DataFrame) -> DataFrame:
    """Add the change of ownership to each partition in the last state of a round.

    Args:
        holders: from `processes.holders_of`.
        numbered: from `numbered_rounds`.

    Returns:
        The columns of `holders`, with `first_generation`; `is_move`, whether the last owner was
        another process; `is_resumed`, whether the owner in the previous round was another member,
        or the partition had no owner then but had one earlier.
    """
    window = Window.partitionBy(*_PARTITION).orderBy("generation")
    before = sql.lag("process").over(window)
    member = sql.lag("member_id").over(window)
    generation = sql.lag("generation").over(window)
    key = [*_ROUND, *_SOURCE]
    place = numbered.select(*key, "previous_generation", "first_generation")
    last = holders.join(place, key)
    return last.select(
        *holders.columns,
        "first_generation",
        (before.isNotNull() & (before != sql.col("process"))).alias("is_move"),
        (
            member.isNotNull()
            & (
                (member != sql.col("member_id"))
                | (generation < sql.coalesce("previous_generation", generation))
            )
        ).alias("is_resumed"),
    )


def rebalances_of(
    numbered: DataFrame, present: DataFrame, changes: DataFrame, outages: DataFrame
) -> DataFrame:
    """Return the table, one row for each rebalance.

    Args:
        numbered: from `numbered_rounds`.
        present: from `processes.members_of`.
        changes: from `owner_changes`.
        outages: from `outages.outages_of`, with `is_observed`.
    """
    spans = _spans(numbered)
    key = [*_ROUND, *_SOURCE]
    sets = _member_sets(present.join(numbered.select(*key), key))
    rows = spans
    for name, generation in (
        ("before", "previous_generation"),
        ("first", "first_generation"),
        ("after", "last_generation"),
    ):
        chosen = sets.select(
            sql.col("group"),
            sql.col("generation").alias(generation),
            *(sql.col(one).alias(f"{one}_{name}") for one in ("ids", "topics", "rejoin_ms")),
        )
        rows = rows.join(chosen, ["group", generation], "left")
    rows = rows.join(_moves(changes), list(_REBALANCE), "left")
    held = changes.groupBy(*_ROUND).agg(sql.count(sql.lit(1)).cast("int").alias("partitions"))
    held = held.withColumnRenamed("generation", "last_generation")
    rows = rows.join(held, ["group", "last_generation"], "left")
    rows = rows.join(_unavailable(outages), list(_REBALANCE), "left")
    return _described(rows).select(*TABLES["rebalances"].schema.names)


def _spans(numbered: DataFrame) -> DataFrame:
    """Return the first and last round of each rebalance, and the round before it."""
    return numbered.groupBy(*_REBALANCE).agg(
        sql.max("generation").alias("last_generation"),
        sql.min("at_ms").alias("begin_ms"),
        sql.max("at_ms").alias("end_ms"),
        sql.min_by("previous_generation", "generation").alias("previous_generation"),
        sql.min_by("previous_ms", "generation").alias("previous_ms"),
    )


def _member_sets(present: DataFrame) -> DataFrame:
    return present.groupBy(*_ROUND).agg(
        sql.array_sort(sql.collect_set("member_id")).alias("ids"),
        sql.array_sort(sql.array_distinct(sql.flatten(sql.collect_list("topics")))).alias("topics"),
        sql.max("rebalance_timeout_ms").alias("rejoin_ms"),
    )


def _moves(changes: DataFrame) -> DataFrame:
    by_partition = changes.groupBy(*_REBALANCE, "topic", "partition").agg(
        sql.sum(sql.col("is_move").cast("int")).alias("moves")
    )
    return by_partition.groupBy(*_REBALANCE).agg(
        sql.count_if(sql.col("moves") > 0).cast("int").alias("moved"),
        sql.count_if(sql.col("moves") > 1).cast("int").alias("moved_twice"),
    )


def _unavailable(outages: DataFrame) -> DataFrame:
    seen = sql.col("is_observed")
    return outages.groupBy(*_REBALANCE).agg(
        (sql.sum(sql.when(seen, sql.col("unavailable_ms"))) / _MS_PER_S).alias("sum_s"),
        (sql.sum(sql.when(seen, sql.col("error_ms"))) / _MS_PER_S).alias("error_s"),
        sql.count_if(~seen).cast("int").alias("unseen"),
        sql.count_if(seen).alias("seen"),
    )


def _described(rows: DataFrame) -> DataFrame:
    nobody = sql.array().cast("array<string>")
    before, first, after = (
        sql.coalesce(f"ids_{one}", nobody) for one in ("before", "first", "after")
    )
    is_unknown = sql.coalesce("unseen", sql.lit(0)) > 0
    nothing_seen = is_unknown & (sql.coalesce("seen", sql.lit(0)) == 0)
    zero = sql.lit(0.0)
    earliest = sql.greatest(
        sql.coalesce("previous_ms", "begin_ms"),
        sql.col("begin_ms") - sql.coalesce("rejoin_ms_before", "rejoin_ms_first", sql.lit(0)),
    )
    return rows.select(
        *("group", "first_generation", "last_generation", "begin_ms", "end_ms"),
        sql.lit(HISTORY).alias("source"),
        _trigger(before, first).alias("trigger"),
        (
            sql.col("last_generation")
            - sql.coalesce("previous_generation", sql.col("first_generation") - 1)
        ).alias("rounds"),
        earliest.alias("begin_earliest_ms"),
        (sql.col("end_ms") - sql.col("begin_ms")).alias("duration_ms"),
        sql.size(before).alias("members_before"),
        sql.size(after).alias("members_after"),
        sql.size(sql.array_except(after, before)).alias("joined"),
        sql.size(sql.array_except(before, after)).alias("left"),
        *(
            sql.coalesce(name, sql.lit(0)).alias(name)
            for name in ("partitions", "moved", "moved_twice")
        ),
        sql.when(~nothing_seen, sql.coalesce("sum_s", zero)).alias("unavailable_partition_s"),
        sql.when(~nothing_seen, sql.coalesce("error_s", zero)).alias("unavailable_error_s"),
        sql.coalesce("unseen", sql.lit(0)).alias("unobserved"),
    )


def _trigger(before: Column, first: Column) -> Column:
    """Return the trigger of a rebalance, from the members before it and in its first round."""
    joined = sql.size(sql.array_except(first, before)) > 0
    left = sql.size(sql.array_except(before, first)) > 0
    return (
        sql.when(sql.size(first) == 0, "emptied")
        .when(sql.size(before) == 0, "created")
        .when(joined & left, "exchange")
        .when(joined, "join")
        .when(left, "leave")
        .when(~sql.col("topics_before").eqNullSafe(sql.col("topics_first")), "subscription")
        .otherwise("rejoin")
    )
