"""What a sweep comes to: rows of the table, joined over seeds, as values for pages and tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from coopgroup.pipeline.sweep_schema import AXES
from coopgroup.report.sweep_charts import Setting, Spread
from coopgroup.simulator.comparison import MEASURES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, Row

__all__ = ["Objection", "objections", "only", "settings_of", "summarised"]

_ORDER: Final = "place"


def only(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Rows of some cells, with a column that says in which order the cells stand.

    Args:
        rows: of a table of sweeps.
        keys: of the cells.
    """
    places = list(enumerate(keys))
    wanted = rows.sparkSession.createDataFrame(places, f"{_ORDER} long, key string")
    return rows.join(wanted, "key")


def summarised(rows: DataFrame) -> DataFrame:
    """One row a setting: medians and ranges over its seeds, in the order of the cells.

    Args:
        rows: what `only` gives.

    Returns:
        The columns of `AXES`, `seeds`, `failed`, `violations`, and for each measure `..._median`,
        `..._low` and `..._high`, null where no seed has it.
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
    """The values of what `summarised` gives; a sweep has few settings beside its cells."""
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
"""The parameters of a cell, and what is wrong with it."""


def objections(rows: DataFrame, most: int) -> tuple[int, tuple[Objection, ...]]:
    """Cells that failed or broke a rule: how many, and the first few.

    Args:
        rows: what `only` gives.
        most: how many to describe.
    """
    bad = rows.where(F.col("error").isNotNull() | (F.col("violations") > 0))
    words = F.coalesce("error", F.concat(F.lit("an invariant was broken: "), "violation"))
    first = bad.orderBy(_ORDER).limit(most).select("parameters", words.alias("words"))
    return bad.count(), tuple((row.parameters, row.words) for row in first.collect())
