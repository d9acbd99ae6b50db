"""Tables of a folder: which rows count, and from which time."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from attrs import evolve
from pyspark.sql.types import StringType, StructField, StructType

from coopgroup.errors import PipelineError
from coopgroup.pipeline.folders import Folders
from coopgroup.pipeline.schemas import TABLES
from coopgroup.pipeline.scope import in_groups
from coopgroup.pipeline.tables import Tables, day_of
from tests.spark.frames import commit, killed_at, make, rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def commits(tables: Tables, *at_ms: int) -> dict[str, DataFrame]:
    return {"commits": make(tables.spark, "commits", *(commit(one, one) for one in at_ms))}


def lags(tables: Tables, at_ms: int, *groups: str) -> DataFrame:
    found = [{"group": group, "at_ms": at_ms, "partition": 0} for group in groups]
    return make(tables.spark, "lag", *found)


def test_a_folder_without_tables_has_no_rows(tables: Tables) -> None:
    """Reading before writing returns empty columns; requiring says which job to run."""
    for name, table in TABLES.items():
        assert tables.read(name).schema.names == table.schema.names
    assert rows(tables.read("commits")) == []
    with pytest.raises(PipelineError, match="has no commits; run coopgroup pipeline history"):
        tables.require("commits", "coopgroup pipeline history")


def test_tables_of_another_release_are_refused(tables: Tables, tmp_path: Path) -> None:
    (tmp_path / "v9").mkdir()
    said = r"another release \(v9, and .* reads v1\); use that release, or another folder"
    with pytest.raises(PipelineError, match=said):
        tables.require("commits", "it")


def test_tables_of_an_earlier_format_are_refused(tables: Tables) -> None:
    """Without Delta's change data feed, no job can tell which rows are new."""
    tables.replace("lag", lags(tables, 1, "g"))
    tables.check_release()
    commits(tables, 1)["commits"].write.format("delta").save(tables.path("commits"))
    said = (
        "v1/commits has no delta.enableChangeDataFeed: an earlier version .*; take another folder"
    )
    with pytest.raises(PipelineError, match=said):
        tables.require("commits", "it")


def test_batches_add_up_and_the_same_batch_counts_once(tables: Tables, tmp_path: Path) -> None:
    """A complete batch stays unchanged, even if other rows come under its number."""
    of_another_process = Tables(spark=tables.spark, folder=tables.folder)
    tables.append("history", 0, commits(tables, 1))
    assert rows(of_another_process.read("commits"), "at_ms") == [(1,)]
    tables.append("history", 1, commits(tables, 90_000_000))
    tables.append("history", 1, commits(tables, 3))
    assert rows(of_another_process.read("commits"), "at_ms") == [(1,), (90_000_000,)]
    assert sorted(path.name for path in tmp_path.glob("v1/commits/day=*")) == [
        "day=1970-01-01",
        "day=1970-01-02",
    ]


def test_rows_with_a_known_key_are_not_merged_again(tables: Tables) -> None:
    """Late rows of earlier days are added, also after a kill, and duplicates are one row."""
    day = 86_400_000

    def ends(*at_ms: int) -> dict[str, DataFrame]:
        found = ({"topic": "t", "partition": 0, "at_ms": one, "end": one} for one in at_ms)
        return {"ends": make(tables.spark, "ends", *found)}

    for _ in range(2):
        tables.merge(ends(3 * day, 3 * day), from_ms={"ends": 3 * day})
    tables.merge(ends(3 * day, 5 * day), from_ms={"ends": 3 * day})
    tables.merge(ends(day, 3 * day), from_ms={"ends": day})
    assert rows(tables.read("ends"), "at_ms") == [(day,), (3 * day,), (5 * day,)]


def test_later_rows_are_not_in_tables_as_of_now(tables: Tables) -> None:
    tables.replace("lag", lags(tables, 1, "g"))
    early = tables.read("lag")
    tables.read_until(5)
    pinned = tables.current()
    tables.read_until(7)
    tables.replace("lag", lags(tables, 3, "g"))
    tables.append("history", 0, commits(tables, 1))
    assert rows(tables.read("lag"), "at_ms") == [(3,)]
    assert rows(early, "at_ms") == rows(pinned.read("lag"), "at_ms") == [(1,)]
    assert rows(pinned.read("commits")) == []
    assert (pinned.as_of_ms(), tables.as_of_ms()) == (5, 7)


def test_rows_of_some_groups_and_times_are_replaced(tables: Tables) -> None:
    """Also in a table that does not exist yet."""
    where = in_groups(["it's", "gone"])
    tables.replace("lag", lags(tables, 1, "a", "it's", "c"), where)
    tables.replace("lag", lags(tables, 2, "it's"), where)
    assert rows(tables.read("lag"), "group", "at_ms") == [("a", 1), ("c", 1), ("it's", 2)]
    tables.replace("lag", lags(tables, 3, "a"), f"at_ms >= 2 AND day >= {day_of(2)}")
    assert rows(tables.read("lag"), "group", "at_ms") == [("a", 1), ("a", 3), ("c", 1)]


@pytest.mark.parametrize("is_remote", [False, True])
def test_progress_is_kept_unless_it_is_unreadable(
    tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_remote: bool
) -> None:
    if is_remote:
        monkeypatch.setattr(Folders, "_local", lambda *_: None)
    assert tables.noted("lag") is None
    for at_ms in (1, 2):
        tables.note("lag", {"größe": at_ms})
        assert tables.noted("lag") == {"größe": at_ms}
    file = tmp_path / "v1" / "progress" / "lag.json"
    assert [one.name for one in file.parent.iterdir() if one.suffix != ".crc"] == ["lag.json"]
    if not is_remote:
        with killed_at(Path, "replace"):
            tables.note("lag", {"größe": 3})
        assert tables.noted("lag") == {"größe": 2}
        file.write_text(file.read_text()[:5])
        assert tables.noted("lag") is None
    tables.note("lag", None)
    assert not file.exists()


@pytest.mark.verify
def test_two_that_append_at_once_both_succeed(tables: Tables) -> None:
    """Each commit is one of many, and the table is created by whoever is first."""
    with ThreadPoolExecutor(2) as pool:
        jobs = [
            pool.submit(_append_some, evolve(tables, spark=tables.spark.newSession()), number)
            for number in range(2)
        ]
        for job in jobs:
            job.result()
    assert rows(tables.read("commits"), "at_ms") == [(one,) for one in range(6)]


def _append_some(tables: Tables, number: int) -> None:
    for batch in range(3):
        tables.append(f"job-{number}", batch, commits(tables, 3 * number + batch))


@pytest.mark.verify
def test_of_two_that_replace_at_once_one_is_told_in_a_line(tables: Tables) -> None:
    """The second begins and ends while the first one writes."""
    tables.replace("lag", lags(tables, 0, "g"))
    other = evolve(tables, spark=tables.spark.newSession())
    frame = lags(tables, 1, "g")
    # One task waits, and the other core is free for the second job.
    slow = frame.coalesce(1).mapInArrow(_after(str(tables.folder)), frame.schema)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(tables.replace, "lag", slow)
        while not Path(tables.folder, "begun").exists():
            assert not first.done()
            time.sleep(0.05)
        other.replace("lag", lags(other, 2, "g"))
        Path(tables.folder, "ended").touch()
        with pytest.raises(PipelineError, match="changed by another job at the same time") as said:
            first.result()
    assert "\n" not in str(said.value)
    assert rows(tables.read("lag"), "at_ms") == [(2,)]


def _after(folder: str) -> Any:  # noqa: ANN401 - a function of PySpark
    def wait(batches: Any) -> Any:  # noqa: ANN401 - likewise
        Path(folder, "begun").touch()
        while not Path(folder, "ended").exists():
            time.sleep(0.05)
        yield from batches

    return wait


@pytest.mark.verify
def test_added_columns_are_null_in_old_rows(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A release with more columns reads old tables, appends to them and merges into them."""
    tables.append("history", 0, commits(tables, 1))
    tables.merge({"ends": make(tables.spark, "ends", {"topic": "t"})})
    for name in ("commits", "ends"):
        old = TABLES[name]
        schema = StructType([*old.schema, StructField("colour", StringType())])
        monkeypatch.setattr(
            "coopgroup.pipeline.tables.TABLES", {**TABLES, name: evolve(old, schema=schema)}
        )
        assert [row.colour for row in tables.read(name).collect()] == [None]
        row = {"topic": "new", "partition": 0, "at_ms": 2, "colour": "red"}
        new = tables.spark.createDataFrame([[row.get(one) for one in schema.names]], schema)
        if name == "commits":
            tables.append("history", 1, {name: new})
        else:
            tables.merge({name: new})
        assert rows(tables.read(name), "colour") == [(None,), ("red",)]
