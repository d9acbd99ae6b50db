"""Look-ups in time without a range join: what held last before a moment, and what came next.

Theory of operation. A join on "the latest commit before" compares every moment with every commit of
its partition. Instead moments and facts are put into one frame, sorted by time within their keys,
and a window carries the last fact forward (or the next one back) to the moments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["with_last", "with_next"]

_FACT: Final = "_fact"
_IS_MOMENT: Final = "_is_moment"


def with_last(
    moments: DataFrame,
    facts: DataFrame,
    *,
    keys: Sequence[str],
    columns: Sequence[str],
    order: Sequence[str] = (),
) -> DataFrame:
    """Add what the last fact at or before each moment says; nulls where there is none.

    Args:
        moments: with the keys and `at_ms`.
        facts: with the keys, `at_ms`, the columns and those of the order.
        keys: of whom a fact is.
        columns: what to add, which moments must not have.
        order: columns that tell facts of the same time apart, the last one wins.
    """
    both = _together(moments, facts, keys, columns, order)
    # At the same time facts come first: what was committed then counts.
    window = Window.partitionBy(*keys).orderBy("at_ms", _IS_MOMENT, *(f"_{one}" for one in order))
    window = window.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    found = both.withColumn(_FACT, sql.last(_FACT, ignorenulls=True).over(window))
    return _moments(found, moments, columns)


def with_next(
    moments: DataFrame, facts: DataFrame, *, keys: Sequence[str], columns: Sequence[str]
) -> DataFrame:
    """Add what the first fact after each moment says; else as `with_last`."""
    both = _together(moments, facts, keys, columns, ())
    # Seen backwards it is the last one before. Spark looks at all that follows anew in each row,
    # but goes over what precedes once. Facts at the same time are not after the moment.
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
