"""Upkeep of tables: an earlier layout converted, small files joined, old files deleted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from coopgroup.cli.app import run
from coopgroup.cli.pipeline import jobs
from coopgroup.errors import PipelineError
from coopgroup.pipeline.folders import Folders
from coopgroup.pipeline.history import HISTORY_JOB, start_history
from coopgroup.pipeline.sources import Source, claim_source
from coopgroup.pipeline.tables import Tables
from coopgroup.pipeline.upkeep import convert, optimize
from tests.spark.frames import commit, killed_at, make, rows
from tests.spark.test_history import stream, write_input

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOMENT = {"topic": "t", "partition": 0, "at_ms": 7}


def write_v1(folder: Path, job: str, batch: int, frames: dict[str, DataFrame]) -> None:
    """Write a batch as release 0.1 did; `batches` makes it complete."""
    place = f"job={job}/batch={batch}"
    for name, frame in frames.items():
        by_day = frame if name == "batches" else frame.selectExpr("*", "date'1970-01-01' AS day")
        days = [] if name == "batches" else ["day"]
        by_day.write.partitionBy(*days).parquet(f"{folder}/v1/{name}/{place}")


@pytest.mark.verify
def test_tables_of_version_1_are_converted_and_continued(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Complete batches are copied once, also after a kill, and the stream goes on."""
    source, folder = tmp_path / "in", tmp_path / "tables"
    write_input(spark, source, parts=2, only_commits=True)
    tables = Tables(spark=spark, folder=str(folder))
    start_history(stream(spark, source), tables).awaitTermination()
    expected = rows(tables.read("commits"))
    # The same as version 1: rows by batch, and the same checkpoint and source.
    for number in (0, 1):
        done = spark.sql(f"SELECT {number} AS sequence")
        frame = tables.read("commits").where(f"floor(at_ms / 10) = {number}")
        write_v1(folder, "history", number, {"commits": frame, "batches": done})
    write_v1(folder, "history", 2, {"commits": make(spark, "commits", commit(99, 9))})
    done = spark.sql("SELECT 0 AS sequence")
    write_v1(folder, "ends", 0, {"ends": make(spark, "ends", MOMENT), "batches": done})
    write_v1(folder, "history", 0, {"rejected": make(spark, "rejected")})
    (folder / "v2" / "checkpoints").rename(folder / "v1" / "checkpoints")
    known = Source(cluster="c", topic="t", topic_id="i")
    spark.createDataFrame(
        [("c", "t", "i")], "cluster string, topic string, topic_id string"
    ).write.parquet(f"{folder}/v1/sources/history")
    (folder / "v2").rename(tmp_path / "away")

    (folder / "converted-v1").mkdir()
    with pytest.raises(PipelineError, match="converted-v1, because that exists"):
        convert(tables)
    (folder / "converted-v1").rmdir()
    with killed_at(Folders, "copy"):
        convert(tables)
    with pytest.raises(PipelineError, match="run coopgroup pipeline convert"):
        tables.check_release()
    assert convert(tables) == {"commits": 10, "rejected": 0, "ends": 1}
    tables.check_release()
    assert rows(tables.read("commits")) == expected
    claim_source(tables, HISTORY_JOB, known)
    write_input(spark, tmp_path / "more", parts=3, only_commits=True)
    (tmp_path / "more" / "2").rename(source / "2")
    start_history(stream(spark, source), tables).awaitTermination()
    assert rows(tables.read("commits"), "at_ms")[:10] == [row[3:4] for row in expected]
    assert tables.read("commits").count() == 15
    with pytest.raises(PipelineError, match="no tables of version 1"):
        convert(tables)


@pytest.mark.verify
def test_small_files_are_joined_and_readers_keep_theirs(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also beside an unfinished batch, which stays invisible."""
    tmp_path /= "it's `mine`"
    tables = Tables(spark=spark, folder=str(tmp_path))
    for batch in range(2):
        tables.append("history", batch, {"commits": make(spark, "commits", commit(batch, 1))})
        tables.replace("lag", {"lag": make(spark, "lag", {"group": "g", "at_ms": batch})})
    early = tables.read("commits")
    (tmp_path / "v2" / "staging" / "episodes-killed").mkdir(parents=True)
    assert run(["pipeline", "optimize", "--tables", str(tmp_path), "--json"]) == 0
    said = {one["table"]: one for one in map(json.loads, capsys.readouterr().out.splitlines())}
    assert said["commits"]["files_before"] == 2
    assert said["commits"]["files_after"] == 1
    assert said["lag"]["is_vacuumed"]
    assert rows(early, "at_ms") == rows(tables.read("commits"), "at_ms") == [(0,), (1,)]

    unfinished = tables.read("commits").selectExpr("*", "date'1970-01-01' AS day")
    unfinished.write.format("delta").mode("append").save(tables.path("commits"))
    found = {one.table: one for one in optimize(tables, 0)}
    assert not found["commits"].is_vacuumed
    assert rows(tables.read("commits"), "at_ms") == [(0,), (1,)]
    assert not (tmp_path / "v2" / "staging" / "episodes-killed").exists()
    assert len(list((tmp_path / "v2" / "lag").glob("day=*/*.parquet"))) == 1
    tables.append("history", 2, {"commits": make(spark, "commits", commit(2, 1))})
    assert tables.read("commits").count() == 5


@pytest.mark.verify
def test_lag_that_follows_deletes_what_it_has_replaced(
    tables: Tables, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs._delete_replaced(tables)  # noqa: SLF001 - before the first snapshot
    for at_ms in range(2):
        tables.replace("lag", {"lag": make(spark, "lag", {"group": "g", "at_ms": at_ms})})
    monkeypatch.setattr(jobs, "_KEPT_HOURS", 0)
    jobs._delete_replaced(tables)  # noqa: SLF001 - a step of `lag --follow`
    assert len(list((tmp_path / "v2" / "lag").glob("day=*/*.parquet"))) == 1
    assert rows(tables.read("lag"), "at_ms") == [(1,)]


def test_a_retention_that_is_not_safe_needs_force(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short = ["pipeline", "optimize", "--tables", str(tmp_path), "--retention-hours", "1"]
    assert run(short) == 2
    err = capsys.readouterr().err
    assert "--retention-hours: got 1, expected at least 24" in err
    assert err.count("\n") == 1
    assert run([*short, "--force"]) == 0
