"""Tables of a folder: which rows count, and from which time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from coopgroup.pipeline.errors import PipelineError
from coopgroup.pipeline.schemas import TABLES
from coopgroup.pipeline.tables import Tables
from tests.spark.frames import commit, make, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_folder_without_tables_has_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    """Reading before writing returns empty columns; requiring says which job to run."""
    tables = Tables(spark=spark, folder=str(tmp_path))
    for name, table in TABLES.items():
        assert tables.read(name).schema.names == table.schema.names
    assert rows(tables.read("commits")) == []
    with pytest.raises(PipelineError, match="has no commits; run coopgroup pipeline history"):
        tables.require("commits", "coopgroup pipeline history")


def test_tables_of_another_version_are_named(spark: SparkSession, tmp_path: Path) -> None:
    """A user who upgrades reads why the tables look empty."""
    (tmp_path / "v9").mkdir()
    with pytest.raises(PipelineError, match=r"has no commits of version 1, but v9; run"):
        Tables(spark=spark, folder=str(tmp_path)).require("commits", "it")


def test_batches_add_up_and_the_same_batch_counts_once(spark: SparkSession, tmp_path: Path) -> None:
    """An existing batch stays unchanged, even if other rows come under its number."""
    tables = Tables(spark=spark, folder=str(tmp_path))
    tables.write("history", 0, {"commits": make(spark, "commits", commit(1, 1))})
    tables.write("history", 1, {"commits": make(spark, "commits", commit(90_000_000, 2))})
    tables.write("history", 1, {"commits": make(spark, "commits", commit(3, 3))})
    assert rows(tables.read("commits"), "at_ms", "committed") == [(1, 1), (90_000_000, 2)]
    assert sorted(path.name for path in tmp_path.glob("v1/commits/job=history/batch=*/day=*")) == [
        "day=1970-01-01",
        "day=1970-01-02",
    ]


def test_rows_of_a_batch_that_is_not_through_do_not_count(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A killed job leaves files without the row that ends a batch."""
    tables = Tables(spark=spark, folder=str(tmp_path))
    tables.write("history", 0, {"commits": make(spark, "commits", commit(1, 1))})
    half = make(spark, "commits", commit(2, 2)).selectExpr("*", "date'1970-01-01' AS day")
    path = f"{tables.root}/commits/job=history/batch=1"
    half.write.partitionBy("day").parquet(path)
    assert rows(tables.read("commits"), "committed") == [(1,)]


def test_of_a_snapshot_only_the_newest_counts(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers of an older snapshot can finish; still older ones are deleted."""
    monkeypatch.setattr("coopgroup.pipeline.tables._SNAPSHOT_PLACES", 3)
    tables = Tables(spark=spark, folder=str(tmp_path))
    tables.write("history", 0, {"commits": make(spark, "commits", commit(1, 1))})
    early = commits = None
    for number in range(4):
        tables.replace("lag", {"lag": make(spark, "lag", {"group": "g", "at_ms": number})})
        early = tables.read("lag") if number <= 1 else early
        commits = tables.read("commits") if number <= 2 else commits
    assert early is not None
    assert commits is not None
    assert rows(commits, "committed") == [(1,)]  # even if other jobs record their batches meanwhile
    assert rows(early, "at_ms") == [(1,)]
    assert rows(tables.read("lag"), "at_ms") == [(3,)]
    assert len(list(tmp_path.glob("v1/lag/job=lag/batch=*"))) == 3
