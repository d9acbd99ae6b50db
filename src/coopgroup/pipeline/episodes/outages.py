"""Times without work on a partition: the table `outages`.

From telemetry, an outage lasts from the end of all work on the partition to the next begin of work
(see `work_spans`). The rest of this page is about the history, which only has commits.

An owner commits at its usual interval, the median of the partition's gaps. At the end of a round,
the new owner has not yet committed in the previous generation, and the old owner cannot commit any
longer. So if the work stopped, it stopped within the gap between commits that contains the end of
the round. The estimate is the gap less one usual interval.

A gap counts if the partition changed its owner or had no owner, or if the group's protocol stops
all partitions for a rebalance. A gap of more than twice the usual interval counts, too: members may
stop partitions although their protocol does not demand it.

A gap between commits to two topics of one name, with different ids, is no gap.

A partition without records is not committed either, and its gap looks like an outage. Three rules
keep such gaps apart, and `_bounded` and `_judged` apply them:

- If `lag` has a moment within the gap at which no record waited, the outage begins there.
- A group waits for a silent member for at most its session time-out plus the rebalance time-out.
  A longer gap has another reason, and is not observed.
- The error is one usual interval only if records arrived all the time: the owner has caught up
  after the gap. Few records prove nothing (`_TELLING_RECORDS`). Otherwise the outage may have any
  length up to the gap.

If two of these rules bound an outage, the tighter one counts. A group that died has an open outage:
the time from its last commits until the end of the history.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as sql

from coopgroup.pipeline.asof import with_last, with_next
from coopgroup.pipeline.episodes.rebalances import HISTORY, TELEMETRY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["open_outages_of", "outages_of", "outages_of_work", "patience_of"]

_PARTITION: Final = ("group", "topic", "partition")
_TELLING: Final = 2  # in usual intervals
_CAUGHT_UP: Final = 0.5  # part of a gap's usual progress that was made good after it
_TELLING_RECORDS: Final = 10  # fewer records in a gap are chance
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


def outages_of(
    changes: DataFrame, commits: DataFrame, lag: DataFrame, patience: DataFrame
) -> DataFrame:
    """Return the table, and rows for gaps that are not visible (`is_observed` is false).

    Args:
        changes: from `rebalances.owner_changes`.
        commits: from `processes.worked_commits`.
        lag: the table; may be empty.
        patience: from `patience_of`.
    """
    # Before its first owner, a partition has no outage.
    moments = changes.where(sql.col("lost_ms").isNotNull()).select(
        *(*_PARTITION, "at_ms", "lost_ms", "first_state", "first_generation"),
        (sql.col("is_move") | sql.col("is_resumed") | sql.col("is_stopped")).alias("is_changed"),
    )
    is_visible = sql.col("usual_ms").isNotNull() & sql.col("end_ms").isNotNull()
    gap_ms = sql.col("end_ms") - sql.col("begin_ms")
    rows = _with_gaps(moments, commits).withColumn("is_visible", is_visible)
    rows = rows.where(
        sql.col("is_changed") | (is_visible & (gap_ms > _TELLING * sql.col("usual_ms")))
    )
    # Two rounds within one gap are one outage, of the first round. Rows without a gap stay
    # separate.
    unseen = sql.when(~sql.col("is_visible"), sql.col("first_state")).alias("unseen")
    once = rows.groupBy(*_PARTITION, *_OF_GAPS, "is_visible", unseen).agg(
        sql.min("first_state").alias("first_state"),
        sql.min_by("first_generation", "first_state").alias("first_generation"),
        sql.min("lost_ms").alias("lost_ms"),
        sql.max("at_ms").alias("last_ms"),
    )
    return _judged(_bounded(once, lag), patience)


_OF_GAPS: Final = (
    *("begin_ms", "end_ms", "committed", "end_committed"),
    *("usual_ms", "usual_records", "reached_ms", "reached"),
)


def _with_gaps(moments: DataFrame, commits: DataFrame) -> DataFrame:
    """Add the gap between commits that contains each moment.

    Moments and commits share one frame. So one shuffle brings the rows of a partition together, and
    all that follows only sorts them.

    Returns:
        `moments` with `_OF_GAPS`: times and offsets of the commits around them, the medians of the
        partition's gaps, and the last commit before another gap's length after the gap. Values are
        null if missing.
    """
    own = [name for name in moments.columns if name not in {*_PARTITION, "at_ms"}]
    asked = moments.select(
        *(*_PARTITION, "at_ms", sql.struct(*own).alias("moment"), sql.lit(1).alias("is_moment"))
    )
    work = commits.select(
        *(*_PARTITION, "at_ms", "committed", "topic_id", "source_offset"),
        sql.lit(0).alias("is_moment"),
    )
    rows = work.unionByName(asked, allowMissingColumns=True)
    is_commit = sql.col("is_moment") == 0
    alike = Window.partitionBy(*_PARTITION, "is_moment").orderBy("at_ms", "source_offset")
    # Of commits at the same time, the last one counts.
    is_repeated = is_commit & (sql.lead("at_ms").over(alike) == sql.col("at_ms"))
    rows = rows.withColumn("is_repeated", is_repeated)
    rows = rows.where(~sql.coalesce("is_repeated", sql.lit(0).cast("boolean")))
    next_ms, next_offset = (sql.lead(name).over(alike) for name in ("at_ms", "committed"))
    # Between two topics of one name there was no partition.
    is_other = sql.lead("topic_id").over(alike) != sql.col("topic_id")
    is_gap = ~sql.coalesce(is_other, sql.lit(0).cast("boolean"))
    ends = {"end_ms": next_ms, "end_committed": next_offset}
    rows = rows.withColumns({name: sql.when(is_gap, one) for name, one in ends.items()})
    gap = sql.struct(sql.col("at_ms").alias("begin_ms"), "end_ms", "committed", "end_committed")
    partition = Window.partitionBy(*_PARTITION)
    so_far = (Window.unboundedPreceding, Window.currentRow)
    in_time = partition.orderBy("at_ms", "is_moment").rowsBetween(*so_far)
    ms = sql.when(is_commit, sql.col("end_ms") - sql.col("at_ms"))
    records = sql.when(is_commit, sql.col("end_committed") - sql.col("committed"))
    rows = rows.withColumns(
        {
            "gap": sql.last(sql.when(is_commit, gap), ignorenulls=True).over(in_time),
            "usual_ms": sql.percentile(ms, 0.5).over(partition).cast("long"),
            "usual_records": sql.percentile(records, 0.5).over(partition),
        }
    )
    after_ms = 2 * sql.col("gap.end_ms") - sql.col("gap.begin_ms")
    rows = rows.withColumn("time_ms", sql.when(is_commit, sql.col("at_ms")).otherwise(after_ms))
    later = partition.orderBy("time_ms", "is_moment").rowsBetween(*so_far)
    said = sql.struct("at_ms", "committed")
    reached = sql.last(sql.when(is_commit, said), ignorenulls=True).over(later)
    return (
        rows.withColumn("reached", reached)
        .where(~is_commit)
        .select(
            *(*_PARTITION, "at_ms", "moment.*", "gap.*", "usual_ms", "usual_records"),
            sql.col("reached.at_ms").alias("reached_ms"),
            sql.col("reached.committed").alias("reached"),
        )
    )


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


def _judged(rows: DataFrame, patience: DataFrame) -> DataFrame:
    """Decide which gaps are outages, with estimate and error."""
    gap_ms = sql.col("end_ms") - sql.col("begin_ms")
    known = rows.join(patience, "group", "left")
    patience_ms = sql.coalesce("patience_ms", sql.lit(_PATIENCE_MS)) + sql.col("usual_ms")
    progress = sql.col("usual_records") / sql.col("usual_ms")
    after_ms = sql.greatest(sql.col("reached_ms") - sql.col("end_ms"), sql.lit(0))
    made = sql.col("reached") - sql.col("committed")
    # If the owner has caught up, it made the progress of twice the gap since the gap began.
    is_steady = made >= progress * (after_ms + _CAUGHT_UP * gap_ms)
    is_steady &= progress * _CAUGHT_UP * gap_ms >= _TELLING_RECORDS
    unsure_ms = sql.least("waited_ms", "end_ms") - sql.col("idle_ms")
    # Both proofs hold if no record waited only because the owner had just committed.
    idle_for_ms = sql.col("idle_ms") - sql.col("begin_ms")
    is_steady &= sql.col("idle_ms").isNull() | (idle_for_ms <= 2 * sql.col("usual_ms"))
    is_steady = sql.coalesce(is_steady, sql.lit(0).cast("boolean"))
    begin_ms = sql.when(is_steady, sql.col("begin_ms")).otherwise(
        sql.coalesce("idle_ms", "begin_ms")
    )
    is_early = begin_ms < sql.col("lost_ms") - patience_ms
    # If records waited during the gap, a late begin of work is the new owner's.
    has_waited = sql.coalesce(sql.col("waited_ms") < sql.col("end_ms"), sql.lit(0).cast("boolean"))
    is_late = ~has_waited & (sql.col("end_ms") > sql.col("last_ms") + patience_ms)
    is_observed = sql.col("is_visible") & ~is_early & ~is_late
    zero = sql.lit(0).cast("long")
    unavailable_ms = sql.greatest(sql.col("end_ms") - begin_ms - sql.col("usual_ms"), zero)
    error_ms = (
        sql.when(is_steady, sql.col("usual_ms"))
        .when(sql.col("idle_ms").isNotNull(), sql.col("usual_ms") + unsure_ms)
        .otherwise(sql.greatest(sql.col("usual_ms"), unavailable_ms))
    )
    return known.select(
        *(*_PARTITION, "first_state", "first_generation"),
        (sql.col("end_ms") - unavailable_ms).alias("begin_ms"),
        "end_ms",
        sql.coalesce(is_observed, sql.lit(0).cast("boolean")).alias("is_observed"),
        sql.lit(HISTORY).alias("source"),
        unavailable_ms.alias("unavailable_ms"),
        error_ms.alias("error_ms"),
    )


def open_outages_of(
    numbered: DataFrame,
    holders: DataFrame,
    commits: DataFrame,
    lag: DataFrame,
    as_of_ms: int,
) -> DataFrame:
    """Return the outages of groups whose last member is gone, without an end.

    If `lag` shows that no record waits, there is no outage.

    Args:
        numbered: from `rebalances.numbered_steps`.
        holders: from `processes.holders_of`.
        commits: from `processes.worked_commits`.
        lag: the table; may be empty.
        as_of_ms: end of the history.

    Returns:
        The columns of `outages_of`.
    """
    newest = numbered.groupBy("group").agg(sql.max("state").alias("state"))
    died = numbered.join(newest, ["group", "state"])
    died = died.where((sql.col("member_count") == 0) & sql.col("ended_ms").isNull())
    died = died.select(
        *("group", "first_state", "first_generation"), sql.col("previous_state").alias("state")
    )
    lost = died.join(holders.select("group", "state", "topic", "partition"), ["group", "state"])
    in_time = Window.partitionBy(*_PARTITION).orderBy("at_ms", "source_offset")
    work = commits.join(lost, list(_PARTITION), "left_semi")
    work = work.withColumn("ms", sql.lead("at_ms").over(in_time) - sql.col("at_ms"))
    last = work.groupBy(*_PARTITION).agg(
        sql.max("at_ms").alias("begin_ms"),
        sql.percentile(sql.when(sql.col("ms") > 0, sql.col("ms")), 0.5)
        .cast("long")
        .alias("usual_ms"),
    )
    lost = lost.join(last, list(_PARTITION), "left")
    since = lag.join(lost.select(*_PARTITION, "begin_ms"), list(_PARTITION))
    since = since.where(sql.col("at_ms") >= sql.col("begin_ms"))
    # After the last moment without waiting records, all moments have some.
    is_idle = sql.col("lag") == 0
    idle = since.groupBy(*_PARTITION).agg(
        sql.max(sql.when(is_idle, sql.col("at_ms"))).alias("idle_ms"),
        sql.max("at_ms").alias("newest_ms"),
    )
    first = since.join(idle, list(_PARTITION))
    first = first.where(sql.col("idle_ms").isNull() | (sql.col("at_ms") > sql.col("idle_ms")))
    waited = first.groupBy(*_PARTITION).agg(sql.min("at_ms").alias("waited_ms"))
    rows = lost.join(idle, list(_PARTITION), "left").join(waited, list(_PARTITION), "left")
    rows = rows.where(sql.col("idle_ms").isNull() | (sql.col("idle_ms") < sql.col("newest_ms")))
    begin_ms = sql.coalesce("idle_ms", "begin_ms")
    zero = sql.lit(0).cast("long")
    unavailable_ms = sql.greatest(sql.lit(as_of_ms) - begin_ms - sql.col("usual_ms"), zero)
    error_ms = sql.coalesce(sql.col("usual_ms") + sql.col("waited_ms") - begin_ms, unavailable_ms)
    return rows.select(
        *(*_PARTITION, "first_state", "first_generation"),
        (sql.lit(as_of_ms) - unavailable_ms).alias("begin_ms"),
        sql.lit(None).cast("long").alias("end_ms"),
        sql.col("usual_ms").isNotNull().alias("is_observed"),
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
