"""`coopgroup watch`: a group of any client, as it is at this moment.

In a terminal it shows tables that update themselves. With `--json` it prints one snapshot and ends.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

import click

from coopgroup.cli.broker_options import bootstrap_option, config_option, timeout_option
from coopgroup.cli.watch_options import reader_of
from coopgroup.errors import MissingExtraError
from coopgroup.watch.values import to_json

__all__ = ["command"]

_EXTRA: Final = "{} is not installed: python3 -m pip install '.[watch]', or use --json"


@click.command("watch")
@click.argument("group")
@click.option("--json", "as_json", is_flag=True, help="Print one snapshot as JSON, and end.")
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
def command(
    *,
    group: str,
    as_json: bool,
    interval_ms: int,
    bootstrap_server: str,
    settings: Sequence[str],
    timeout_ms: int,
) -> None:
    """Show members, owners, lags and moves of GROUP, of any client, all the time."""
    reader = reader_of(group, bootstrap_server, settings, timeout_ms)
    if as_json:
        click.echo(json.dumps(to_json(reader.read())))
        return
    try:
        from coopgroup.watch.terminal import watch_in_terminal  # noqa: PLC0415 - needs the extra
    except ModuleNotFoundError as error:
        raise MissingExtraError(_EXTRA.format(error.name)) from None

    watch_in_terminal(reader, interval_ms / 1000)
