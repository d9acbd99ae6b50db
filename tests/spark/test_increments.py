"""Groups with new input: found in the changes of tables, and the only ones that are computed."""

from __future__ import annotations

import random
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from attrs import evolve
from pyspark.sql import functions as sql

from coopgroup.errors import PipelineError
from coopgroup.pipeline.episodes import job
from coopgroup.pipeline.episodes.job import write_episodes
from coopgroup.pipeline.lag import write_lag
from coopgroup.pipeline.progress import UNKNOWN, Progress
from coopgroup.pipeline.schemas import TABLES
from coopgroup.pipeline.scope import Scope
from coopgroup.pipeline.tables import Tables
from coopgroup.pipeline.upkeep import vacuum
from tests.spark.frames import commit, killed_at, make, rows
from tests.spark.stories import REMOVED, State, Story, every, tables_of, watched
from tests.spark.test_lag import end
from tests.spark.test_telemetry_episodes import STORIES as TOLD

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.verify

HISTORY = ("commits", "generations", "members", "assignments")
TELEMETRY = ("events", "rounds", "work")
EPISODES = ("rebalances", "outages", "absences", "skew")
MINUTE_MS = 60_000
DAY_MS = 86_400_000
LATE, OTHERS = ("g", "killed"), ("h",)
# Half of the rows of these groups come later, in no order of time.
IS_LATE = f"(`group` IN {LATE} AND pmod(hash(at_ms), 2) = 1)"


def commits_of(tables: Tables, batch: int, *groups: str) -> None:
    frame = make(tables.spark, "commits", *(commit(batch, 1, group=one) for one in groups))
    tables.append("history", batch, {"commits": frame})


def test_new_rows_are_those_that_came_since(spark: SparkSession, tmp_path: Path) -> None:
    """Joined files have no new rows. If Delta has deleted the log or the files, all is new."""
    tables = Tables(spark=spark, folder=str(tmp_path / "it's `mine`"))

    def now() -> Progress:
        return Progress.of(tables.current(), ("commits", "ends"), "5 s", Scope())

    def new(last: Progress) -> set[str] | None:
        found = now().new_rows(tables, last)
        if found is None:
            return None
        return {row["group"] for name in found for row in found[name].select("group").collect()}

    commits_of(tables, 1, "a", "b")
    first = now()
    assert first.new_from_ms(tables, first) is None
    commits_of(tables, 2, "ü")
    assert new(first) == {"ü"}
    assert now().new_from_ms(tables, first) == 2
    second = now()
    commits_of(tables, 3, "a", "c")
    tables.execute("commits", f"OPTIMIZE {tables.in_sql('commits')}")
    third = now()
    assert (new(third), new(second), new(first)) == (set(), {"a", "c"}, {"a", "c", "ü"})
    vacuum(tables, "commits", 0)
    assert now().new_from_ms(tables, second) == UNKNOWN
    without_log(tables, "commits")
    assert new(second) is None
    assert now().new_from_ms(tables, second) == UNKNOWN
    commits_of(tables, 4, "d")
    assert new(third) == {"d"}


def without_log(tables: Tables, name: str) -> None:
    """Delete the log of a table, as Delta does after a time; its present state remains."""
    snapshot = tables.snapshot(name)
    snapshot.deltaLog().checkpoint()
    for file in (Path(tables.path(name)) / "_delta_log").glob("*.json"):
        if int(file.stem) < snapshot.version():
            file.unlink()


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Return the groups of each computation, which computes nothing."""
    monkeypatch.setattr(job, "_is_all", lambda *_: False)
    return watched(monkeypatch, lambda *_, **__: {})


def test_lag_is_new_only_for_groups_whose_episodes_it_may_change(
    tables: Tables, spark: SparkSession, computed: list[tuple[str, ...]]
) -> None:
    """Without members, new moments after the last commit change nothing; late moments may."""
    held = {"a": [0]}
    ended = (State(at_ms=1, generation=1, held=held), State(at_ms=60, generation=2, held={}))
    commits = tuple(every(10, (0, 50)))
    stories = {
        "alive": Story(states=ended[:1], commits=commits),
        "ended": Story(states=ended, commits=commits),
        "removed": Story(states=(*ended, State(at_ms=70, generation=2, held=REMOVED))),
        "without members": Story(states=(), commits=commits),
    }
    frames = tables_of(spark, stories)
    tables.append("history", 0, {name: frames[name] for name in HISTORY})

    def add(at_ms: int) -> None:
        tables.merge({"ends": make(spark, "ends", end(at_ms, 900))})
        write_lag(tables, "latest")

    add(100)
    write_episodes(tables)
    add(101)
    write_episodes(tables)
    write_episodes(tables)
    assert computed == [(), ("alive",)]
    add(55)
    write_episodes(tables)
    assert computed[2:] == [("alive", "ended", "removed")]
    add(45)
    write_episodes(tables)
    assert computed[3:] == [("alive", "ended", "removed", "without members")]


def test_rows_of_quiet_groups_go_on_with_the_end_of_the_history(
    tables: Tables, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without new commits: absences have no end, and waiting records open an outage.

    A killed run had moved the end already. What an ended life shows does not change.
    """
    left = (
        State(at_ms=0, generation=1, held={"a": [0], "b": [1]}),
        State(at_ms=60, generation=2, held={"b": [0, 1]}),
    )
    emptied = State(at_ms=70, generation=3, held={})
    commits = tuple(every(10, (0, 50)))
    lag = [{"topic": "orders", "partition": 0, "at_ms": 90, "lag": 0}]
    stories = {
        "quiet": Story(states=left, commits=commits),
        "emptied": Story(states=(*left, emptied), commits=commits, lag=lag),
        "removed": Story(states=(*left, emptied, State(at_ms=101, held=REMOVED)), commits=commits),
    }
    later = Story(states=(), lag=[{**lag[0], "at_ms": 120, "lag": 5}])
    none = {name: make(spark, name) for name in TELEMETRY}
    tables.read_until(100)
    add(tables, {**tables_of(spark, stories), **none})
    write_episodes(tables)
    tables.read_until(120)
    add(tables, {**tables_of(spark, {"emptied": later}), **none})
    with killed_at(Progress, "note", after=1):
        write_episodes(tables)
    tables.read_until(140)
    computed = watched(monkeypatch)
    write_episodes(tables)
    found = {name: rows(tables.read(name)) for name in EPISODES}
    tables.note("episodes", None)
    write_episodes(tables)
    assert found == {name: rows(tables.read(name)) for name in EPISODES}
    assert computed == [("emptied",), ()]
    observed = tables.read("absences").where("member_id = 'a'")
    assert rows(observed, "group", "observed_until_ms") == [
        *(("emptied", None), ("quiet", None), ("removed", 101))
    ]
    assert rows(tables.read("outages").where("end_ms IS NULL"), "group", "partition")[0] == (
        "emptied",
        0,
    )


def test_a_later_begin_computes_only_groups_with_rows_before_it(
    tables: Tables, spark: SparkSession, computed: list[tuple[str, ...]]
) -> None:
    at_days = {"old": 1, "left": 3, "present": 9}
    commits = [commit(day * DAY_MS, 1, group=name) for name, day in at_days.items()]
    tables.append("history", 0, {"commits": make(spark, "commits", *commits)})
    gone = [{"group": "gone", "gone_latest_ms": 4 * DAY_MS}]
    tables.replace("absences", make(spark, "absences", *gone))
    for day in (4, 4, 5, 6, 3):
        write_episodes(tables, scope=Scope(since_ms=day * DAY_MS))
    assert computed == [(), ("gone", "left"), ()]


@pytest.fixture
def days(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Return the days of the only absence and rebalance of each group; `write_episodes` uses it."""
    found = {"old": 5, "present": 9}

    def frames(tables: Tables, _: int, scope: Scope, *__: object, **___: object) -> dict[str, Any]:
        groups = scope.groups or tuple(found)
        return {
            name: make(
                tables.spark,
                name,
                *({"group": one, TABLES[name].time: found[one] * DAY_MS} for one in groups),
            )
            for name in ("absences", "rebalances")
        }

    monkeypatch.setattr(job, "_frames", frames)
    return found


def days_in(tables: Tables, name: str) -> dict[str, int]:
    return {row["group"]: row[TABLES[name].time] // DAY_MS for row in tables.read(name).collect()}


def committed(tables: Tables, batch: int, **days: int) -> None:
    commits = (commit(day * DAY_MS + batch, 1, group=group) for group, day in days.items())
    frame = make(tables.spark, "commits", *commits)
    tables.append("history", batch, {"commits": frame})


def test_rows_that_a_killed_run_has_deleted_come_back(tables: Tables, days: dict[str, int]) -> None:
    """The killed run began later, and replaced rows of a group without new input."""
    committed(tables, 0, **days)
    write_episodes(tables, scope=Scope(since_ms=DAY_MS))
    with killed_at(Progress, "note", after=1):
        write_episodes(tables, scope=Scope(since_ms=7 * DAY_MS))
    assert days_in(tables, "absences") != days
    committed(tables, 1, present=9)
    write_episodes(tables, scope=Scope(since_ms=2 * DAY_MS))
    assert days_in(tables, "absences") == days_in(tables, "rebalances") == days


def test_rows_of_a_killed_run_are_mended_by_the_next_one(
    tables: Tables, days: dict[str, int]
) -> None:
    """The run is killed between two tables. Then groups of the next run have new input, too."""
    committed(tables, 0, **days)
    write_episodes(tables)
    days["old"] = 6
    committed(tables, 1, old=6)
    with killed_at(Tables, "replace", after=1):
        write_episodes(tables)
    assert days_in(tables, "absences") != days_in(tables, "rebalances")
    committed(tables, 2, present=9)
    write_episodes(tables)
    assert days_in(tables, "absences") == days_in(tables, "rebalances") == days


def test_of_two_runs_at_once_one_fails_and_the_next_run_mends_the_tables(
    tables: Tables, days: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run with older input replaces a table that the other run has replaced, and one before."""
    committed(tables, 0, **days)
    write_episodes(tables)
    committed(tables, 1, old=5)
    replace = Tables.replace
    waiting: list[Any] = []
    with monkeypatch.context() as patched:
        patched.setattr(Tables, "replace", lambda *args: waiting.append(args))
        patched.setattr(Progress, "note", lambda self, *_, **__: self)
        write_episodes(tables)
    days["old"] = 6
    committed(tables, 2, old=6)

    def interleaved(*args: Any) -> None:  # noqa: ANN401 - those of the method
        replace(*args)
        if waiting:
            replace(*waiting.pop())
            if not waiting:
                tables.note("episodes", None)

    monkeypatch.setattr(Tables, "replace", interleaved)
    with pytest.raises(PipelineError, match="by another job at the same time; run this job again"):
        write_episodes(tables)
    write_episodes(tables)
    assert days_in(tables, "absences") == days_in(tables, "rebalances") == days


def test_episodes_of_groups_with_new_input_are_as_if_all_were_computed(
    tables: Tables, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Late commits, states, lag and telemetry; other groups are not computed.

    The first run writes a mark for each group, so a row that was not replaced is visible.
    """
    chance = random.Random(18)
    frames = tables_of(spark, {name: story_of(chance) for name in "gh"})
    # New moments are new for all groups with lag.
    frames["lag"] = frames["lag"].where("`group` = 'g'")
    frames |= {name: make(spark, name, *given) for name, given in zip(TELEMETRY, TOLD, strict=True)}
    marked = [
        [{"group": group, TABLES[name].time: 1} for group in (*LATE, *OTHERS)] for name in EPISODES
    ]
    marks = {name: make(spark, name, *given) for name, given in zip(EPISODES, marked, strict=True)}
    runs, compute = count(), job._frames  # noqa: SLF001 - the first run only writes marks

    def marks_first(*args: Any, **named: Any) -> dict[str, DataFrame]:  # noqa: ANN401
        return compute(*args, **named) if next(runs) else marks

    computed = watched(monkeypatch, marks_first)

    def found() -> dict[str, list[tuple[Any, ...]]]:
        return {name: rows(tables.read(name)) for name in EPISODES}

    add(tables, {name: frame.where(f"NOT {IS_LATE}") for name, frame in frames.items()})
    write_episodes(tables)
    add(tables, {name: frame.where(IS_LATE) for name, frame in frames.items()})
    write_episodes(tables)
    late = found()
    write_episodes(tables)
    assert computed == [(), LATE]
    for some in late.values():
        assert [row[0] for row in some if row[0] not in LATE] == [*OTHERS]
        assert {row[0] for row in some} >= {"g"}
    # A run with another scope computes all rows of its groups.
    write_episodes(tables, scope=Scope(groups=LATE))
    assert found() == late
    assert computed == [(), LATE, LATE]


def add(tables: Tables, frames: dict[str, DataFrame]) -> None:
    """Add rows to raw tables, and to `lag` as if a job had computed them from new ends."""
    batch = 0 if tables.noted("lag") is None else 1
    tables.append("history", batch, {name: frames[name] for name in (*HISTORY, *TELEMETRY)})
    moments = frames["lag"].selectExpr("'other' AS topic", "0 AS partition", "at_ms").distinct()
    columns = [
        sql.lit(None).cast(one.dataType).alias(one.name) for one in TABLES["ends"].schema.fields[3:]
    ]
    tables.merge({"ends": moments.select("*", *columns)})
    lag = tables.read("lag").unionByName(frames["lag"]) if batch else frames["lag"]
    tables.replace("lag", lag.localCheckpoint())
    before = Progress.last(tables, "lag")
    input_ = ("commits", "members", "generations", "ends")
    Progress.of(tables.current(), input_, "latest", Scope()).note(tables, "lag", after=before)


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


def test_episodes_of_a_part_are_those_of_the_whole(
    tables: Tables, spark: SparkSession, ordinary: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of other groups stay, and rows before the time are left out, in any session."""
    kill_ms = (DAY_MS, 5 * DAY_MS)
    alive = [(0, kill_ms[0]), (kill_ms[0] + 60_000, kill_ms[1]), (kill_ms[1] + 60_000, 6 * DAY_MS)]
    story = Story(
        states=(
            State(at_ms=0, generation=1, held={"a1@a@h": [0], "b@b@h": [1]}),
            State(at_ms=kill_ms[0] + 30_000, generation=2, held={"b@b@h": [0, 1]}),
            State(at_ms=kill_ms[0] + 60_000, generation=3, held={"a2@a@h": [0], "b@b@h": [1]}),
            State(at_ms=kill_ms[1] + 30_000, generation=4, held={"b@b@h": [0, 1]}),
            State(at_ms=kill_ms[1] + 60_000, generation=5, held={"a3@a@h": [0], "b@b@h": [1]}),
        ),
        commits=tuple(every(600_000, *alive)),
    )
    frames = tables_of(spark, {"g": story, "h": story})
    tables.append("history", 0, {name: frame for name, frame in frames.items() if name != "lag"})

    def found(name: str, where: str = "true") -> list[tuple[object, ...]]:
        return rows(tables.read(name).where(where))

    write_episodes(tables)
    whole = {name: found(name) for name in EPISODES[:3]}
    assert {name: len(some) for name, some in whole.items()} == {
        "rebalances": 10,
        "outages": 8,
        "absences": 4,
    }
    since = Scope(groups=("h",), since_ms=4 * DAY_MS)
    recent = {
        name: found(name, f"`group` = 'g' OR {TABLES[name].time} >= {since.since_ms}")
        for name in EPISODES[:3]
    }
    monkeypatch.setattr("coopgroup.pipeline.tables.FEW_ROWS", 0)
    write_episodes(evolve(tables, spark=ordinary), scope=since)
    assert {name: found(name) for name in EPISODES[:3]} == recent
    assert all(len(recent[name]) < len(whole[name]) for name in EPISODES[:3])
