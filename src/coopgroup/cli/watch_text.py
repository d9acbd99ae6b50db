"""A snapshot of a group as tables on standard output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from coopgroup.watch.tables import (
    MEMBER_COLUMNS,
    NUMBER_COLUMNS,
    PARTITION_COLUMNS,
    headline,
    member_rows,
    partition_rows,
    trouble,
)
from coopgroup.watch.values import GroupView

__all__ = ["print_view"]

_WIDTH_MAX: Final = 10_000
_NOTHING: Final = "-"


def print_view(view: GroupView) -> None:
    """Print a snapshot.

    A terminal gets tables of its width: long names continue on the next line, and a column without
    any value is left out. Elsewhere each row is one line. No cell is cut.
    """
    console = Console()
    is_narrow = console.is_terminal
    if not is_narrow:
        console = Console(width=_WIDTH_MAX)
    click.echo(headline(view))
    if view.telemetry_error:
        click.echo(trouble(view))
    for columns, rows in (
        (MEMBER_COLUMNS, member_rows(view)),
        (PARTITION_COLUMNS, partition_rows(view)),
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
