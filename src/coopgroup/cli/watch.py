"""`coopgroup watch`: a group of any client, as it is at this moment.

In a terminal it shows tables that update themselves. With `--http` it serves the same as a page
with charts. With `--json` it prints one snapshot and ends.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

import click

from coopgroup.cli.broker_options import bootstrap_option, config_option, timeout_option
from coopgroup.cli.interruption import interruption
from coopgroup.cli.watch_options import opened_reader, telemetry_option
from coopgroup.errors import MissingExtraError
from coopgroup.extras import install_command
from coopgroup.watch.polling import Reader
from coopgroup.watch.tracking import GroupTracker
from coopgroup.watch.values import to_json

__all__ = ["command"]


@click.command("watch")
@click.argument("group")
@click.option("--json", "as_json", is_flag=True, help="Print one snapshot as JSON, and end.")
@click.option(
    "--http",
    "port",
    type=click.IntRange(0, 65_535),
    metavar="PORT",
    help="Serve a page on this TCP port instead of drawing in the terminal; 0 for any free port.",
)
@click.option(
    "--http-host",
    "host",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="Address of the page. With another one than a loopback address, the page is readable for "
    "all who can reach it.",
)
@telemetry_option
@click.option(
    "--interval-ms",
    type=click.IntRange(min=200),
    default=1_000,
    show_default=True,
    help="Time between two looks.",
)
@bootstrap_option
@config_option
@timeout_option
def command(  # noqa: PLR0913 -- one for each option
    *,
    group: str,
    as_json: bool,
    port: int | None,
    host: str,
    topic: str | None,
    interval_ms: int,
    bootstrap_server: str,
    settings: Sequence[str],
    timeout_ms: int,
) -> None:
    """Show members, owners, lags and moves of GROUP, of any client, all the time."""
    if as_json and port is not None:
        raise click.UsageError("--json and --http exclude each other: --json prints once and ends")
    with opened_reader(group, bootstrap_server, settings, timeout_ms, topic) as reader:
        _show(reader, group, interval_ms, host, port, as_json=as_json)


def _show(
    reader: Reader, group: str, interval_ms: int, host: str, port: int | None, *, as_json: bool
) -> None:
    if as_json:
        click.echo(json.dumps(to_json(GroupTracker().note(reader.read()))))
    elif port is not None:
        _serve(reader, interval_ms / 1000, group, host, port)
    else:
        try:
            from coopgroup.watch.terminal import watch_in_terminal  # noqa: PLC0415 - needs an extra
        except ModuleNotFoundError as error:
            command = install_command("watch")
            raise MissingExtraError(
                f"{error.name} is not installed: {command}, or use --json"
            ) from None
        if not sys.stdout.isatty():
            raise click.UsageError(
                "there is no terminal to draw in: --json prints one snapshot and ends, --http PORT "
                "serves a page"
            )
        watch_in_terminal(reader, interval_ms / 1000)


def _serve(reader: Reader, interval_s: float, group: str, host: str, port: int) -> None:
    try:
        from coopgroup.watch.serving import LiveServer  # noqa: PLC0415 - needs the extras
    except ModuleNotFoundError as error:
        command = install_command("watch", "report")
        raise MissingExtraError(f"{error.name} is not installed: {command}") from None
    with (
        interruption() as interrupted,
        LiveServer(reader, interval_s, group=group, host=host, port=port) as server,
    ):
        shown = f"[{host}]" if ":" in host else host
        click.echo(f"http://{shown}:{server.port}/ shows {group}; Ctrl-C ends it")
        interrupted.wait()
