"""Rebalances and outages of our own groups, from their telemetry: nothing here is guessed.

Leaders say what they decided and whether more is to come, so rounds belong together until a round
announces none; members say when they left the stable state and when they had their assignment;
applications say when they began and ceased to work. What nobody writes is the death of a real
process: its work ends with the last thing that it wrote, when somebody else takes over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as sql

from coopgroup.pipeline.asof import with_last
from coopgroup.pipeline.schemas import TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["TELEMETRY", "led_rebalances", "outages_of_work", "rebalances_of_rounds", "work_spans"]

TELEMETRY: Final = "telemetry"
_MS_PER_S: Final = 1_000
_PARTITION: Final = ("group", "topic", "partition")
_REBALANCE: Final = ("group", "first_generation")
_ENDS_OF_PROCESSES: Final = ("process_ended", "process_started")


def led_rebalances(rounds: DataFrame) -> DataFrame:
    """Add `first_generation` of the rebalance that a round belongs to, and the members before it.

    Args:
        rounds: the table.
    """
    # A round that two leaders led (the group coordinator changed) is one: the later one counts.
    once = rounds.groupBy("group", "generation").agg(
        *(
            sql.max_by(name, "at_ms").alias(name)
            for name in ("members", "follow_up", "scheduled_rebalance_timeout_ms")
        ),
        sql.max("at_ms").alias("at_ms"),
    )
    window = Window.partitionBy("group").orderBy("generation")
    goes_on = sql.col("follow_up") | (sql.col("scheduled_rebalance_timeout_ms") > 0)
    waited = sql.lag(goes_on).over(window)
    first = sql.when(~sql.coalesce(waited, sql.lit(0).cast("boolean")), sql.col("generation"))
    return once.select(
        *("group", "generation", "at_ms", "members"),
        sql.lag("members").over(window).alias("members_before"),
        sql.last(first, ignorenulls=True).over(window).alias("first_generation"),
    )


def work_spans(work: DataFrame, events: DataFrame) -> DataFrame:
    """Who worked on what and when: (group, topic, partition, process, begin_ms, end_ms).

    `end_ms` is null while the work goes on. A process is its name, or its member id where it has
    none.

    Args:
        work: the table.
        events: the table.
    """
    process = sql.coalesce(sql.nullif("client", sql.lit("")), "member").alias("process")
    steps = work.select(*_PARTITION, process, "at_ms", "is_start")
    lives = events.where(sql.col("kind").isin(*_ENDS_OF_PROCESSES))
    lives = lives.select("group", process, "at_ms").distinct()
    touched = steps.select(*_PARTITION, "process").distinct()
    ends = lives.join(touched, ["group", "process"]).select(
        *(*_PARTITION, "process", "at_ms"), sql.lit(0).cast("boolean").alias("is_start")
    )
    window = Window.partitionBy(*_PARTITION, "process").orderBy("at_ms", "is_start")
    following = sql.lead("at_ms").over(window)
    is_again = sql.coalesce(sql.lag("is_start").over(window), sql.lit(0).cast("boolean"))
    edges = steps.unionByName(ends).withColumn("is_again", is_again)
    # A second start in a row changes nothing.
    edges = edges.where(~(sql.col("is_start") & sql.col("is_again")))
    spans = edges.select(*_PARTITION, "process", "is_start", "at_ms", following.alias("end_ms"))
    return spans.where("is_start").select(
        *(*_PARTITION, "process"), sql.col("at_ms").alias("begin_ms"), "end_ms"
    )


def _ended(spans: DataFrame, events: DataFrame) -> DataFrame:
    """End work that nobody ended, where another process took over after its last words."""
    process = sql.coalesce(sql.nullif("client", sql.lit("")), "member").alias("process")
    words = events.groupBy("group", process).agg(sql.max("at_ms").alias("last_ms"))
    window = Window.partitionBy(*_PARTITION).orderBy("begin_ms", "process")
    next_ms = sql.lead("begin_ms").over(window)
    rows = spans.withColumn("next_ms", next_ms).join(words, ["group", "process"], "left")
    taken_over = sql.col("next_ms") > sql.col("last_ms")
    return rows.withColumn(
        "end_ms", sql.coalesce("end_ms", sql.when(taken_over, sql.col("last_ms")))
    ).drop("next_ms", "last_ms")


def outages_of_work(spans: DataFrame, events: DataFrame, led: DataFrame) -> DataFrame:
    """The table `outages`: times between the end of all work on a partition and the next begin.

    Args:
        spans: from `work_spans`.
        events: the table.
        led: from `led_rebalances`.
    """
    forever = sql.lit(2**62)
    window = Window.partitionBy(*_PARTITION).orderBy("begin_ms", "end_ms")
    before = window.rowsBetween(Window.unboundedPreceding, -1)
    reached = sql.max(sql.coalesce("end_ms", forever)).over(before)
    gaps = _ended(spans, events).withColumn("reached_ms", reached)
    gaps = gaps.where(sql.col("begin_ms") > sql.col("reached_ms"))
    rows = gaps.select(
        *_PARTITION,
        sql.col("reached_ms").alias("begin_ms"),
        sql.col("begin_ms").alias("end_ms"),
        sql.col("begin_ms").alias("at_ms"),
    )
    owned = with_last(rows, led, keys=["group"], columns=["first_generation"])
    return owned.select(
        sql.lit(TELEMETRY).alias("source"),
        *(*_PARTITION, "first_generation", "begin_ms", "end_ms"),
        (sql.col("end_ms") - sql.col("begin_ms")).alias("unavailable_ms"),
        sql.lit(0).cast("long").alias("error_ms"),
    ).select(*TABLES["outages"].schema.names)


def rebalances_of_rounds(
    led: DataFrame, spans: DataFrame, events: DataFrame, outages: DataFrame
) -> DataFrame:
    """The table `rebalances`, with the source "telemetry".

    Args:
        led: from `led_rebalances`.
        spans: from `work_spans`.
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
    window = Window.partitionBy("group").orderBy("first_generation")
    rows = rows.withColumn("previous_ms", sql.lag("end_led_ms").over(window))
    rows = rows.join(_begins(led, events), list(_REBALANCE), "left")
    rows = rows.join(_ends(led, events), list(_REBALANCE), "left")
    rows = rows.join(_moves(led, spans), list(_REBALANCE), "left")
    lost = outages.groupBy(*_REBALANCE).agg((sql.sum("unavailable_ms") / _MS_PER_S).alias("sum_s"))
    return _described(rows.join(lost, list(_REBALANCE), "left"))


def _begins(led: DataFrame, events: DataFrame) -> DataFrame:
    """When the first member began to join, on the way to each rebalance."""
    state = sql.from_json("record", "before string, after string").alias("state")
    moved = events.where(sql.col("kind") == "state_changed").select("group", "at_ms", state)
    left = moved.where(sql.col("state.after") == "joining")
    backwards = (-sql.col("at_ms")).alias("at_ms")
    ahead = led.select("group", backwards, "generation", "first_generation")
    # The next round after a moment is the last one before it, seen backwards.
    moments = left.select("group", backwards)
    found = with_last(moments, ahead, keys=["group"], columns=["generation", "first_generation"])
    first = found.where(sql.col("generation") == sql.col("first_generation"))
    return first.groupBy(*_REBALANCE).agg((-sql.max("at_ms")).alias("left_ms"))


def _ends(led: DataFrame, events: DataFrame) -> DataFrame:
    """When the last member of each round had its assignment.

    A static member that comes back within its session gets it again, in the same generation, when
    the rebalance is long over: under another member id.
    """
    got = events.where(sql.col("kind") == "assignment_received")
    got = got.select("group", "generation", "member", sql.col("at_ms").alias("got_ms"))
    rows = led.join(got, ["group", "generation"]).where(sql.expr("array_contains(members, member)"))
    return rows.groupBy(*_REBALANCE).agg(sql.max("got_ms").alias("got_ms"))


def _moves(led: DataFrame, spans: DataFrame) -> DataFrame:
    window = Window.partitionBy(*_PARTITION).orderBy("begin_ms", "process")
    moved = spans.withColumn("before", sql.lag("process").over(window))
    moved = moved.where(sql.col("before") != sql.col("process"))
    moments = moved.select(*_PARTITION, sql.col("begin_ms").alias("at_ms"))
    owned = with_last(moments, led, keys=["group"], columns=["first_generation"])
    counts = owned.groupBy(*_REBALANCE, "topic", "partition").agg(
        sql.count(sql.lit(1)).alias("moves")
    )
    return counts.groupBy(*_REBALANCE).agg(
        sql.count(sql.lit(1)).cast("int").alias("moved"),
        sql.count_if(sql.col("moves") > 1).cast("int").alias("moved_twice"),
        sql.count(sql.lit(1)).cast("int").alias("touched"),
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
        sql.lit(0.0).alias("unavailable_error_s"),
        zero.alias("unobserved"),
    ).select(*TABLES["rebalances"].schema.names)
