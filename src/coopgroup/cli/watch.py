"""`coopgroup watch`: a group of any client, as it is at this moment.

In a terminal it shows tables that update themselves. With `--http` it serves the same as a page
with charts. With `--json` it prints one snapshot and ends.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import Final

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from coopgroup.cli.broker_options import BrokerOptions, broker_options
from coopgroup.cli.interruption import interruption
from coopgroup.errors import MissingExtraError
from coopgroup.extras import install_command
from coopgroup.kafka.rpc.transport import GroupTransport
from coopgroup.printable import host_and_port
from coopgroup.watch.polling import Reader
from coopgroup.watch.reading import GroupReader
from coopgroup.watch.rows import (
    NUMBER_COLUMNS,
    heading,
    member_columns,
    member_rows,
    partition_columns,
    partition_rows,
)
from coopgroup.watch.telemetry_topics import TelemetryReader
from coopgroup.watch.telemetry_view import TelemetryView
from coopgroup.watch.tracking import GroupTracker
from coopgroup.watch.values import GroupView, to_json

CLIENT_ID: Final = "coopgroup-group"
# The page of the live view draws the last half hour.
_TOLD_MS: Final = 1_800_000
_WIDTH_MAX: Final = 10_000
_NOTHING: Final = "-"

telemetry_option = click.option(
    "--telemetry-topic",
    "topic",
    metavar="TOPIC",
    help="Topic with the telemetry of the members, for their leases and last polls, for rounds and "
    "why they came.",
)


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
    help="Address of the page; :: means all, of IPv4 and IPv6. With another one than a loopback "
    "address, the page is readable for all who can reach it.",
)
@telemetry_option
@click.option(
    "--interval-ms",
    type=click.IntRange(min=200),
    default=1_000,
    show_default=True,
    help="Time between two looks.",
)
@broker_options()
def command(
    *,
    group: str,
    as_json: bool,
    port: int | None,
    host: str,
    topic: str | None,
    interval_ms: int,
    brokers: BrokerOptions,
) -> None:
    """Show members, owners, lags and moves of GROUP, of any client, all the time."""
    if as_json and port is not None:
        raise click.UsageError("--json and --http exclude each other: --json prints once and ends")
    with opened_reader(group, brokers, topic) as reader:
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
        shown = host_and_port(host.strip("[]"), server.port)
        click.echo(f"http://{shown}/ shows {group}; Ctrl-C ends it")
        interrupted.wait()


@contextmanager
def opened_reader(group: str, brokers: BrokerOptions, topic: str | None) -> Iterator[Reader]:
    """Yield a reader of a group, which also reads the telemetry in `topic` unless it is None.

    Raises:
        ConfigurationError: a key is unknown or has an invalid value, or the topic cannot be read.
    """
    found, timeout_s = brokers.client(CLIENT_ID, group), brokers.timeout_ms / 1000
    is_given = "auto.offset.reset" in brokers.configuration(CLIENT_ID, group)
    reset = found.offset_reset if is_given else None
    with ExitStack() as last_first:
        reader: Reader = last_first.enter_context(
            closing(GroupReader(group, dict(found.admin), found.connection, timeout_s, reset))
        )
        if topic is not None:
            since_ms = time.time_ns() // 1_000_000 - _TOLD_MS
            consumer = brokers.client("coopgroup-watch").librdkafka
            transport = last_first.enter_context(
                closing(GroupTransport(found.connection, lambda _: None))
            )
            transport.start()
            telemetry = TelemetryReader(consumer, topic, group, since_ms, timeout_s, transport)
            reader = TelemetryView(reader, last_first.enter_context(telemetry))
        yield reader


def print_view(view: GroupView) -> None:
    """Print a snapshot.

    A terminal gets tables of its width: long names continue on the next line, and a column without
    any value is left out. Elsewhere each row is one line. No cell is cut.
    """
    console = Console()
    is_narrow = console.is_terminal
    if not is_narrow:
        console = Console(width=_WIDTH_MAX)
    for line in heading(view):
        click.echo(line)
    for columns, rows in (
        (member_columns(view), member_rows(view)),
        (partition_columns(view), partition_rows(view)),
    ):
        console.print(_table(columns, rows, is_narrow=is_narrow))


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, is_narrow: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    shown = [
        place
        for place in range(len(columns))
        if not (is_narrow and rows and all(row[place] == _NOTHING for row in rows))
    ]
    for place in shown:
        is_number = columns[place] in NUMBER_COLUMNS
        table.add_column(
            columns[place],
            justify="right" if is_number else "left",
            no_wrap=is_number or not is_narrow,
            overflow="fold",
            min_width=len(columns[place]),
        )
    for row in rows:
        # A plain string would be read as markup: "[red]".
        table.add_row(*(Text(row[place]) for place in shown))
    return table
