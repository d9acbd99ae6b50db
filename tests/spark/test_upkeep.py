"""Upkeep of tables: small files joined, old files deleted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
from pyarrow import parquet

from coopgroup.cli.app import run
from coopgroup.cli.pipeline import jobs
from coopgroup.pipeline.tables import Tables
from coopgroup.pipeline.upkeep import forget, optimize
from tests.spark.frames import commit, make, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.verify
def test_small_files_are_joined_and_readers_keep_theirs(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tmp_path /= "it's `mine`"
    tables = Tables(spark=spark, folder=str(tmp_path))
    for batch in range(2):
        tables.append("history", batch, {"commits": make(spark, "commits", commit(batch, 1))})
        tables.replace("lag", make(spark, "lag", {"group": "g", "at_ms": batch}))
    early = tables.read("commits")
    (tmp_path / "v1" / "staging" / "episodes-killed").mkdir(parents=True)
    assert run(["pipeline", "optimize", "--tables", str(tmp_path), "--json"]) == 0
    said = {one["table"]: one for one in map(json.loads, capsys.readouterr().out.splitlines())}
    assert said["commits"]["files_before"] == 2
    assert said["commits"]["files_after"] == 1
    assert rows(early, "at_ms") == rows(tables.read("commits"), "at_ms") == [(0,), (1,)]

    optimize(tables, 0)
    assert rows(tables.read("commits"), "at_ms") == [(0,), (1,)]
    assert len(list((tmp_path / "v1" / "commits").glob("day=*/*.parquet"))) == 1
    assert not (tmp_path / "v1" / "staging" / "episodes-killed").exists()
    assert len(list((tmp_path / "v1" / "lag").glob("day=*/*.parquet"))) == 1


@pytest.mark.verify
def test_lag_that_follows_deletes_what_it_has_replaced(
    tables: Tables, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs._delete_replaced(tables)  # noqa: SLF001 - before the first snapshot
    for at_ms in range(2):
        tables.replace("lag", make(spark, "lag", {"group": "g", "at_ms": at_ms}))
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


@pytest.mark.verify
def test_joined_files_are_in_order_of_groups_and_joined_once(
    tables: Tables, spark: SparkSession, tmp_path: Path
) -> None:
    """So a question about one group reads a part of a file."""
    for batch in range(3):
        some = (commit(batch, 1, group=f"g{7 * one % 10}", source_offset=one) for one in range(10))
        tables.append("history", batch, {"commits": make(spark, "commits", *some)})
    optimize(tables, 0)
    (file,) = (tmp_path / "v1" / "commits").glob("day=*/*.parquet")
    groups = parquet.read_table(file).column("group").to_pylist()  # type: ignore[no-untyped-call]
    assert groups == sorted(groups)
    assert len(groups) == 30
    version = tables.version("commits")
    optimize(tables, 0)
    assert tables.version("commits") == version


@pytest.mark.verify
def test_old_rows_are_deleted_but_for_the_last_of_each_subject(
    tables: Tables, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """Days 0 and 1 are older, and what was true at their end still holds."""
    day_ms = 86_400_000
    commits = [commit(at_ms, at_ms, partition=one) for one in (0, 1) for at_ms in (1, 2 + day_ms)]
    commits += [commit(3, 3, partition=2), commit(2 * day_ms, 9)]
    members: list[dict[str, Any]] = []
    for at_ms in (1, 2, day_ms, 3 * day_ms):
        place = {"group": "g", "at_ms": at_ms, "source_partition": 0, "source_offset": at_ms}
        members += [{**place, "member_id": one} for one in "ab"]
    frames = {
        "commits": make(spark, "commits", *commits),
        "members": make(spark, "members", *members),
        "generations": make(
            spark,
            "generations",
            *({k: v for k, v in one.items() if k != "member_id"} for one in members[::2]),
        ),
    }
    tables.append("history", 0, frames)
    tables.merge(
        {"ends": make(spark, "ends", *({"topic": "t", "at_ms": one * day_ms} for one in range(4)))}
    )
    kept = [f"--keep={name}=1970-01-03" for name in ("commits", "generations", "members", "ends")]
    command = ["pipeline", "optimize", "--tables", tables.folder]
    jobs = ("lag", "loads", "episodes")
    for job in jobs:
        tables.note(job, {})
    assert run([*command, "--keep=members=1970-01-01"]) == 0
    assert [tables.noted(job) for job in jobs] == [{}] * 3
    execute = Tables.execute

    def beside_other_runs(self: Tables, name: str, statement: str) -> None:
        """Runs that began before a deletion note their progress after it."""
        execute(self, name, statement)
        for job in jobs:
            tables.note(job, {})

    with patch.object(Tables, "execute", beside_other_runs):
        forget(tables, "commits", 2 * day_ms)
    assert [tables.noted(job) for job in jobs] == [None] * 3
    assert run([*command, *kept]) == 0
    assert rows(tables.read("commits"), "at_ms", "partition") == [
        (3, 2),
        (2 + day_ms, 0),
        (2 + day_ms, 1),
        (2 * day_ms, 0),
    ]
    for name, each in (("generations", 1), ("members", 2)):
        assert rows(tables.read(name), "at_ms") == [
            (one * day_ms,) for one in (1, 3) for _ in range(each)
        ]
    assert rows(tables.read("ends"), "at_ms") == [(2 * day_ms,), (3 * day_ms,)]
    capsys.readouterr()
    assert run([*command, "--keep", "lag=30d"]) == 2
    assert "--keep: got 'lag=30d', expected TABLE=TIME with one of" in capsys.readouterr().err
