"""`coopgroup pipeline`: the history of running groups on Spark.

Commands are imported when they run (see `app`), so the list of commands needs neither Spark nor
Kafka.
"""

from __future__ import annotations

import importlib
from typing import Final

import click

__all__ = ["command"]

_COMMANDS: Final = {
    "advise": ("pipeline_advise", "command", "Advise on policy and time-outs from the history."),
    "demo": ("pipeline_demo", "command", "Make history on a real broker and look at it."),
    "episodes": ("pipeline_jobs", "episodes", "Find rebalances, absences and skew."),
    "history": ("pipeline_jobs", "history", "Read the history of groups from the brokers."),
    "lag": ("pipeline_jobs", "lag", "Compute lag and load of groups."),
    "telemetry": ("pipeline_jobs", "telemetry", "Read telemetry of coopgroup's members."),
}


class _Jobs(click.Group):
    """A click group that imports a command on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of all commands without importing them."""
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Import the command `cmd_name`; return None for an unknown name."""
        if cmd_name not in _COMMANDS:
            return None
        module, name, _ = _COMMANDS[cmd_name]
        found: click.Command = getattr(importlib.import_module(f"coopgroup.cli.{module}"), name)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        """Write the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, about) for name, (_, _, about) in sorted(_COMMANDS.items())])


@click.command("pipeline", cls=_Jobs)
def command() -> None:
    """Read the history of running groups, and learn from it."""
