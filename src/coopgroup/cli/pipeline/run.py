"""`coopgroup pipeline run`: all jobs in one call, for a scheduler such as cron, Airflow or Dagster.

Standard output is one JSON object, the summary. Progress goes to standard error. The exit status is
0 if all jobs ended, 1 if a job failed, and 2 if an argument is wrong. Running it again is always
safe: each job continues where it was.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import click

from coopgroup.cli.pipeline.advise import advice_for
from coopgroup.cli.pipeline.jobs import (
    all_partitions,
    compute_lag,
    read_history,
    require_some,
)
from coopgroup.cli.pipeline.options import (
    Place,
    cluster_options,
    scope_options,
    tables_options,
)
from coopgroup.errors import PipelineError
from coopgroup.pipeline.spark.session import one_line

if TYPE_CHECKING:
    from coopgroup.pipeline.ends import Brokers
    from coopgroup.pipeline.scope import Scope
    from coopgroup.pipeline.sources import Source
    from coopgroup.pipeline.tables import Tables

_TOPIC: Final = "__consumer_offsets"
_COUNTED: Final = (
    *("commits", "generations", "rejected", "ends", "lag"),
    *("rebalances", "outages", "absences"),
)


@click.command("run")
@tables_options
@cluster_options
@click.option(
    "--reset",
    type=click.Choice(["earliest", "latest"]),
    default="latest",
    show_default=True,
    help="auto.offset.reset of the consumers.",
)
@scope_options("7d")
@click.option(
    "--move-cost-ms",
    type=click.IntRange(min=0, max=3_600_000),
    help="As for advise; the same for all groups.",
)
def command(
    *,
    place: Place,
    cluster: tuple[Brokers, dict[str, str]],
    scope: Scope,
    reset: str,
    move_cost_ms: int | None,
) -> None:
    """Run history, lag, episodes and advice in one call.

    The summary is one JSON object on standard output. History reads all groups. Without --group,
    there is advice on all groups with enough episodes.
    """
    brokers, options = cluster
    source = brokers.source(_TOPIC, "no group has ever committed")
    options |= all_partitions(brokers, _TOPIC)
    seconds: dict[str, float] = {}
    with _timed("spark", seconds):
        tables = place.tables(is_brief=True)
    with one_line():
        _compute(tables, brokers, options, source, reset, scope, seconds)
        with _timed("advice", seconds):
            wanted = scope.groups or _ripe(tables, scope)
            advice = [_advised(tables, one, scope, move_cost_ms) for one in wanted]
        read = tables.current().read
        rows = {name: read(name).count() for name in _COUNTED}
    click.echo(json.dumps({"rows": rows, "seconds": seconds, "advice": advice}))


def _compute(
    tables: Tables,
    brokers: Brokers,
    options: dict[str, str],
    source: Source,
    reset: str,
    scope: Scope,
    seconds: dict[str, float],
) -> None:
    from coopgroup.pipeline.episodes.job import write_episodes  # noqa: PLC0415 - needs the extra

    with _timed("history", seconds):
        read_history(tables, brokers, options, source)
        require_some(tables, source.topic)
    with _timed("lag", seconds):
        compute_lag(tables, brokers, reset, scope, None)
    with _timed("episodes", seconds):
        write_episodes(tables, scope=scope)


@contextmanager
def _timed(step: str, seconds: dict[str, float]) -> Iterator[None]:
    """Report a step on standard error, and note how long it took."""
    begin = time.monotonic()
    yield
    seconds[step] = round(time.monotonic() - begin, 1)
    click.echo(f"coopgroup: {step}: {seconds[step]:.1f} s", err=True)


def _ripe(tables: Tables, scope: Scope) -> list[str]:
    """Return the groups with enough episodes for advice, ascending."""
    from coopgroup.pipeline.advice.choose import ENOUGH  # noqa: PLC0415 - needs the extra
    from coopgroup.pipeline.advice.tables import history_of  # noqa: PLC0415 - likewise

    # Each episode has an absence or a new member, so only these groups can have enough.
    joins = tables.read("rebalances").where("trigger = 'join'").select("group")
    events = tables.read("absences").select("group").unionByName(joins)
    counts = events.groupBy("group").count().where(f"count >= {ENOUGH}")
    found = []
    for group in sorted(row.group for row in counts.select("group").collect()):
        with suppress(PipelineError):  # nothing after --since
            history = history_of(tables, group, since_ms=scope.since_ms)
            if len(history.episodes) >= ENOUGH:
                found.append(group)
    return found


def _advised(tables: Tables, group: str, scope: Scope, move_cost_ms: int | None) -> dict[str, Any]:
    """Return the advice for a group, or why there is none."""
    from coopgroup.pipeline.advice.words import advice_json  # noqa: PLC0415 - needs the extra

    try:
        found = advice_json(
            advice_for(tables, group, since_ms=scope.since_ms, move_ms=move_cost_ms)
        )
    except PipelineError as error:
        return {"group": group, "error": str(error)}
    # The whole advice is in `coopgroup pipeline advise --json`.
    wanted = ("group", "headline", "is_clear", "advised", "snippet", "notes")
    return {name: found[name] for name in wanted}
