"""Small frames: made from rows with the relevant fields, and compared as sorted rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
from attrs import field, frozen

from coopgroup.pipeline.schemas import TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def make(spark: SparkSession, table: str, *given: Mapping[str, Any]) -> DataFrame:
    """Return a frame of a table; missing fields are null."""
    schema = TABLES[table].schema
    unknown = {name for row in given for name in row} - set(schema.names)
    assert not unknown
    return spark.createDataFrame(
        [[row.get(name) for name in schema.names] for row in given], schema
    )


@contextmanager
def killed_at(owner: type, name: str, *, after: int = 0) -> Iterator[None]:
    """Let a job die when it calls a method, or at a later call."""
    method, calls = getattr(owner, name), count()

    def killed(*args: Any, **named: Any) -> Any:  # noqa: ANN401 - those of the method
        if next(calls) == after:
            raise KeyboardInterrupt
        return method(*args, **named)

    with patch.object(owner, name, killed), pytest.raises(KeyboardInterrupt):
        yield


@frozen(kw_only=True)
class Given:
    """Tables that are given as frames; the others are empty."""

    spark: SparkSession
    frames: Mapping[str, DataFrame]
    folder: str = "tables"
    until_ms: int | None = None
    notes: Mapping[str, Any] = field(factory=dict)

    def as_of_ms(self) -> int | None:
        return self.until_ms

    def noted(self, job: str) -> Mapping[str, Any] | None:
        return self.notes.get(job)

    def read(self, name: str) -> DataFrame:
        return self.frames[name] if name in self.frames else make(self.spark, name)


def commit(at_ms: int, committed: int | None, **others: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return a commit of partition 0 of "orders" by "g", or a tombstone."""
    return {
        "group": "g",
        "topic": "orders",
        "partition": 0,
        "at_ms": at_ms,
        "committed": committed,
        "is_tombstone": committed is None,
        "source_partition": 0,
        "source_offset": 10 * at_ms,
        **others,
    }


def rows(frame: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    """Return rows of some columns, or of all columns, sorted with nulls first."""
    picked = frame.select(*columns) if columns else frame
    found = [tuple(row) for row in picked.collect()]
    return sorted(
        found, key=lambda row: [(cell is not None, str(type(cell)), cell) for cell in row]
    )
