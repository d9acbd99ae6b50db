"""Rebalances and outages of coopgroup groups, from their telemetry.

Leaders record their decisions and announce further rounds. So rounds belong together up to a round
without such an announcement. Members record when they left the stable state and when they received
their assignment. Applications record when they started and stopped work (see `work_spans`).

If a group was removed, its generations restart with the next join. So a generation is unique only
within one *life* of the group. In order of time, a new life begins with a round that does not
raise the generation, and that shares no member with the round before. The group coordinator gives
out new member ids after it forgot a group. So a round with two leaders, or clocks that differ a
little, do not begin a new life.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as sql

from coopgroup.pipeline.asof import with_last
from coopgroup.pipeline.schemas import TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["TELEMETRY", "led_rebalances", "outages_of_work", "rebalances_of_rounds"]

TELEMETRY: Final = "telemetry"
_MS_PER_S: Final = 1_000
_LIFE: Final = ("group", "life")
_REBALANCE: Final = (*_LIFE, "first_generation")
_PARTITION: Final = ("group", "topic", "partition")


def led_rebalances(rounds: DataFrame) -> DataFrame:
    """Add `first_generation`, that of the round's rebalance, and the members before the round.

    Args:
        rounds: the table.

    Returns:
        (group, life, generation, at_ms, members, members_before, first_generation); `life` counts
        from 0 within the group.
    """
    # A round with two leaders (the group coordinator changed) counts once: the later record wins.
    once = (
        _with_life(rounds)
        .groupBy(*_LIFE, "generation")
        .agg(
            *(
                sql.max_by(name, "at_ms").alias(name)
                for name in ("members", "follow_up", "scheduled_rebalance_timeout_ms")
            ),
            sql.max("at_ms").alias("at_ms"),
        )
    )
    window = Window.partitionBy(*_LIFE).orderBy("generation")
    goes_on = sql.col("follow_up") | (sql.col("scheduled_rebalance_timeout_ms") > 0)
    waited = sql.lag(goes_on).over(window)
    first = sql.when(~sql.coalesce(waited, sql.lit(0).cast("boolean")), sql.col("generation"))
    return once.select(
        *(*_LIFE, "generation", "at_ms", "members"),
        sql.lag("members").over(window).alias("members_before"),
        sql.last(first, ignorenulls=True).over(window).alias("first_generation"),
    )


def _with_life(rounds: DataFrame) -> DataFrame:
    window = Window.partitionBy("group").orderBy("at_ms", "generation")
    goes_back = sql.col("generation") <= sql.lag("generation").over(window)
    strangers = ~sql.arrays_overlap("members", sql.lag("members").over(window))
    is_new = sql.coalesce((goes_back & strangers).cast("int"), sql.lit(0))
    marked = rounds.withColumn("is_new", is_new)
    return marked.withColumn("life", sql.sum("is_new").over(window)).drop("is_new")


def outages_of_work(spans: DataFrame) -> DataFrame:
    """Return the times between the end of all work on a partition and the next start, in one life.

    Args:
        spans: from `work_spans.work_spans`.

    Returns:
        The columns of the table `outages`, and `life`.
    """
    forever = sql.lit(2**62)
    window = Window.partitionBy(*_PARTITION, "life").orderBy("begin_ms", "end_ms")
    before = window.rowsBetween(Window.unboundedPreceding, -1)
    reached = sql.struct(sql.coalesce("end_ms", forever).alias("at_ms"), "error_ms")
    gaps = spans.withColumn("reached", sql.max(reached).over(before))
    gaps = gaps.where(sql.col("begin_ms") > sql.col("reached.at_ms"))
    return gaps.select(
        *(*_REBALANCE, "topic", "partition"),
        sql.lit(TELEMETRY).alias("source"),
        sql.col("reached.at_ms").alias("begin_ms"),
        sql.col("begin_ms").alias("end_ms"),
        (sql.col("begin_ms") - sql.col("reached.at_ms")).alias("unavailable_ms"),
        sql.col("reached.error_ms").alias("error_ms"),
    )


def rebalances_of_rounds(
    led: DataFrame, spans: DataFrame, events: DataFrame, outages: DataFrame
) -> DataFrame:
    """Return the table `rebalances`, with the source "telemetry".

    Args:
        led: from `led_rebalances`.
        spans: from `work_spans.work_spans`.
        events: the table.
        outages: from `outages_of_work`.
    """
    rows = led.groupBy(*_REBALANCE).agg(
        sql.max("generation").alias("last_generation"),
        sql.count(sql.lit(1)).cast("int").alias("rounds"),
        sql.min("at_ms").alias("led_ms"),
        sql.max("at_ms").alias("end_led_ms"),
        sql.min_by("members_before", "generation").alias("before"),
        sql.min_by("members", "generation").alias("first"),
        sql.max_by("members", "generation").alias("after"),
    )
    rows = rows.join(_begins(led, events), list(_REBALANCE), "left")
    rows = rows.join(_ends(led, events), list(_REBALANCE), "left")
    rows = rows.join(_moves(spans), list(_REBALANCE), "left")
    lost = outages.groupBy(*_REBALANCE).agg(
        (sql.sum("unavailable_ms") / _MS_PER_S).alias("sum_s"),
        (sql.sum("error_ms") / _MS_PER_S).alias("error_s"),
    )
    return _described(rows.join(lost, list(_REBALANCE), "left"))


def _begins(led: DataFrame, events: DataFrame) -> DataFrame:
    """Return when the first member of each rebalance began to join.

    A member that began to join and is not in the round departed before. A new member has no member
    id when it begins.
    """
    state = sql.from_json("record", "before string, after string").alias("state")
    moved = events.where(sql.col("kind") == "state_changed")
    left = moved.select("group", "member", "at_ms", state).where("state.after = 'joining'")
    backwards = (-sql.col("at_ms")).alias("at_ms")
    columns = ["generation", "members", "life", "first_generation"]
    # In reverse order, the next round after a moment is the last one before it.
    moments = left.select("group", "member", backwards)
    ahead = led.select("group", backwards, *columns)
    found = with_last(moments, ahead, keys=["group"], columns=columns)
    first = found.where(sql.col("generation") == sql.col("first_generation"))
    first = first.where(sql.expr("member = '' OR array_contains(members, member)"))
    return first.groupBy(*_REBALANCE).agg((-sql.max("at_ms")).alias("left_ms"))


def _ends(led: DataFrame, events: DataFrame) -> DataFrame:
    """Return when the last member of each round received its assignment.

    A static member that returns within its session receives its assignment again, long after the
    rebalance: in the same generation, under another member id.
    """
    got = events.where(sql.col("kind") == "assignment_received")
    got = got.select("group", "generation", "member", sql.col("at_ms").alias("got_ms"))
    rows = led.join(got, ["group", "generation"]).where("array_contains(members, member)")
    return rows.groupBy(*_REBALANCE).agg(sql.max("got_ms").alias("got_ms"))


def _moves(spans: DataFrame) -> DataFrame:
    window = Window.partitionBy(*_PARTITION, "life").orderBy("begin_ms", "process")
    before = spans.withColumn("before", sql.lag("process").over(window))
    moved = before.where(sql.col("before") != sql.col("process"))
    counts = moved.groupBy(*_REBALANCE, "topic", "partition").agg(
        sql.count(sql.lit(1)).alias("moves")
    )
    return counts.groupBy(*_REBALANCE).agg(
        sql.count(sql.lit(1)).cast("int").alias("moved"),
        sql.count_if(sql.col("moves") > 1).cast("int").alias("moved_twice"),
    )


def _described(rows: DataFrame) -> DataFrame:
    nobody = sql.array().cast("array<string>")
    before, first = (sql.coalesce(name, nobody) for name in ("before", "first"))
    after = sql.col("after")
    joined = sql.size(sql.array_except(first, before)) > 0
    left = sql.size(sql.array_except(before, first)) > 0
    begin_ms = sql.coalesce("left_ms", "led_ms")
    end_ms = sql.greatest("end_led_ms", sql.coalesce("got_ms", "end_led_ms"))
    zero = sql.lit(0)
    return rows.select(
        *("group", "first_generation", "last_generation", "rounds"),
        sql.lit(TELEMETRY).alias("source"),
        sql.lit(None).cast("int").alias("missing"),
        sql.when(sql.size(before) == 0, "created")
        .when(joined & left, "exchange")
        .when(joined, "join")
        .when(left, "leave")
        .otherwise("rejoin")
        .alias("trigger"),
        begin_ms.alias("begin_earliest_ms"),
        begin_ms.alias("begin_ms"),
        end_ms.alias("end_ms"),
        (end_ms - begin_ms).alias("duration_ms"),
        sql.size(before).alias("members_before"),
        sql.size(after).alias("members_after"),
        sql.size(sql.array_except(after, before)).alias("joined"),
        sql.size(sql.array_except(before, after)).alias("left"),
        sql.lit(None).cast("int").alias("partitions"),
        sql.coalesce("moved", zero).alias("moved"),
        sql.coalesce("moved_twice", zero).alias("moved_twice"),
        sql.coalesce("sum_s", sql.lit(0.0)).alias("unavailable_partition_s"),
        sql.coalesce("error_s", sql.lit(0.0)).alias("unavailable_error_s"),
        zero.alias("unobserved"),
    ).select(*TABLES["rebalances"].schema.names)
