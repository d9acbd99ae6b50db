"""Times without work on a partition: the table `outages`.

From telemetry, an outage lasts from the end of all work on the partition to the next begin of work
(see `work_spans`). The rest of this page is about the history, which only has commits.

An owner commits at its usual interval, the median of the partition's gaps. At the end of a round,
the new owner has not yet committed in the previous generation, and the old owner cannot commit any
longer. So if the work stopped, it stopped within the gap between commits that contains the end of
the round. The estimate is the gap less one usual interval.

A gap counts if the partition changed its owner or had no owner, or if the gap is more than twice
the usual interval. The second case shows groups that stop all partitions for a rebalance and
reassign them to the same owners.

A partition without records is not committed either, and its gap looks like an outage. Three rules
keep such gaps apart, and `_bounded` and `_judged` apply them:

- If `lag` has a moment within the gap at which no record waited, the outage begins there.
- A group waits for a silent member for at most its session time-out plus the rebalance time-out.
  A longer gap has another reason, and is not observed.
- The error is one usual interval only if records arrived all the time: the owner has caught up
  with them after the gap. Otherwise the outage may have any length up to the gap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as sql

from coopgroup.pipeline.asof import with_last, with_next
from coopgroup.pipeline.episodes.rebalances import HISTORY, TELEMETRY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["commit_gaps", "outages_of", "outages_of_work", "patience_of", "usual_intervals"]

_PARTITION: Final = ("group", "topic", "partition")
_TELLING: Final = 2  # in usual intervals
_CAUGHT_UP: Final = 0.5  # part of a gap's usual progress that was made good after it
_PATIENCE_MS: Final = 345_000  # session and rebalance time-out of Kafka's clients
_FOREVER_MS: Final = 2**62


def patience_of(present: DataFrame) -> DataFrame:
    """Return how long each group waits for a silent member: (group, patience_ms).

    Args:
        present: from `processes.members_of`.
    """
    longest_ms = sql.max("session_timeout_ms") + sql.max("rebalance_timeout_ms")
    known_ms = sql.coalesce(longest_ms, sql.lit(_PATIENCE_MS)).cast("long")
    return present.groupBy("group").agg(known_ms.alias("patience_ms"))


def commit_gaps(commits: DataFrame) -> DataFrame:
    """Return the gap after each commit: (group, topic, partition, at_ms, begin_ms, end_ms, ...).

    `committed` and `end_committed` are the offsets at both ends. The last commit of a partition has
    no end. Of commits at the same time, the last one counts.

    Args:
        commits: the table.
    """
    work = commits.where(~sql.col("is_tombstone"))
    once = work.groupBy(*_PARTITION, "at_ms").agg(
        sql.max_by("committed", "source_offset").alias("committed")
    )
    window = Window.partitionBy(*_PARTITION).orderBy("at_ms")
    return once.select(
        *(*_PARTITION, "at_ms", sql.col("at_ms").alias("begin_ms")),
        sql.lead("at_ms").over(window).alias("end_ms"),
        "committed",
        sql.lead("committed").over(window).alias("end_committed"),
    )


def usual_intervals(gaps: DataFrame) -> DataFrame:
    """Return medians of each partition: (group, topic, partition, usual_ms, usual_records).

    Args:
        gaps: from `commit_gaps`.
    """
    ms = sql.col("end_ms") - sql.col("begin_ms")
    records = sql.col("end_committed") - sql.col("committed")
    return gaps.groupBy(*_PARTITION).agg(
        sql.percentile(ms, 0.5).cast("long").alias("usual_ms"),
        sql.percentile(records, 0.5).alias("usual_records"),
    )


def outages_of(
    changes: DataFrame, gaps: DataFrame, lag: DataFrame, patience: DataFrame
) -> DataFrame:
    """Return the table, and rows for gaps that are not visible (`is_observed` is false).

    Args:
        changes: from `rebalances.owner_changes`.
        gaps: from `commit_gaps`.
        lag: the table; may be empty.
        patience: from `patience_of`.
    """
    # Before its first owner, a partition has no outage.
    moments = changes.where(sql.col("lost_ms").isNotNull()).select(
        *(*_PARTITION, "at_ms", "lost_ms", "first_state", "first_generation"),
        (sql.col("is_move") | sql.col("is_resumed")).alias("is_changed"),
    )
    ends = ["begin_ms", "end_ms", "committed", "end_committed"]
    found = with_last(moments, gaps, keys=_PARTITION, columns=ends)
    found = found.join(usual_intervals(gaps), list(_PARTITION), "left")
    is_visible = sql.col("usual_ms").isNotNull() & sql.col("end_ms").isNotNull()
    gap_ms = sql.col("end_ms") - sql.col("begin_ms")
    rows = found.withColumn("is_visible", is_visible).where(
        sql.col("is_changed") | (is_visible & (gap_ms > _TELLING * sql.col("usual_ms")))
    )
    # Two rounds within one gap are one outage, of the first round. Rows without a gap stay
    # separate.
    unseen = sql.when(~sql.col("is_visible"), sql.col("first_state")).alias("unseen")
    gap = (*_PARTITION, *ends, "is_visible", "usual_ms", "usual_records")
    once = rows.groupBy(*gap, unseen).agg(
        sql.min("first_state").alias("first_state"),
        sql.min_by("first_generation", "first_state").alias("first_generation"),
        sql.min("lost_ms").alias("lost_ms"),
        sql.max("at_ms").alias("last_ms"),
    )
    return _judged(_bounded(once, lag), gaps, patience)


def _bounded(rows: DataFrame, lag: DataFrame) -> DataFrame:
    """Add the last moment within a gap at which no record waited, and the next moment after it.

    Returns:
        `rows` with `idle_ms` and `waited_ms`; null without such a moment.
    """
    moments = lag.select(*_PARTITION, "at_ms", "lag", sql.col("at_ms").alias("said_ms"))
    last = rows.withColumn("at_ms", sql.coalesce("end_ms", "last_ms") - 1)
    idle = moments.where(sql.col("lag") == 0).withColumnRenamed("said_ms", "idle_ms")
    found = with_last(last, idle, keys=_PARTITION, columns=["idle_ms"])
    within = sql.col("idle_ms") >= sql.col("begin_ms")
    found = found.withColumn("idle_ms", sql.when(within, sql.col("idle_ms")))
    found = found.withColumn("at_ms", sql.coalesce("idle_ms", "begin_ms", "last_ms"))
    waited = moments.withColumnRenamed("said_ms", "waited_ms")
    return with_next(found, waited, keys=_PARTITION, columns=["waited_ms"]).drop("at_ms")


def _judged(rows: DataFrame, gaps: DataFrame, patience: DataFrame) -> DataFrame:
    """Decide which gaps are outages, with estimate and error."""
    gap_ms = sql.col("end_ms") - sql.col("begin_ms")
    # If the owner has caught up, it made the progress of twice the gap since the gap began.
    later = rows.withColumn(
        "at_ms", sql.coalesce("end_ms", "last_ms") + sql.coalesce(gap_ms, sql.lit(0))
    )
    reached = gaps.select(
        *(*_PARTITION, "at_ms", sql.col("at_ms").alias("reached_ms")),
        sql.col("committed").alias("reached"),
    )
    known = with_last(later, reached, keys=_PARTITION, columns=["reached", "reached_ms"])
    known = known.join(patience, "group", "left")
    patience_ms = sql.coalesce("patience_ms", sql.lit(_PATIENCE_MS)) + sql.col("usual_ms")
    begin_ms = sql.coalesce("idle_ms", "begin_ms")
    is_early = begin_ms < sql.col("lost_ms") - patience_ms
    # If records waited during the gap, a late begin of work is the new owner's.
    has_waited = sql.coalesce(sql.col("waited_ms") < sql.col("end_ms"), sql.lit(0).cast("boolean"))
    is_late = ~has_waited & (sql.col("end_ms") > sql.col("last_ms") + patience_ms)
    is_observed = sql.col("is_visible") & ~is_early & ~is_late
    progress = sql.col("usual_records") / sql.col("usual_ms")
    after_ms = sql.greatest(sql.col("reached_ms") - sql.col("end_ms"), sql.lit(0))
    made = sql.col("reached") - sql.col("committed")
    is_steady = made >= progress * (after_ms + _CAUGHT_UP * gap_ms)
    is_steady &= sql.col("usual_records") > 0
    zero = sql.lit(0).cast("long")
    unavailable_ms = sql.greatest(sql.col("end_ms") - begin_ms - sql.col("usual_ms"), zero)
    unsure_ms = sql.least("waited_ms", "end_ms") - sql.col("idle_ms")
    error_ms = (
        sql.when(sql.col("idle_ms").isNotNull(), sql.col("usual_ms") + unsure_ms)
        .when(is_steady, sql.col("usual_ms"))
        .otherwise(sql.greatest(sql.col("usual_ms"), unavailable_ms))
    )
    return known.select(
        *(*_PARTITION, "first_state", "first_generation"),
        begin_ms.alias("begin_ms"),
        "end_ms",
        sql.coalesce(is_observed, sql.lit(0).cast("boolean")).alias("is_observed"),
        sql.lit(HISTORY).alias("source"),
        unavailable_ms.alias("unavailable_ms"),
        error_ms.alias("error_ms"),
    )


def outages_of_work(spans: DataFrame) -> DataFrame:
    """Return the times between the end of all work on a partition and the next start, in one life.

    Args:
        spans: from `work_spans.work_spans`.

    Returns:
        The columns of the table `outages`, and `life`.
    """
    forever = sql.lit(_FOREVER_MS)
    window = Window.partitionBy(*_PARTITION, "life").orderBy("begin_ms", "end_ms")
    before = window.rowsBetween(Window.unboundedPreceding, -1)
    reached = sql.struct(sql.coalesce("end_ms", forever).alias("at_ms"), "error_ms")
    gaps = spans.withColumn("reached", sql.max(reached).over(before))
    gaps = gaps.where(sql.col("begin_ms") > sql.col("reached.at_ms"))
    return gaps.select(
        *("group", "life", "first_generation", "topic", "partition"),
        sql.lit(TELEMETRY).alias("source"),
        sql.col("reached.at_ms").alias("begin_ms"),
        sql.col("begin_ms").alias("end_ms"),
        (sql.col("begin_ms") - sql.col("reached.at_ms")).alias("unavailable_ms"),
        sql.col("reached.error_ms").alias("error_ms"),
    )
