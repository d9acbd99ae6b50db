"""`coopgroup pipeline`: the history of running groups on Spark.

Commands are imported when they run (see `app`), so the list of commands needs neither Spark nor
Kafka.
"""

from __future__ import annotations

from typing import Final

import click

from coopgroup.cli.app import LazyGroup

__all__ = ["command"]

_ABOUTS: Final = {
    "advise": "Advise on policy and time-outs from the history.",
    "episodes": "Find rebalances, absences and skew.",
    "history": "Read the history of groups from the brokers.",
    "lag": "Compute lag and load of groups.",
    "optimize": "Join small files, and delete replaced files.",
    "run": "Run history, lag, episodes and advice in one call.",
    "sql": "Ask the tables a question in SQL.",
    "telemetry": "Read telemetry of coopgroup's members.",
}
_OF_ONE_MODULE: Final = {"advise", "run", "sql"}


def _home_of(name: str) -> tuple[str, str]:
    if name in _OF_ONE_MODULE:
        return f"{__name__}.{name}", "command"
    if name == "optimize":
        return f"{__name__}.upkeep", name
    return f"{__name__}.jobs", name


@click.command("pipeline", cls=LazyGroup, abouts=_ABOUTS, home_of=_home_of)
def command() -> None:
    """Read the history of running groups, and learn from it."""
