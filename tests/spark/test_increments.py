"""Groups with new input: found in Delta's log, and the only ones whose episodes are computed."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as sql

from coopgroup.pipeline.basis import Basis
from coopgroup.pipeline.episodes import job
from coopgroup.pipeline.episodes.job import write_episodes
from coopgroup.pipeline.scope import Scope
from coopgroup.pipeline.tables import Tables
from tests.spark.frames import commit, make, rows
from tests.spark.stories import REMOVED, State, Story, every, tables_of
from tests.spark.test_telemetry_episodes import STORIES as TOLD

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from coopgroup.pipeline.tables import Keep

HISTORY = ("commits", "generations", "members", "assignments")
TELEMETRY = ("events", "rounds", "work")
EPISODES = ("rebalances", "outages", "absences", "skew")
MINUTE_MS = 60_000
LATE = ("g", "killed")
# Half of the rows of these groups come later, in no order of time.
IS_LATE = f"(`group` IN {LATE} AND pmod(hash(at_ms), 2) = 1)"


def test_groups_with_new_input_are_in_the_new_files(spark: SparkSession, tmp_path: Path) -> None:
    """If a group may have lost rows, all groups are new."""
    tables = Tables(spark=spark, folder=str(tmp_path / "it's `mine`"))

    def basis(*groups: str, since_ms: int = 0) -> Basis:
        scope = Scope(groups=groups, since_ms=since_ms)
        return Basis.of(tables.current(), ("commits", "lag"), "5 s", scope)

    def add(batch: int, *groups: str) -> None:
        commits = make(spark, "commits", *(commit(batch, 1, group=one) for one in groups))
        tables.append("history", batch, {"commits": commits})

    def join_files() -> None:
        version = tables.execute("commits", f"OPTIMIZE {tables.in_sql('commits')}")
        tables.record("optimize", {"commits": version})

    def lags(lag: int, *groups: str) -> DataFrame:
        moment = {"topic": "t", "partition": 0, "at_ms": 1, "lag": lag}
        rows = make(spark, "lag", *({"group": one, **moment} for one in groups))
        return rows.coalesce(1)

    def update(lag: DataFrame, *, is_gone: bool) -> None:
        tables.update("lag", "lag", lag.withColumn("is_gone", sql.lit(is_gone)), from_ms=0)

    add(0, "a", "b")
    tables.replace("lag", {"lag": lags(5, "a", "b")})
    assert basis().new_groups(tables, "") is None
    first, first_of_two = basis().to_json(), basis("a", "ü").to_json()
    add(1, "ü")
    assert basis().new_groups(tables, first) == ("ü",)
    add(2, "a", "c")
    assert basis().new_groups(tables, first) == ("a", "c", "ü")
    assert basis("a", "ü").new_groups(tables, first_of_two) == ("a", "ü")
    assert basis("a").new_groups(tables, first_of_two) is None
    assert basis("a", "ü", since_ms=1).new_groups(tables, first_of_two) is None
    second = basis().to_json()
    join_files()
    assert basis().new_groups(tables, second) == ()
    assert basis().new_groups(tables, first) == ("a", "b", "c", "ü")  # all rows share a file
    update(lags(7, "a"), is_gone=False)
    assert basis().new_groups(tables, second) == ("a", "b")  # their rows share a file
    third = basis().to_json()
    update(lags(7, "b"), is_gone=True)
    assert basis().new_groups(tables, third) is None
    fourth = basis().to_json()
    tables.replace("lag", {"lag": lags(5, "b")})
    assert basis().new_groups(tables, fourth) is None
    assert basis().new_groups(tables, basis().to_json()) == ()


def test_episodes_of_groups_with_new_input_are_as_if_all_were_computed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Late commits, states, lag and telemetry; other groups are not computed."""
    chance = random.Random(18)
    tables = Tables(spark=spark, folder=str(tmp_path))
    frames = tables_of(spark, {name: story_of(chance) for name in "gh"})
    frames |= {name: make(spark, name, *given) for name, given in zip(TELEMETRY, TOLD, strict=True)}
    computed: list[tuple[str, ...]] = []
    compute = job._frames  # noqa: SLF001 - to see which groups are computed

    def seen(
        tables: Tables, settle_ms: int, scope: Scope, keep: Keep, *, is_few: bool
    ) -> dict[str, DataFrame]:
        computed.append(scope.groups)
        return compute(tables, settle_ms, scope, keep, is_few=is_few)

    def found() -> dict[str, list[tuple[Any, ...]]]:
        return {name: rows(tables.read(name)) for name in EPISODES}

    monkeypatch.setattr(job, "_frames", seen)
    add(tables, {name: frame.where(f"NOT {IS_LATE}") for name, frame in frames.items()})
    write_episodes(tables)
    first = found()
    add(tables, {name: frame.where(IS_LATE) for name, frame in frames.items()})
    write_episodes(tables)
    second = found()
    write_episodes(tables)
    assert computed == [(), LATE]
    for name in EPISODES:
        assert first[name] != second[name]
        assert others(first[name]) == others(second[name]) != []
    # A run with another scope computes all rows of its groups.
    write_episodes(tables, scope=Scope(groups=LATE))
    assert found() == second
    assert computed == [(), LATE, LATE]


def add(tables: Tables, frames: dict[str, DataFrame]) -> None:
    batch = tables.batches()["history"].number + 1 if tables.has_batches("history") else 0
    tables.append("history", batch, {name: frames[name] for name in (*HISTORY, *TELEMETRY)})
    if batch == 0:
        tables.replace("lag", {"lag": frames["lag"]})
    else:
        lag = frames["lag"].withColumn("is_gone", sql.lit(0).cast("boolean"))
        tables.update("lag", "lag", lag, from_ms=0)


def others(found: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return the rows of groups without late input."""
    return [row for row in found if row[0] not in LATE]


def story_of(chance: random.Random) -> Story:
    """Return a group of some members, which leave, return, restart and take turns."""
    times = sorted(chance.sample(range(MINUTE_MS, 60 * MINUTE_MS, 1_000), 12))
    states = [State(at_ms=0, generation=1, held={"a@a@x": [0, 1, 2]})]
    for number, at_ms in enumerate(times, 2):
        names = sorted(chance.sample(["a/1", "b@b@x", "c@c@x", f"d{number}@d@y"], 2))
        held = {name: list(range(place, 3, 2)) for place, name in enumerate(names)}
        states.append(State(at_ms=at_ms, generation=number % 9, held=held))
    states.insert(chance.randrange(4, 9), State(at_ms=times[7], held=REMOVED))
    commits: list[Any] = []
    for partition in range(3):
        ends = sorted(chance.sample(range(0, 60 * MINUTE_MS, 1_000), 12))
        spans = list(zip(ends[::2], ends[1::2], strict=True))
        commits += every(5_000, *spans, partition=partition)
    moments = range(0, 60 * MINUTE_MS, 4 * MINUTE_MS)
    lag = [
        {"topic": "orders", "partition": one, "at_ms": at_ms, "lag": chance.choice([0, 3, 9])}
        for at_ms in moments
        for one in range(3)
    ]
    return Story(states=states, commits=commits, lag=lag)
