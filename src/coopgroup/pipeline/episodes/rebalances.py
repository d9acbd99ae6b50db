"""Rebalances of any group, from its history: the table `rebalances`, with the source "history".

The history has the end of each round but not its begin, so time separates the rebalances. A round
that is complete within `settle_ms` of the previous one belongs to the same rebalance. The begin of
a rebalance is an estimate within bounds; docs/pipeline.md has the definitions.

A static member that returns within its session causes no round. But its partitions stood still,
and its return replaces a member id. So restarts have rows of their own, with the trigger `restart`,
unless they follow a state within `settle_ms`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as sql

from coopgroup.pipeline.schemas import TABLES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["HISTORY", "SETTLE_MS", "numbered_steps", "owner_changes", "rebalances_of"]

HISTORY: Final = "history"
SETTLE_MS: Final = 5_000
_MS_PER_S: Final = 1_000
_STATE: Final = ("group", "state")
_REBALANCE: Final = ("group", "first_state")
_PARTITION: Final = ("group", "life", "topic", "partition")


def numbered_steps(steps: DataFrame, settle_ms: int = SETTLE_MS) -> DataFrame:
    """Add `first_state` and `first_generation`, those of the rebalance of each step.

    Args:
        steps: from `processes.steps_of`.
        settle_ms: longest pause between two rounds of one rebalance.
    """
    window = Window.partitionBy("group", "life").orderBy("state")
    round_ms = sql.when(~sql.col("is_restart"), sql.col("at_ms"))
    last_round_ms = sql.last(round_ms, ignorenulls=True).over(
        window.rowsBetween(Window.unboundedPreceding, -1)
    )
    # A round does not belong to the restart before it: the restart is not the reason.
    since_ms = sql.when(sql.col("is_restart"), sql.col("previous_ms")).otherwise(last_round_ms)
    pause_ms = sql.col("at_ms") - since_ms
    starts = since_ms.isNull() | (pause_ms > settle_ms)
    first = sql.last(sql.when(starts, sql.struct("state", "generation")), ignorenulls=True).over(
        window
    )
    return steps.withColumn("first", first).select(
        *steps.columns,
        sql.col("first.state").alias("first_state"),
        sql.col("first.generation").alias("first_generation"),
    )


def owner_changes(holders: DataFrame, numbered: DataFrame) -> DataFrame:
    """Add the change of ownership to each partition in each state.

    Args:
        holders: from `processes.holders_of`.
        numbered: from `numbered_steps`.

    Returns:
        The columns of `holders`, with `first_state` and `first_generation`; `lost_ms`, when the
        last owner lost the partition, null without one; `is_move`, whether the last owner was
        another process; `is_resumed`, whether the owner in the previous state was another member,
        or the partition had no owner then but had one earlier.
    """
    window = Window.partitionBy(*_PARTITION).orderBy("state")
    before = sql.lag("process").over(window)
    member = sql.lag("member_id").over(window)
    state = sql.lag("state").over(window)
    steps = Window.partitionBy("group", "life").orderBy("state")
    place = numbered.select(
        *(*_STATE, "previous_state", "first_state", "first_generation"),
        sql.lead("at_ms").over(steps).alias("next_ms"),
    )
    return holders.join(place, list(_STATE)).select(
        *holders.columns,
        *("first_state", "first_generation"),
        sql.lag("next_ms").over(window).alias("lost_ms"),
        (before.isNotNull() & (before != sql.col("process"))).alias("is_move"),
        (
            member.isNotNull()
            & ((member != sql.col("member_id")) | (state < sql.coalesce("previous_state", state)))
        ).alias("is_resumed"),
    )


def rebalances_of(
    numbered: DataFrame, present: DataFrame, changes: DataFrame, outages: DataFrame
) -> DataFrame:
    """Return the table, one row for each rebalance.

    Args:
        numbered: from `numbered_steps`.
        present: from `processes.members_of`.
        changes: from `owner_changes`.
        outages: from `outages.outages_of`, with `is_observed`.
    """
    rows = _spans(numbered)
    sets = _member_sets(present)
    for name, state in (
        ("before", "previous_state"),
        ("first", "first_state"),
        ("after", "last_state"),
    ):
        chosen = sets.select(
            sql.col("group"),
            sql.col("state").alias(state),
            *(sql.col(one).alias(f"{one}_{name}") for one in _OF_SETS),
        )
        rows = rows.join(chosen, ["group", state], "left")
    # A state may be written again without any change.
    changed = ~sql.col("ids_before").eqNullSafe(sql.col("ids_first"))
    rows = rows.where(~sql.col("is_restart") | changed)
    rows = rows.join(_moves(changes), list(_REBALANCE), "left")
    held = changes.groupBy(*_STATE).agg(sql.count(sql.lit(1)).cast("int").alias("partitions"))
    rows = rows.join(held.withColumnRenamed("state", "last_state"), ["group", "last_state"], "left")
    rows = rows.join(_unavailable(outages), list(_REBALANCE), "left")
    return _described(rows).select(*TABLES["rebalances"].schema.names)


def _spans(numbered: DataFrame) -> DataFrame:
    """Return the first and last step of each rebalance, and the step before it."""
    return numbered.groupBy(*_REBALANCE, "first_generation").agg(
        sql.max("state").alias("last_state"),
        sql.max("generation").alias("last_generation"),
        sql.min("at_ms").alias("begin_ms"),
        sql.max("at_ms").alias("end_ms"),
        *(
            sql.min_by(name, "state").alias(name)
            for name in ("is_restart", "previous_state", "previous_generation", "previous_ms")
        ),
    )


_OF_SETS: Final = ("ids", "names", "topics", "rejoin_ms")


def _member_sets(present: DataFrame) -> DataFrame:
    # A static member has a new member id after each restart, and is the same member.
    name = sql.coalesce(sql.concat(sql.lit("static:"), "instance_id"), "member_id")
    return present.groupBy(*_STATE).agg(
        sql.array_sort(sql.collect_set("member_id")).alias("ids"),
        sql.array_sort(sql.collect_set(name)).alias("names"),
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
        sql.coalesce(f"names_{one}", nobody) for one in ("before", "first", "after")
    )
    is_unknown = sql.coalesce("unseen", sql.lit(0)) > 0
    nothing_seen = is_unknown & (sql.coalesce("seen", sql.lit(0)) == 0)
    zero = sql.lit(0.0)
    earliest = sql.greatest(
        sql.coalesce("previous_ms", "begin_ms"),
        sql.col("begin_ms") - sql.coalesce("rejoin_ms_before", "rejoin_ms_first", sql.lit(0)),
    )
    missing = sql.col("first_generation") - sql.col("previous_generation") - 1
    return rows.select(
        *("group", "first_generation", "last_generation", "begin_ms", "end_ms"),
        sql.lit(HISTORY).alias("source"),
        _trigger(before, first).alias("trigger"),
        sql.when(sql.col("is_restart"), sql.lit(0))
        .otherwise(sql.col("last_generation") - sql.col("first_generation") + 1)
        .alias("rounds"),
        sql.greatest(sql.coalesce(missing, sql.lit(0)), sql.lit(0)).alias("missing"),
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
        sql.when(sql.col("is_restart"), "restart")
        .when(sql.size(first) == 0, "emptied")
        .when(sql.size(before) == 0, "created")
        .when(joined & left, "exchange")
        .when(joined, "join")
        .when(left, "leave")
        .when(~sql.col("topics_before").eqNullSafe(sql.col("topics_first")), "subscription")
        .otherwise("rejoin")
    )
