"""Upkeep of tables: small files joined, old files deleted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from coopgroup.cli.app import run
from coopgroup.cli.pipeline import jobs
from coopgroup.pipeline.tables import Tables
from coopgroup.pipeline.upkeep import optimize
from tests.spark.frames import commit, make, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
    (tmp_path / "v1" / "staging" / "episodes-killed").mkdir(parents=True)
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
    assert not (tmp_path / "v1" / "staging" / "episodes-killed").exists()
    assert len(list((tmp_path / "v1" / "lag").glob("day=*/*.parquet"))) == 1
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
    assert len(list((tmp_path / "v1" / "lag").glob("day=*/*.parquet"))) == 1
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
