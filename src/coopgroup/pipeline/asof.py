"""Look-ups in time without a range join: the last fact before a moment, and the next one.

Theory of operation. A join on "the latest commit before" compares every moment with every commit of
its partition. Instead, moments and facts share one frame, sorted by time within their keys. A
window carries the last fact forward (or the next one back) to the moments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["in_log_order", "with_last", "with_next"]

_FACT: Final = "_fact"
_IS_MOMENT: Final = "_is_moment"
_EARLIER_MS: Final = "_earlier_ms"  # time of the moment right before, if that row is a moment


def in_log_order(commits: DataFrame) -> DataFrame:
    """Return commits whose times do not go back in the order of the log.

    A broker's clock may go back, or another broker takes over. The group coordinator keeps the last
    record of the log, whatever its time. So a record counts from the time of the newest record
    before it, if its own time is earlier.

    Args:
        commits: rows of the table `commits`, or some of its columns.
    """
    so_far = Window.partitionBy("group", "topic", "partition").orderBy("source_offset")
    so_far = so_far.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return commits.withColumn("at_ms", sql.max("at_ms").over(so_far))


def with_last(
    moments: DataFrame,
    facts: DataFrame,
    *,
    keys: Sequence[str],
    columns: Sequence[str],
    order: Sequence[str] = (),
    is_once: bool = False,
) -> DataFrame:
    """Add the columns of the last fact at or before each moment; nulls without a fact.

    Args:
        moments: with the keys and `at_ms`.
        facts: with the keys, `at_ms`, the columns and the columns of the order.
        keys: columns that identify the subject of a fact.
        columns: columns to add, which moments must not have.
        order: columns that order facts of the same time; the last fact wins.
        is_once: whether to keep one of several moments with the same keys and time. The rows are
            sorted already, so this needs no further shuffle.
    """
    both = _together(moments, facts, keys, columns, order)
    # At equal times facts come first, so that a commit at the moment counts.
    window = Window.partitionBy(*keys).orderBy("at_ms", _IS_MOMENT, *(f"_{one}" for one in order))
    before = window.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    moment_ms = sql.when(sql.col(_IS_MOMENT) == 1, sql.col("at_ms"))
    found = both.withColumns(
        {
            _FACT: sql.last(_FACT, ignorenulls=True).over(before),
            **({_EARLIER_MS: sql.lag(moment_ms).over(window)} if is_once else {}),
        }
    )
    if is_once:
        found = found.where(~sql.col(_EARLIER_MS).eqNullSafe(sql.col("at_ms")))
    return _moments(found, moments, columns)


def with_next(
    moments: DataFrame, facts: DataFrame, *, keys: Sequence[str], columns: Sequence[str]
) -> DataFrame:
    """Add the columns of the first fact after each moment; else as `with_last`."""
    both = _together(moments, facts, keys, columns, ())
    # In reverse order, the next fact is the last one before the moment. Spark reads all following
    # rows again for each row, but reads preceding rows once. Facts at the same time are not after
    # the moment.
    window = Window.partitionBy(*keys).orderBy(sql.desc("at_ms"), sql.desc(_IS_MOMENT))
    window = window.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    found = both.withColumn(_FACT, sql.last(_FACT, ignorenulls=True).over(window))
    return _moments(found, moments, columns)


def _together(
    moments: DataFrame,
    facts: DataFrame,
    keys: Sequence[str],
    columns: Sequence[str],
    order: Sequence[str],
) -> DataFrame:
    said = facts.select(
        *keys,
        "at_ms",
        *(sql.col(one).alias(f"_{one}") for one in order),
        sql.struct(*columns).alias(_FACT),
        sql.lit(0).alias(_IS_MOMENT),
    )
    asked = moments.withColumn(_IS_MOMENT, sql.lit(1))
    return asked.unionByName(said, allowMissingColumns=True)


def _moments(found: DataFrame, moments: DataFrame, columns: Sequence[str]) -> DataFrame:
    return found.where(sql.col(_IS_MOMENT) == 1).select(
        *moments.columns, *(sql.col(f"{_FACT}.{name}").alias(name) for name in columns)
    )
