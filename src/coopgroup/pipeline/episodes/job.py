"""The job that computes the tables of episodes: `rebalances`, `outages`, `absences`, `skew`.

Groups are independent of each other. The job computes the episodes of a group only if the group has
new input since the last run (see `progress`), and then from its whole history. A part of it would
not be enough: a late commit changes the usual interval of its partition. All is computed by joins
and windows, and no row passes through the driver.

Frames with several uses are computed once and stored (`keep`). Otherwise Spark would analyse the
whole plan of a frame at each step, and a plan that is joined with itself repeatedly grows without
bounds.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import reduce
from itertools import count
from typing import TYPE_CHECKING, Final

from attrs import evolve, frozen
from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no types
from pyspark.errors import PySparkException
from pyspark.sql import functions as sql

from coopgroup import __version__
from coopgroup.pipeline.episodes.absences import (
    absences_of,
    arrivals_of,
    departures_of,
    identities_of,
)
from coopgroup.pipeline.episodes.outages import (
    open_outages_of,
    outages_of,
    outages_of_work,
    patience_of,
)
from coopgroup.pipeline.episodes.processes import (
    holders_of,
    members_of,
    states_of,
    steps_of,
    worked_commits,
)
from coopgroup.pipeline.episodes.rebalances import (
    SETTLE_MS,
    led_rebalances,
    numbered_steps,
    owner_changes,
    rebalances_of,
    rebalances_of_rounds,
)
from coopgroup.pipeline.episodes.work_spans import known_members, work_spans
from coopgroup.pipeline.folders import Folders
from coopgroup.pipeline.lag import LAG_JOB, skew_of
from coopgroup.pipeline.progress import UNKNOWN, Progress, is_deleted
from coopgroup.pipeline.schemas import TABLES
from coopgroup.pipeline.scope import ALL, Scope, in_groups

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from coopgroup.pipeline.tables import Keep, Tables

__all__ = [
    "EPISODES_INPUT",
    "EPISODES_JOB",
    "Context",
    "checkpointed",
    "history_episodes",
    "telemetry_episodes",
    "write_episodes",
]

EPISODES_JOB: Final = "episodes"
_HISTORY: Final = ("commits", "generations", "members", "assignments")
_TELEMETRY: Final = ("events", "rounds", "work")
EPISODES_INPUT: Final = (*_HISTORY, *_TELEMETRY)
_OUTPUT: Final = ("rebalances", "outages", "absences", "skew")
_GROUPS_MAX: Final = 1_000  # a condition with more names is slower than all groups
_CONTEXT_MS: Final = 86_400_000
"""Commits of this time before the begin of a `Scope` count: an outage may have begun there, and
they show the usual interval of a partition."""


def checkpointed(frame: DataFrame) -> DataFrame:
    """Compute a frame and keep its rows on the executors, for tests and small data."""
    return frame.localCheckpoint()


@frozen(kw_only=True)
class Context:
    """What a computation of episodes needs beside the tables.

    Attributes:
        settle_ms: longest pause between two rounds of one rebalance.
        as_of_ms: end of the history; `None` if unknown, then there are no open outages.
        identities: from `absences.identities_of`; `None` without telemetry.
        keep: computes a frame with several uses, and returns it without its plan.
    """

    settle_ms: int = SETTLE_MS
    as_of_ms: int | None = None
    identities: DataFrame | None = None
    keep: Keep = checkpointed


def history_episodes(
    commits: DataFrame,
    generations: DataFrame,
    members: DataFrame,
    assignments: DataFrame,
    *,
    lag: DataFrame,
    context: Context,
) -> dict[str, DataFrame]:
    """Return the episodes of groups of any client.

    Args:
        commits: the table, as the others.
        generations: of the same groups.
        members: of the same groups.
        assignments: of the same groups.
        lag: may be empty; then there is no skew.
        context: see there.
    """
    states = context.keep(states_of(generations))
    present = context.keep(members_of(members, states))
    return _of_states(commits, states, present, assignments, lag, context)


def _of_states(
    commits: DataFrame,
    states: DataFrame,
    present: DataFrame,
    assignments: DataFrame,
    lag: DataFrame,
    context: Context,
) -> dict[str, DataFrame]:
    """Return the episodes as `history_episodes` does, from states and their members."""
    keep, as_of_ms = context.keep, context.as_of_ms
    holders = keep(holders_of(assignments, present))
    numbered = keep(numbered_steps(steps_of(states), context.settle_ms))
    changes = keep(owner_changes(holders, numbered))
    work = keep(worked_commits(commits, states))
    gaps = outages_of(changes, work, lag, patience_of(present))
    if as_of_ms is not None:
        gaps = gaps.unionByName(open_outages_of(numbered, holders, work, lag, as_of_ms))
    outages = keep(gaps)
    return {
        "rebalances": rebalances_of(numbered, present, changes, outages),
        "outages": outages.where("is_observed").select(*TABLES["outages"].schema.names),
        "absences": absences_of(
            departures_of(present, states, holders, work),
            arrivals_of(present),
            states,
            commits,
            context.identities,
            as_of_ms,
        ),
        "skew": skew_of(lag, states, holders),
    }


def telemetry_episodes(
    events: DataFrame,
    rounds: DataFrame,
    work: DataFrame,
    *,
    known: DataFrame,
    keep: Keep = checkpointed,
) -> dict[str, DataFrame]:
    """Return the episodes of coopgroup groups.

    Args:
        events: the table, as the others.
        rounds: of the same groups.
        work: of the same groups.
        known: the history's data on the members, from `work_spans.known_members`.
        keep: computes a frame with several uses, and returns it without its plan.
    """
    led = keep(led_rebalances(rounds))
    spans = keep(work_spans(work, events, led, known))
    outages = keep(outages_of_work(spans))
    return {
        "rebalances": rebalances_of_rounds(led, spans, events, outages),
        "outages": outages.select(*TABLES["outages"].schema.names),
    }


def write_episodes(tables: Tables, settle_ms: int = SETTLE_MS, scope: Scope = ALL) -> None:
    """Bring the episodes up to date with history and telemetry.

    Only groups with new input are computed. The job computes all groups of the scope if it cannot
    continue the last run: after other settings, another scope or release, or if changes of the
    input are no longer known.

    Args:
        tables: with history, telemetry or both.
        settle_ms: longest pause between two rounds of one rebalance in the history.
        scope: groups, and begin of the episodes.

    Raises:
        ConflictError: another process ran the job at the same time.
    """
    of_lag = Progress.last(tables, LAG_JOB)  # first, because `lag` notes it after its rows
    tables = tables.current()
    settings = f"{__version__}, settled in {settle_ms} ms"
    now = evolve(Progress.of(tables, EPISODES_INPUT, settings, scope), lag=of_lag)
    last = Progress.last(tables, EPISODES_JOB)
    if last == now:
        return
    groups = None
    if last is None or not now.continues(last):
        tables.note(EPISODES_JOB, None)
        last = None
    else:
        groups = _new_groups(tables, now, last, scope)
        # First, because a later run with an earlier begin must not rely on rows of this run.
        last = evolve(last, since_ms=scope.since_ms).note(tables, EPISODES_JOB, after=last)
    if groups is None or groups:
        if groups and not _is_all(tables, scope, groups):
            scope = evolve(scope, groups=groups)
        sized = tables.for_rows_of("commits", "lag", "events")
        is_few = sized is not tables
        with _staging(sized, is_few=is_few) as keep:
            frames = _frames(sized, settle_ms, scope, keep, is_few=is_few)
            where = in_groups(scope.groups) if scope.groups else ""
            for name, frame in frames.items():
                sized.replace(name, scope.since(frame, TABLES[name].time), where)
    now.note(tables, EPISODES_JOB, after=last)


def _new_groups(
    tables: Tables, now: Progress, last: Progress, scope: Scope
) -> tuple[str, ...] | None:
    """Return the groups of the scope to compute, ascending; `None` for all."""
    rows = now.new_rows(tables, last)
    of_lag = _with_new_lag(tables, now.lag, last.lag, scope)
    if rows is None or of_lag is None:
        return None
    found = [*of_lag, *(one.select("group") for one in rows.values())]
    if last.as_of_ms != now.as_of_ms:
        found.append(tables.read("outages").where(sql.col("end_ms").isNull()).select("group"))
    if last.since_ms < scope.since_ms:
        found += _groups_before(tables, last.since_ms, scope.since_ms)
    if not found:
        return ()
    groups = scope.of_groups(reduce(lambda one, other: one.union(other), found)).distinct()
    try:
        names = sorted(row.group for row in groups.limit(_GROUPS_MAX + 1).collect())
    except (PySparkException, Py4JError) as error:
        if not is_deleted(error):
            raise
        return None
    return tuple(names) if len(names) <= _GROUPS_MAX else None


def _with_new_lag(
    tables: Tables, now: Progress | None, last: Progress | None, scope: Scope
) -> list[DataFrame] | None:
    """Return the groups whose episodes new rows of lag may change; `None` for all groups.

    Args:
        tables: with history and lag.
        now: progress of `lag`.
        last: the same when episodes were last computed.
        scope: the groups.
    """
    if now == last:
        return []
    if now is None or last is None or not now.continues(last):
        return None
    if last.since_ms < now.since_ms > scope.since_ms:
        return None  # rows of the scope were deleted
    from_ms, rows = now.new_from_ms(tables, last), now.new_rows(tables, last)
    if from_ms is None:
        return []
    if from_ms == UNKNOWN or rows is None:
        return None
    # Rows of lag may also have vanished: their groups have new commits or members then.
    found = [rows[name].select("group") for name in rows if name != "ends"]
    lag = tables.read("lag").where(sql.col("at_ms") >= from_ms)
    return [*found, _changed_by(lag, tables, from_ms, scope)]


def _changed_by(lag: DataFrame, tables: Tables, from_ms: int, scope: Scope) -> DataFrame:
    """Return the groups whose episodes new rows of lag may change.

    Every run of `lag` adds rows for every group that has commits. Without members there is no skew.
    And an outage lies between two commits, or is open because records wait. So without waiting
    records, the rows after the last commit and the last member of a group change nothing.

    Args:
        lag: new rows.
        tables: with history.
        from_ms: time from which on rows are new.
        scope: the groups.
    """
    first = lag.groupBy("group").agg(
        sql.min("at_ms").alias("first_ms"), sql.max("lag").alias("lag_max")
    )
    commits = scope.of_groups(tables.read("commits")).where(sql.col("at_ms") >= from_ms)
    committed = commits.groupBy("group").agg(sql.max("at_ms").alias("committed_ms"))
    state = sql.struct("is_tombstone", "member_count")
    states = scope.of_groups(tables.read("generations")).groupBy("group")
    present = states.agg(
        sql.max_by(state, sql.struct("at_ms", "source_offset")).alias("state"),
        sql.max(sql.greatest("at_ms", "written_ms")).alias("state_ms"),
    )
    known = first.join(committed, "group", "left").join(present, "group", "left")
    is_earlier = sql.col("first_ms") <= sql.greatest("committed_ms", "state_ms")
    # Without an end of the history there are no open outages.
    waits = (sql.col("lag_max") > 0) & sql.lit(tables.as_of_ms() is not None)
    may_change = ~sql.col("state.is_tombstone") & ((sql.col("state.member_count") > 0) | waits)
    return known.where(may_change | is_earlier).select("group")


def _groups_before(tables: Tables, from_ms: int, until_ms: int) -> list[DataFrame]:
    """Return the groups with rows that no longer count, because the begin of the scope moved on.

    Args:
        tables: with history and episodes.
        from_ms: begin of the last scope.
        until_ms: begin of this scope.
    """
    found = []
    for name in ("commits", "lag", *_OUTPUT):
        before_ms = 0 if name in _OUTPUT else _CONTEXT_MS
        at_ms = sql.col(TABLES[name].time)
        is_before = (at_ms >= from_ms - before_ms) & (at_ms < until_ms - before_ms)
        found.append(tables.read(name).where(is_before).select("group"))
    return found


def _is_all(tables: Tables, scope: Scope, groups: Sequence[str]) -> bool:
    """Return whether all rows of the scope are of some groups, so that all can be replaced."""
    rows = (scope.of_groups(tables.read(name)).select("group") for name in _OUTPUT)
    found = reduce(lambda one, other: one.union(other), rows)
    return found.where(~sql.col("group").isin(*groups)).isEmpty()


def _frames(
    tables: Tables, settle_ms: int, scope: Scope, keep: Keep, *, is_few: bool
) -> dict[str, DataFrame]:
    """Return the episodes of a scope, and rows of the time before it."""

    def read(name: str) -> DataFrame:
        return _in_tasks(scope.of_groups(tables.read(name)), is_few=is_few)

    def recent(name: str) -> DataFrame:
        rows = scope.since(read(name), before_ms=_CONTEXT_MS)
        # Delta takes a Spark job for each use of a table, which costs more than few rows do.
        return keep(rows) if is_few else rows

    def of_history() -> dict[str, DataFrame]:
        if "generations" not in known:
            return {}
        commits, assignments = recent("commits"), read("assignments")
        context = Context(
            settle_ms=settle_ms,
            as_of_ms=tables.as_of_ms(),
            identities=identities_of(read("events")) if "events" in known else None,
            keep=keep,
        )
        lag = recent("lag").where(sql.col("lag").isNotNull())
        return _of_states(commits, states, present, assignments, lag, context)

    def of_telemetry() -> dict[str, DataFrame]:
        if "events" not in known:
            return {}
        events = keep(read("events")) if is_few else read("events")
        rounds, work = read("rounds"), read("work")
        return telemetry_episodes(events, rounds, work, known=known_members(present), keep=keep)

    known = tables.versions()
    states = keep(states_of(read("generations")))
    present = keep(members_of(read("members"), states))
    # With few rows, most of the time goes into plans, and a thread makes one plan at a time.
    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(of_telemetry)
        frames = of_history()
        for name, frame in second.result().items():
            frames[name] = frames[name].unionByName(frame) if name in frames else frame
    return frames


def _in_tasks(frame: DataFrame, *, is_few: bool) -> DataFrame:
    """Return a frame in one task if it has few rows, because then Spark need not shuffle them."""
    return frame.coalesce(1) if is_few else frame


@contextmanager
def _staging(tables: Tables, *, is_few: bool) -> Iterator[Keep]:
    """Yield a function that stores a frame, and returns it without its plan.

    Few rows stay in the memory of the executors: writing and reading a file would take longer. Many
    rows are stored as Parquet. The files are deleted afterwards.
    """
    if is_few:
        yield lambda frame: checkpointed(_in_tasks(frame, is_few=True))
        return
    numbers = count()
    folder = f"{tables.path('staging')}/{EPISODES_JOB}-{uuid.uuid4()}"

    def keep(frame: DataFrame) -> DataFrame:
        path = f"{folder}/{next(numbers)}"
        frame.write.parquet(path)
        return tables.spark.read.schema(frame.schema).parquet(path)

    try:
        yield keep
    finally:
        Folders(tables.spark).delete(folder)
