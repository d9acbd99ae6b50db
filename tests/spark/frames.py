"""Small frames: made of rows that say what matters, and compared as sorted rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coopgroup.pipeline.schemas import TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["commit", "make", "rows"]


def make(spark: SparkSession, table: str, *given: dict[str, Any]) -> DataFrame:
    """A frame of a table; what a row does not say is null."""
    schema = TABLES[table].schema
    unknown = {name for row in given for name in row} - set(schema.names)
    assert not unknown
    return spark.createDataFrame(
        [[row.get(name) for name in schema.names] for row in given], schema
    )


def commit(at_ms: int, committed: int | None, **others: Any) -> dict[str, Any]:  # noqa: ANN401
    """A commit of partition 0 of "orders" by "g", or a tombstone."""
    return {
        "group": "g",
        "topic": "orders",
        "partition": 0,
        "at_ms": at_ms,
        "committed": committed,
        "is_tombstone": committed is None,
        "source_partition": 0,
        "source_offset": at_ms,
        **others,
    }


def rows(frame: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    """Rows of some columns, or of all, in order; nulls come first."""
    picked = frame.select(*columns) if columns else frame
    found = [tuple(row) for row in picked.collect()]
    return sorted(
        found, key=lambda row: [(cell is not None, str(type(cell)), cell) for cell in row]
    )
