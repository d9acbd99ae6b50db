"""Summary of a sweep: rows of the table, joined over seeds, as values for pages and tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from coopgroup.pipeline.sweep.schema import AXES
from coopgroup.report.charts import Setting, Spread
from coopgroup.simulator.comparison import MEASURES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, Row

__all__ = ["Objection", "objections", "only", "settings_of", "summarised"]

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


def summarised(rows: DataFrame) -> DataFrame:
    """Return one row per setting: medians and ranges over its seeds, in the order of the cells.

    Args:
        rows: from `only`.

    Returns:
        The columns of `AXES`, `seeds`, `failed`, `violations`, and for each measure `..._median`,
        `..._low` and `..._high`, null if no seed has a value.
    """
    spreads = [
        column
        for name in MEASURES
        for column in (
            F.median(name).alias(f"{name}_median"),
            F.min(name).alias(f"{name}_low"),
            F.max(name).alias(f"{name}_high"),
        )
    ]
    return (
        rows.groupBy(*AXES)
        .agg(
            F.count("*").alias("seeds"),
            F.count("error").alias("failed"),
            F.coalesce(F.sum("violations"), F.lit(0)).alias("violations"),
            *spreads,
            F.min(_ORDER).alias(_ORDER),
        )
        .orderBy(_ORDER)
        .drop(_ORDER)
    )


def settings_of(rows: DataFrame) -> tuple[Setting, ...]:
    """Return the result of `summarised` as values; a sweep has few settings."""
    return tuple(_setting(row) for row in rows.collect())


def _setting(row: Row) -> Setting:
    known = row.asDict()
    spreads = {
        name: Spread(
            median=float(known[f"{name}_median"]),
            low=float(known[f"{name}_low"]),
            high=float(known[f"{name}_high"]),
        )
        for name in MEASURES
        if known[f"{name}_median"] is not None
    }
    return Setting(
        parameters={name: known[name] for name in AXES},
        seeds=known["seeds"],
        failed=known["failed"],
        violations=known["violations"],
        spreads=spreads,
    )


Objection = tuple[str, str]
"""The parameters of a cell, and its error."""


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
