"""`coopgroup pipeline`: history of running groups on Spark, and what follows from it.

Commands are imported when they run, as those of the program are (`app`): listing them needs
neither Spark nor Kafka.
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
    """A group that imports a command when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Names of all commands, without importing them."""
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Import the command `cmd_name`, or None where there is no such command."""
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
