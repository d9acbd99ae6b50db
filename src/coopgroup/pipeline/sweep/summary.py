"""Summary of a sweep: its rows, joined over seeds, as values for pages and tables."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from coopgroup.pipeline.sweep.run import AXES
from coopgroup.report.charts import Setting, Spread
from coopgroup.simulator.comparison import MEASURES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, Row

__all__ = ["Objection", "objections", "only", "settings_of"]

Objection = tuple[str, str]
"""The parameters of a cell, and its error."""

_ORDER: Final = "place"


def only(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return the rows of some cells, with a column for the order of the cells.

    Args:
        rows: rows of a table of sweeps.
        keys: keys of the cells.
    """
    places = list(enumerate(keys))
    wanted = rows.sparkSession.createDataFrame(places, f"{_ORDER} long, key string")
    return rows.join(wanted, "key")


def settings_of(rows: DataFrame) -> tuple[Setting, ...]:
    """Return each setting with medians and ranges over its seeds, in the order of the cells.

    A group that never converges takes infinitely long. If the median is infinite, the setting lacks
    the measure.

    Args:
        rows: from `only`.
    """
    never = F.when(F.col("error").isNull(), float("inf"))
    spreads = [
        F.struct(F.median(F.coalesce(name, never)), F.min(name), F.max(name)).alias(name)
        for name in MEASURES
    ]
    settings = rows.groupBy(*AXES).agg(
        F.count("*").alias("seeds"),
        F.count("error").alias("failed"),
        F.coalesce(F.sum("violations"), F.lit(0)).alias("violations"),
        *spreads,
        F.min(_ORDER).alias(_ORDER),
    )
    return tuple(map(_setting, settings.orderBy(_ORDER).collect()))


def _setting(row: Row) -> Setting:
    spreads = {}
    for name in MEASURES:
        median, low, high = row[name]
        if median is not None and isfinite(median):
            spreads[name] = Spread(median=float(median), low=float(low), high=float(high))
    return Setting(
        parameters={name: row[name] for name in AXES},
        seeds=row.seeds,
        failed=row.failed,
        violations=row.violations,
        spreads=spreads,
    )


def objections(rows: DataFrame, most: int) -> tuple[int, tuple[Objection, ...]]:
    """Return the number of cells that failed or broke an invariant, and the first of them.

    Args:
        rows: from `only`.
        most: maximum number of cells to describe.
    """
    bad = rows.where(F.col("error").isNotNull() | (F.col("violations") > 0))
    words = F.coalesce("error", F.concat(F.lit("an invariant was broken: "), "violation"))
    first = bad.orderBy(_ORDER).limit(most).select("parameters", words.alias("words"))
    return bad.count(), tuple((row.parameters, row.words) for row in first.collect())
