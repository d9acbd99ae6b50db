"""A snapshot of a group as tables on standard output."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
)
from coopgroup.watch.values import GroupView

__all__ = ["print_view"]

_WIDTH_MAX: Final = 10_000


def print_view(view: GroupView) -> None:
    """Print a snapshot; the tables are as wide as their content, so no cell is cut."""
    click.echo(headline(view))
    console = Console(width=_WIDTH_MAX)
    console.print(_table(MEMBER_COLUMNS, member_rows(view)))
    console.print(_table(PARTITION_COLUMNS, partition_rows(view)))


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        is_number = column in NUMBER_COLUMNS
        table.add_column(column, justify="right" if is_number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, row))  # a plain string would be read as markup: "[red]"
    return table
