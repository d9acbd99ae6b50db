"""The jobs of `coopgroup pipeline`: history, lag, telemetry, episodes.

Rules of this file: what can be known to be wrong is found before Spark starts; what a job did is
said in a line for each table.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from attrs import evolve

from coopgroup.cli.interruption import interruption
from coopgroup.cli.pipeline.options import (
    Place,
    cluster_options,
    group_option,
    scope_of,
    scope_options,
    tables_options,
)
from coopgroup.errors import ConfigurationError, PipelineError
from coopgroup.pipeline.spark.session import in_one_line
from coopgroup.printable import printable
from coopgroup.report.wording import counted

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from coopgroup.pipeline.ends import Cluster
    from coopgroup.pipeline.scope import Scope
    from coopgroup.pipeline.sources import Source
    from coopgroup.pipeline.tables import Tables

_INTERNAL_TOPIC: Final = "__consumer_offsets"
_MS_PER_S: Final = 1_000
_LOOK_S: Final = 1
_WRITE_S_MAX: Final = 60.0
_TIDY_S: Final = 600.0
_KEPT_HOURS: Final = 1
_NOTED_S: Final = 60.0
_LINES_MAX: Final = 10
_BEGUN_S_MAX: Final = 120.0
_WAITS: Final = re.compile("Initializing sources|Getting offsets from|Initializing StreamExecution")
_HISTORY: Final = ("commits", "generations", "members", "assignments")
_OF_TELEMETRY: Final = ("events", "rounds", "work")
_EPISODES: Final = ("rebalances", "outages", "absences", "skew")

_follow = click.option(
    "--follow",
    "every_s",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Go on until interrupted, and look for more so often.",
)


@click.command("history")
@tables_options
@cluster_options
@click.option(
    "--topic", default=_INTERNAL_TOPIC, show_default=True, help="The topic with the history."
)
@group_option()
@_follow
def history(
    *,
    place: Place,
    cluster: tuple[Cluster, dict[str, str]],
    topic: str,
    groups: Sequence[str],
    every_s: float | None,
) -> None:
    """Read the history of groups, of any client, from the brokers into tables.

    What was read before is not read again: run it as often as you like, or let it follow. The
    groups of the first run are those of all later runs.
    """
    scope = scope_of(groups, None)
    brokers, options = cluster
    source = evolve(brokers.source(topic, "no group has ever committed"), groups=scope.groups)
    options |= all_partitions(brokers, topic)
    tables = place.tables()
    with in_one_line():
        read_history(tables, brokers, options, source, every_s)
        _tell(tables, (*_HISTORY, "rejected"))
    require_some(tables, topic, scope.groups)


@click.command("lag")
@tables_options
@cluster_options
@click.option(
    "--reset",
    type=click.Choice(["earliest", "latest"]),
    default="latest",
    show_default=True,
    help="auto.offset.reset of the consumers: what counts where nothing is committed.",
)
@click.option(
    "--every",
    type=click.FloatRange(min=0.1),
    show_default="60, or more for a long history",
    help="Seconds between the moments of which the lag is computed.",
)
@scope_options("7d")
@_follow
def lag(
    *,
    place: Place,
    cluster: tuple[Cluster, dict[str, str]],
    reset: str,
    every: float | None,
    scope: Scope,
    every_s: float | None,
) -> None:
    """Compute lag and load of groups, from their history and the ends of their partitions.

    The ends of earlier moments are asked from the brokers. With --follow the history is read on at
    the same time.
    """
    if every_s is None:
        place.require_folder()
    brokers, options = cluster
    cluster_id = brokers.cluster()
    tables = place.tables()
    with in_one_line():
        if every_s is None:
            tables.require("commits", "coopgroup pipeline history")
            _check_cluster(tables, cluster_id)
            tell_unknown(tables, scope, compute_lag(tables, brokers, reset, scope, every))
        else:
            source = brokers.source(_INTERNAL_TOPIC, "no group has ever committed")
            options |= all_partitions(brokers, _INTERNAL_TOPIC)
            with interruption() as interrupted:
                query = _start_history(tables, brokers, options, source, every_s)
                tidied_s, told = time.monotonic(), frozenset[str]()
                while query.isActive and not interrupted.is_set():
                    _note_end(tables, query)
                    if tables.as_of_ms() is not None:
                        with _told_conflicts():
                            gone = compute_lag(tables, brokers, reset, scope, every, is_now=True)
                            _tell_gone(tables, scope, {*gone} - told)
                            told = frozenset(gone)
                    if time.monotonic() - tidied_s > _TIDY_S:
                        _delete_replaced(tables)
                        tidied_s = time.monotonic()
                    interrupted.wait(every_s)
                _stop(query)
        _tell(tables, ("ends", "lag", "loads"))


@click.command("telemetry")
@click.argument("files", nargs=-1, metavar="[FILE]...", type=click.Path(path_type=Path))
@tables_options
@cluster_options
@click.option("--topic", help="A topic with telemetry, in place of files.")
@_follow
def telemetry(
    *,
    files: Sequence[Path],
    place: Place,
    cluster: tuple[Cluster, dict[str, str]],
    topic: str | None,
    every_s: float | None,
) -> None:
    """Read telemetry of coopgroup's members from files, or from a topic, into tables.

    What was read before is not read again, also where a file has grown since.
    """
    if bool(files) == (topic is not None):
        raise click.UsageError("give files, or --topic")
    if files and every_s is not None:
        raise click.UsageError("--follow needs --topic")
    for file in files:
        if not file.exists():
            raise ConfigurationError("FILE", str(file), "a file or folder that exists")
    from coopgroup.pipeline import telemetry as job  # noqa: PLC0415 - needs the extra
    from coopgroup.pipeline.history import kafka_records  # noqa: PLC0415 - likewise

    options = source = None
    if topic is not None:
        brokers, options = cluster
        source = brokers.source(topic, "no member writes telemetry to it")
        options |= all_partitions(brokers, topic)
    tables = place.tables()
    with in_one_line():
        if topic is None or options is None or source is None:
            lines = job.file_lines(tables.spark, [file.resolve().as_uri() for file in files])
            job.write_telemetry(lines, tables)
        else:
            _claim(tables, "telemetry", source)
            raw = kafka_records(tables.spark, options, topic=topic, is_stream=True)
            _finish(job.start_telemetry(raw, tables, topic=topic, every_s=every_s))
        _tell(tables, (*_OF_TELEMETRY, "rejected"))
        tables.require("events", "coopgroup pipeline telemetry with telemetry of coopgroup")


@click.command("episodes")
@tables_options
@click.option(
    "--settle",
    type=click.FloatRange(min=0),
    default=5,
    show_default=True,
    help="Rounds within so many seconds belong to one rebalance.",
)
@scope_options()
def episodes(
    *,
    settle: float,
    place: Place,
    scope: Scope,
) -> None:
    """Find rebalances, outages, absences and skew in the tables."""
    place.require_folder()
    from coopgroup.pipeline.episodes.job import write_episodes  # noqa: PLC0415 - needs the extra

    tables = place.tables(is_brief=True)
    with in_one_line():
        if tables.read("events").isEmpty():
            tables.require("generations", "coopgroup pipeline history or telemetry")
        write_episodes(tables, int(settle * _MS_PER_S), scope)
        _tell(tables, _EPISODES)


# --- parts ----------------------------------------------------------------------------------------


def all_partitions(brokers: Cluster, topic: str) -> dict[str, str]:
    """Return the option of Spark's source that reads a topic without a consumer group."""
    return {"assign": json.dumps({topic: [*range(brokers.partitions()[topic])]})}


def read_history(
    tables: Tables,
    brokers: Cluster,
    options: dict[str, str],
    source: Source,
    every_s: float | None = None,
) -> None:
    """Read the history of groups from a topic.

    Args:
        tables: tables to write to.
        brokers: know the names of topics, of which groups of KIP-848 tell only ids.
        options: options of Spark's Kafka source, with those of `all_partitions`.
        source: the topic, and its groups to read.
        every_s: seconds between batches, until the user ends it; `None` reads the present records.

    Raises:
        PipelineError: the tables are from another cluster or of other groups, or lack their
            checkpoint.
    """
    begin_ms = _now_ms()
    query = _start_history(tables, brokers, options, source, every_s)
    if every_s is None:
        if _finish(query):
            tables.read_until(begin_ms)
    else:
        _follow_to_the_end(tables, query)


def _follow_to_the_end(tables: Tables, query: StreamingQuery) -> None:
    begin_s, noted_s = time.monotonic(), -_NOTED_S
    with interruption() as interrupted:
        while query.isActive and not interrupted.is_set():
            query.awaitTermination(_LOOK_S)
            _check_begun(query, begin_s)
            if time.monotonic() - noted_s > _NOTED_S and _note_end(tables, query):
                noted_s = time.monotonic()
        _stop(query)
    _note_end(tables, query)


def _note_end(tables: Tables, query: StreamingQuery) -> bool:
    """Record the begin of the last batch, if it read the topic to its end; return whether."""
    progress = query.lastProgress
    if progress is None:
        return False
    read = all(one.endOffset == one.latestOffset for one in progress.sources)
    if read:
        begin = datetime.fromisoformat(progress.timestamp)
        tables.read_until(int(begin.timestamp() * _MS_PER_S))
    return read


def _claim(tables: Tables, job: str, source: Source) -> tuple[str, ...]:
    from coopgroup.pipeline.sources import claim_source  # noqa: PLC0415 - an extra

    return claim_source(tables, job, source)


def _check_cluster(tables: Tables, cluster: str) -> None:
    from coopgroup.pipeline.sources import check_cluster  # noqa: PLC0415 - an extra

    check_cluster(tables, "history", cluster)


def _start_history(
    tables: Tables,
    brokers: Cluster,
    options: dict[str, str],
    source: Source,
    every_s: float | None,
) -> StreamingQuery:
    from coopgroup.pipeline.history import kafka_records, start_history  # noqa: PLC0415 - an extra

    scope = scope_of(_claim(tables, "history", source), None)
    raw = kafka_records(tables.spark, options, topic=source.topic, is_stream=True)
    return start_history(
        *(raw, tables),
        source=source.topic,
        every_s=every_s,
        scope=scope,
        names=brokers.names,
    )


def _finish(query: StreamingQuery) -> bool:
    """Wait for the end of a query, or end it when the user does; return whether it ended itself.

    Raises:
        PipelineError: the brokers do not tell where the topic ends.
    """
    begin_s = time.monotonic()
    with interruption() as interrupted:
        while query.isActive and not interrupted.is_set():
            query.awaitTermination(_LOOK_S)
            _check_begun(query, begin_s)
        is_over = not query.isActive
        _stop(query)
    return is_over


def _check_begun(query: StreamingQuery, begin_s: float) -> None:
    """Refuse a query that waits for its first offsets: Spark itself would wait for ever."""
    is_waiting = query.lastProgress is None and _WAITS.match(query.status["message"])
    if is_waiting and time.monotonic() - begin_s > _BEGUN_S_MAX:
        raise PipelineError(
            f"the brokers did not tell in {_BEGUN_S_MAX:.0f} s where the topic ends: the user "
            "needs the rights to read and describe the topic, and to describe groups that begin "
            "with spark-kafka-source"
        )


def _stop(query: StreamingQuery) -> None:
    """End a query, when it has written what it is writing; what it could not do is raised."""
    deadline = time.monotonic() + _WRITE_S_MAX
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
        query.awaitTermination(_LOOK_S)
    if query.isActive:
        query.stop()
    else:
        query.awaitTermination()


def compute_lag(
    tables: Tables,
    brokers: Cluster,
    reset: str,
    scope: Scope,
    every_s: float | None,
    *,
    is_now: bool = False,
) -> tuple[str, ...]:
    """Look up ends, of now only or also of earlier moments, and bring the lag up to date.

    Args:
        tables: tables with a history.
        brokers: the cluster of that history.
        reset: `auto.offset.reset` of the consumers.
        scope: groups, and begin of the lag.
        every_s: seconds between moments; `None` chooses them by the length of the history.
        is_now: whether to look up the present ends only.

    Returns:
        The committed topics that do not exist, or that the user may not describe.
    """
    from coopgroup.pipeline import ends  # noqa: PLC0415 - needs the extra
    from coopgroup.pipeline.lag import committed_topics, write_lag  # noqa: PLC0415 - likewise

    topics, first_ms = committed_topics(tables, scope)
    if not topics:
        return ()
    now_ms = _now_ms()
    # Lag has no later moments: the commits until then are not read yet.
    until_ms = min(now_ms, tables.as_of_ms() or now_ms)
    first_ms = max(scope.since_ms, first_ms)
    every_ms = ends.step_ms(first_ms, until_ms) if every_s is None else int(every_s * _MS_PER_S)
    grid = range(0) if is_now else ends.grid_ms(first_ms, until_ms, every_ms)
    # The end of the history is the newest moment with a known lag.
    gone = ends.write_ends(tables, brokers, topics, grid, now_ms, None if is_now else until_ms)
    write_lag(tables, reset, scope)
    return gone


def tell_unknown(tables: Tables, scope: Scope, gone: Collection[str]) -> None:
    """Report on standard error which lags are unknown, and why.

    Args:
        tables: with lag.
        scope: groups, and begin of the lag.
        gone: from `compute_lag`.
    """
    from coopgroup.pipeline.lag import unknown_of  # noqa: PLC0415 - needs the extra

    _tell_gone(tables, scope, gone)
    found = unknown_of(tables, scope)
    for topic, partition, moments in found[:_LINES_MAX]:
        _complain(
            f"lag of {topic}[{partition}] is unknown at {counted(moments, 'moment')}: a record has"
            " a later timestamp than records after it, so the end then is not known"
        )
    if len(found) > _LINES_MAX:
        _complain(f"lag of {len(found) - _LINES_MAX} more partitions is unknown, likewise")


def _tell_gone(tables: Tables, scope: Scope, gone: Collection[str]) -> None:
    """Report topics without ends to which groups committed in the time of the scope."""
    if not gone:
        return
    from coopgroup.pipeline.lag import used_topics  # noqa: PLC0415 - needs the extra

    for topic in sorted(used_topics(tables, scope) & {*gone}):
        _complain(
            f"lag of {topic} is unknown: the topic does not exist, or the user may not describe it"
        )


def _complain(message: str) -> None:
    click.echo(f"coopgroup: {printable(message)}", err=True)


@contextmanager
def _told_conflicts() -> Iterator[None]:
    """Go on after a conflict with another job, such as `optimize`: the next round computes it."""
    from coopgroup.pipeline.tables import ConflictError  # noqa: PLC0415 - needs the extra

    try:
        yield
    except ConflictError as error:
        click.echo(f"{error.what} was changed by another job; the next round goes on", err=True)


def _delete_replaced(tables: Tables) -> None:
    """Delete replaced files, of which each round of --follow leaves some on disk."""
    from coopgroup.pipeline.upkeep import vacuum  # noqa: PLC0415 - needs the extra

    for name in ("lag", "loads"):
        if name in tables.versions():
            vacuum(tables, name, _KEPT_HOURS)


def require_some(tables: Tables, topic: str, groups: Sequence[str] = ()) -> None:
    """Refuse a topic without history.

    Raises:
        PipelineError: the tables have neither a commit nor a group.
    """
    if not (tables.read("commits").isEmpty() and tables.read("generations").isEmpty()):
        return
    if groups:
        raise PipelineError(f"{topic} has no history of group {' or '.join(groups)}")
    if tables.read("rejected").isEmpty():
        raise PipelineError(f"{topic} is empty: no group has committed or joined yet")
    raise PipelineError(f"{topic} holds no history: none of its records is a commit or a group")


def _tell(tables: Tables, names: Sequence[str]) -> None:
    read = tables.current().read
    for name in names:
        click.echo(f"{name}: {counted(read(name).count(), 'row')}")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
