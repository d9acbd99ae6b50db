"""Views and other readers: the answers to common questions, with Spark and with DuckDB."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as sql

from coopgroup.cli.app import run
from coopgroup.pipeline.tables import Tables
from coopgroup.pipeline.views import VIEWS, create_views
from tests.spark.frames import make, rows
from tests.spark.stories import REMOVED, State, Story, tables_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "pipeline.md").read_text()
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
STORIES = {
    "orders": Story(
        states=(
            State(at_ms=10_000, generation=1, held={"a1@a@h1": [0], "b@b@h2": [1]}),
            State(at_ms=100_000, generation=2, held={"a1@a@h1": [0, 1]}),
            State(at_ms=200_000, generation=2, held={"a2@a@h3": [0, 1]}),
            State(at_ms=300_000, held=REMOVED),
            State(at_ms=400_000, generation=1, held={"c": [0]}),
        )
    ),
    "bills": Story(
        states=(
            State(at_ms=10_000, generation=1, held={"x": [0]}),
            State(at_ms=20_000, generation=2, held={"x": [], "y": []}),
            State(at_ms=30_000, generation=3, held={"x": [0], "y": []}),
        )
    ),
}
LAGS = ((0, (5, 3)), (HOUR_MS // 2, (1, 0)), (HOUR_MS, (7, 7)))
REBALANCES = (
    ("leave", 1_000, 30.0, 2),
    ("leave", 2_000, 7.5, 1),
    ("join", 3_000, None, 1),
    ("leave", DAY_MS, 30.0, 4),
)
OUTAGES = ((1_000, 20_000, 500), (2_000, 17_500, 500), (DAY_MS, 30_000, 0))


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """Return tables of two groups, and views of them."""
    tables = Tables(spark=spark, folder=str(tmp_path_factory.mktemp("views")))
    frames = tables_of(spark, STORIES)
    # A state in which a static member returns has the time of its round.
    is_return = "`group` = 'orders' AND source_offset = 2"
    frames["generations"] = frames["generations"].withColumn(
        "at_ms", sql.expr(f"CASE WHEN {is_return} THEN 100000 ELSE at_ms END")
    )
    written = ("generations", "members", "assignments")
    tables.append("history", 0, {name: frames[name] for name in written})
    place = {"group": "orders", "topic": "orders"}
    lag = [
        {**place, "partition": number, "at_ms": at_ms, "lag": one}
        for at_ms, lags in LAGS
        for number, one in enumerate(lags)
    ]
    tables.replace("lag", make(spark, "lag", *lag))
    source = {"group": "orders", "source": "history"}
    rebalances = [
        {
            **source,
            "trigger": trigger,
            "begin_ms": end_ms - 500,
            "end_ms": end_ms,
            "rounds": 1,
            "unavailable_partition_s": seconds,
            "moved": moved,
            "moved_twice": 0,
        }
        for trigger, end_ms, seconds, moved in REBALANCES
    ]
    outages = [
        {**source, "end_ms": end_ms, "unavailable_ms": length_ms, "error_ms": error_ms}
        for end_ms, length_ms, error_ms in OUTAGES
    ]
    tables.replace("rebalances", make(spark, "rebalances", *rebalances))
    tables.replace("outages", make(spark, "outages", *outages))
    create_views(spark, tables.folder)
    return tables


def answer(tables: Tables, view: str, *columns: str, where: str = "true") -> list[tuple[Any, ...]]:
    return rows(tables.spark.table(view).where(where).selectExpr(*columns))


def test_owners_are_rows_of_unchanged_ownership(tables: Tables) -> None:
    """A restart and a removal end a row, another round does not; a gap begins a new one."""
    times = ("unix_millis(since) AS since", "unix_millis(until) AS until")
    columns = ("partition", "member_id", "client_host", "first_generation", *times)
    of_orders = answer(tables, "owners", *columns, where="`group` = 'orders'")
    assert of_orders == [
        (0, "a1", "h1", 1, 10_000, 200_000),
        (0, "a2", "h3", 2, 200_000, 300_000),
        (0, "c", "h", 1, 400_000, None),
        (1, "a1", "h1", 2, 100_000, 200_000),
        (1, "a2", "h3", 2, 200_000, 300_000),
        (1, "b", "h2", 1, 10_000, 100_000),
    ]
    assert answer(tables, "owners", "member_id", *times, where="`group` = 'bills'") == [
        ("x", 10_000, 20_000),
        ("x", 30_000, None),
    ]


def test_outages_are_added_up_by_day(tables: Tables) -> None:
    columns = ("string(day)", "outages", "unavailable_partition_s", "error_s", "longest_s")
    assert answer(tables, "outages_by_day", *columns) == [
        ("1970-01-01", 2, 37.5, 1.0, 20.0),
        ("1970-01-02", 1, 30.0, 0.0, 30.0),
    ]


def test_lag_is_that_of_whole_topics_by_hour(tables: Tables) -> None:
    columns = ("string(hour)", "moments", "lag_mean", "lag_max", "partition_lag_max")
    assert answer(tables, "lag_by_hour", *columns) == [
        ("1970-01-01 00:00:00", 2, 4.5, 8, 5),
        ("1970-01-01 01:00:00", 1, 14.0, 14, 7),
    ]


def test_moves_are_added_up_by_trigger(tables: Tables) -> None:
    columns = ("string(day)", "trigger", "rebalances", "moved", "unavailable_partition_s")
    assert answer(tables, "moves_by_trigger", *columns) == [
        ("1970-01-01", "join", 1, 1, None),
        ("1970-01-01", "leave", 2, 3, 37.5),
        ("1970-01-02", "leave", 1, 4, 30.0),
    ]


def test_worst_rebalances_have_a_place(tables: Tables) -> None:
    """Equal ones share it, and those of unknown cost have none."""
    columns = ("place", "unix_millis(end_at) AS end_ms", "unavailable_partition_s")
    assert answer(tables, "worst_rebalances", *columns) == [
        (1, 1_000, 30.0),
        (1, DAY_MS, 30.0),
        (3, 2_000, 7.5),
    ]


@pytest.mark.parametrize("view", sorted(VIEWS))
def test_page_names_every_view_and_its_columns(view: str, tables: Tables) -> None:
    line = next(one for one in PAGE.splitlines() if one.startswith(f"| `{view}` |"))
    assert all(f"`{column}`" in line for column in tables.spark.table(view).columns)


def test_command_answers_as_a_table_and_as_json(
    tables: Tables, capsys: pytest.CaptureFixture[str]
) -> None:
    """Times are in UTC, and a missing value is null."""
    asked = "SELECT member_id, since, until FROM owners WHERE member_id = 'c'"
    command = ["pipeline", "sql", asked, "--tables", tables.folder]
    assert run([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "member_id": "c",
        "since": "1970-01-01T00:06:40.000Z",
        "until": None,
    }
    assert run(command) == 0
    title, *_, row, _ = capsys.readouterr().out.splitlines()
    assert title == "1 row"
    assert [cell.strip() for cell in row.strip("│").split("│")] == ["c", "1970-01-01 00:06:40", ""]
    assert run(["pipeline", "sql", "SELECT dance FROM owners", "--tables", tables.folder]) == 2
    err = capsys.readouterr().err
    assert "dance" in err
    assert err.count("\n") == 1


def test_duckdb_gives_the_same_answers_without_spark(tables: Tables) -> None:
    """With the recipe of the page, from the same files."""
    recipe = PAGE.partition("import duckdb")[2].partition("```")[0]
    lines = ["import duckdb", *recipe.replace("history/v1", tables.root).splitlines()]
    names: dict[str, Any] = {}
    exec("\n".join(lines), names)  # noqa: S102 - our own page
    database = names["database"]
    days = database.sql("SELECT DISTINCT day FROM outages").fetchall()
    assert sorted(days) == [(date(1970, 1, 1),), (date(1970, 1, 2),)]
    queries = {**VIEWS, **{name: f"FROM {name}" for name in tables.versions()}}
    for name, query in queries.items():
        columns = tables.spark.table(name).columns
        texts = ", ".join(f'CAST("{one}" AS VARCHAR)' for one in columns)
        found = database.sql(query).project(texts).fetchall()
        expected = tables.spark.table(name).selectExpr(*(f"string(`{one}`)" for one in columns))
        assert sorted(map(str, found)) == sorted(str(tuple(row)) for row in expected.collect())
