"""`coopgroup pipeline run`: all jobs in one call, for a scheduler such as cron, Airflow or Dagster.

Standard output is one JSON object, the summary. Progress goes to standard error. The exit status is
0 if all jobs ended, 1 if a job failed, and 2 if an argument is wrong. Running it again is always
safe: each job continues where it was.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from coopgroup.cli.pipeline.advise import advice_for
from coopgroup.cli.pipeline.jobs import (
    all_partitions,
    compute_lag,
    read_history,
    require_some,
    tell_unknown,
)
from coopgroup.cli.pipeline.options import (
    Place,
    cluster_options,
    scope_options,
    tables_options,
)
from coopgroup.errors import PipelineError
from coopgroup.pipeline.spark.session import in_one_line

if TYPE_CHECKING:
    from coopgroup.pipeline.ends import Cluster
    from coopgroup.pipeline.scope import Scope
    from coopgroup.pipeline.sources import Source
    from coopgroup.pipeline.tables import Tables

_TOPIC: Final = "__consumer_offsets"
_GROUPS_AT_ONCE: Final = 50
"""Groups whose histories and replays are in the driver's memory together."""
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
    cluster: tuple[Cluster, dict[str, str]],
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
    with in_one_line():
        _compute(tables, brokers, options, source, reset, scope, seconds)
        with _timed("advice", seconds):
            advice = _advice(tables, scope, move_cost_ms)
        read = tables.current().read
        rows = {name: read(name).count() for name in _COUNTED}
    click.echo(json.dumps({"rows": rows, "seconds": seconds, "advice": advice}))


def _compute(
    tables: Tables,
    brokers: Cluster,
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
        gone = compute_lag(tables, brokers, reset, scope, None)
    tell_unknown(tables, scope, gone)
    with _timed("episodes", seconds):
        write_episodes(tables, scope=scope)


@contextmanager
def _timed(step: str, seconds: dict[str, float]) -> Iterator[None]:
    """Report a step on standard error, and note how long it took."""
    begin = time.monotonic()
    yield
    seconds[step] = round(time.monotonic() - begin, 1)
    click.echo(f"coopgroup: {step}: {seconds[step]:.1f} s", err=True)


def _advice(tables: Tables, scope: Scope, move_cost_ms: int | None) -> list[dict[str, Any]]:
    """Return the advice for the groups of a scope, or for all groups with enough episodes."""
    from coopgroup.pipeline.advice.choose import ENOUGH  # noqa: PLC0415 - needs the extra
    from coopgroup.pipeline.advice.view import advice_json  # noqa: PLC0415 - likewise

    groups, episodes_min = scope.groups, 0
    if not groups:
        # Each episode has an absence or a new member, so only these groups can have enough.
        joins = tables.read("rebalances").where("trigger = 'join'").select("group")
        events = tables.read("absences").select("group").unionByName(joins)
        counts = events.groupBy("group").count().where(f"count >= {ENOUGH}")
        groups = tuple(sorted(row.group for row in counts.select("group").collect()))
        episodes_min = ENOUGH
    rows: list[dict[str, Any]] = []
    for begin in range(0, len(groups), _GROUPS_AT_ONCE):
        found = advice_for(
            *(tables, groups[begin : begin + _GROUPS_AT_ONCE]),
            since_ms=scope.since_ms,
            move_ms=move_cost_ms,
            episodes_min=episodes_min,
        )
        for group, given in found.items():
            if isinstance(given, PipelineError):
                rows.append({"group": group, "error": str(given)})
            else:
                # The whole advice is in `coopgroup pipeline advise --json`.
                told = advice_json(given)
                wanted = ("group", "headline", "is_clear", "advised", "snippet", "notes")
                rows.append({name: told[name] for name in wanted})
    return rows
