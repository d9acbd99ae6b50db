"""Times without work on a partition, from gaps between commits: the table `outages`.

An owner commits at its usual interval, the median of the partition's gaps. At the end of a round,
the new owner has not yet committed in the previous generation, and the old owner cannot commit any
longer. So if the work stopped, it stopped within the gap between commits that contains the end of
the round. The estimate is the gap less one usual interval. Its error is at most one usual
interval, as long as records arrive continuously.

A gap counts if the partition changed its owner or had no owner, or if the gap is more than twice
the usual interval. The second case shows groups that stop all partitions for a rebalance and
reassign them to the same owners.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as sql

from coopgroup.pipeline.asof import with_last, with_next
from coopgroup.pipeline.rebalances import HISTORY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["outages_of", "usual_intervals"]

_PARTITION: Final = ("group", "topic", "partition")
_TELLING: Final = 2  # in usual intervals


def usual_intervals(commits: DataFrame) -> DataFrame:
    """Return the median time between commits: (group, topic, partition, usual_ms)."""
    window = Window.partitionBy(*_PARTITION).orderBy("at_ms")
    gaps = commits.where(~sql.col("is_tombstone")).select(
        *_PARTITION, (sql.col("at_ms") - sql.lag("at_ms").over(window)).alias("gap_ms")
    )
    usual_ms = sql.percentile("gap_ms", 0.5).cast("long").alias("usual_ms")
    return gaps.where(sql.col("gap_ms") > 0).groupBy(*_PARTITION).agg(usual_ms)


def outages_of(changes: DataFrame, commits: DataFrame) -> DataFrame:
    """Return the table, and rows for gaps that are not visible (`is_observed` is false).

    Args:
        changes: from `rebalances.owner_changes`.
        commits: the table.
    """
    work = commits.where(~sql.col("is_tombstone")).select(*_PARTITION, "at_ms")
    said = work.withColumn("said_ms", sql.col("at_ms"))
    moments = changes.select(
        *(*_PARTITION, "at_ms", "first_generation"),
        (sql.col("is_move") | sql.col("is_resumed")).alias("is_changed"),
    )
    begun = with_last(moments, said, keys=_PARTITION, columns=["said_ms"])
    begun = begun.withColumnRenamed("said_ms", "begin_ms")
    gaps = with_next(begun, said, keys=_PARTITION, columns=["said_ms"])
    gaps = gaps.withColumnRenamed("said_ms", "end_ms")
    gaps = gaps.join(usual_intervals(commits), list(_PARTITION), "left")
    is_observed = sql.col("usual_ms").isNotNull() & sql.col("begin_ms").isNotNull()
    is_observed &= sql.col("end_ms").isNotNull()
    gap_ms = sql.col("end_ms") - sql.col("begin_ms")
    rows = gaps.withColumn("is_observed", is_observed).where(
        sql.col("is_changed") | (sql.col("is_observed") & (gap_ms > _TELLING * sql.col("usual_ms")))
    )
    # Two rounds within one gap are one outage, of the first round. Rows without a gap stay
    # separate.
    unseen = sql.when(~sql.col("is_observed"), sql.col("first_generation")).alias("unseen")
    gap = (*_PARTITION, "begin_ms", "end_ms", "is_observed", "usual_ms")
    once = rows.groupBy(*gap, unseen).agg(sql.min("first_generation").alias("first_generation"))
    zero = sql.lit(0).cast("long")
    return once.select(
        *(*_PARTITION, "first_generation", "begin_ms", "end_ms", "is_observed"),
        sql.lit(HISTORY).alias("source"),
        sql.greatest(gap_ms - sql.col("usual_ms"), zero).alias("unavailable_ms"),
        sql.col("usual_ms").alias("error_ms"),
    )
