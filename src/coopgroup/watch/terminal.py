"""The live view in a terminal, with Textual."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.coordinate import Coordinate
from textual.widgets import DataTable, Footer, Label, RichLog

from coopgroup.watch.polling import Reader, ViewPolling
from coopgroup.watch.tables import (
    MEMBER_COLUMNS,
    PARTITION_COLUMNS,
    headline,
    member_rows,
    move_rows,
    partition_rows,
)
from coopgroup.watch.values import GroupView

__all__ = ["WatchApp", "watch_in_terminal"]


class WatchApp(App[None]):
    """Shows one group; `q` ends it.

    Args:
        reader: reads the group.
        interval_s: time between two looks.
    """

    TITLE = "coopgroup watch"
    CSS = """
    #headline { padding: 0 1; text-style: bold; }
    #members { height: 1fr; }
    #partitions { height: 2fr; }
    #moves { height: 8; border-top: solid $primary; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [("q", "quit", "Quit")]

    def __init__(self, reader: Reader, interval_s: float) -> None:
        super().__init__()
        self._polling = ViewPolling(reader, interval_s, self._show_later)
        self._shown_until_ms = 0

    def compose(self) -> ComposeResult:
        """Return the parts of the screen, top first."""
        yield Label("connecting …", id="headline", markup=False)
        yield DataTable(id="members", cursor_type="row", zebra_stripes=True)
        yield DataTable(id="partitions", cursor_type="row", zebra_stripes=True)
        yield RichLog(id="moves", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        """Begin to look."""
        self.query_one("#members", DataTable).add_columns(*MEMBER_COLUMNS)
        self.query_one("#partitions", DataTable).add_columns(*PARTITION_COLUMNS)
        self._polling.start()

    def on_unmount(self) -> None:
        """End the thread."""
        self._polling.stop()

    def _show_later(self, found: GroupView | Exception) -> None:  # on the polling thread
        if self.is_running:
            self.call_from_thread(self.show, found)

    def show(self, found: GroupView | Exception) -> None:
        """Show a snapshot; after an error, the last one stays."""
        line = self.query_one("#headline", Label)
        if isinstance(found, Exception):
            line.update(f"no answer: {found}")
            return
        line.update(headline(found))
        _fill(self.query_one("#members", DataTable), member_rows(found))
        _fill(self.query_one("#partitions", DataTable), partition_rows(found))
        log = self.query_one("#moves", RichLog)
        fresh = [one for one in found.moves if one.at_ms > self._shown_until_ms]
        for at, text in reversed(move_rows(fresh)):
            log.write(f"{at}  {text}")
        self._shown_until_ms = found.at_ms


def _fill(table: DataTable[str], rows: Sequence[tuple[str, ...]]) -> None:
    """Show rows; if their number stays, only changed cells on the screen are drawn again.

    A thousand partitions would cost several times as much. Rows below or above the screen are
    brought up to date by the first look after the user has scrolled to them.
    """
    top = round(table.scroll_offset.y)
    if table.row_count == len(rows):
        for y in range(top, min(len(rows), top + table.size.height + 1)):
            for x, (cell, before) in enumerate(zip(rows[y], table.get_row_at(y), strict=True)):
                if cell != before:
                    table.update_cell_at(Coordinate(y, x), cell)
        return
    table.clear()
    for row in rows:
        table.add_row(*row)
    table.scroll_to(y=top, animate=False)


def watch_in_terminal(reader: Reader, interval_s: float) -> None:
    """Show a group until the user quits."""
    WatchApp(reader, interval_s).run()
