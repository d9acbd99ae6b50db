"""The live view in a terminal, with Textual."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import Footer, Label, RichLog

from coopgroup.printable import printable
from coopgroup.watch.polling import Reader, ViewPolling
from coopgroup.watch.rows import (
    NUMBER_COLUMNS,
    heading,
    member_columns,
    member_rows,
    move_rows,
    partition_columns,
    partition_rows,
)
from coopgroup.watch.values import GroupView

_GAP: Final = "  "


class Rows(ScrollView, can_focus=True):
    """A table that draws only the lines on the screen, each as one text.

    Textual's own `DataTable` draws cell by cell, which takes several times as long, and reads
    markup in names.
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {"rows--header", "rows--odd"}
    DEFAULT_CSS = """
    Rows > .rows--header { background: $panel; text-style: bold; }
    Rows > .rows--odd { background: $surface; }
    """

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._columns: tuple[str, ...] = ()
        self._widths: list[int] = []
        self.rows: Sequence[tuple[str, ...]] = ()

    def show(self, rows: Sequence[tuple[str, ...]], columns: Sequence[str]) -> None:
        """Show other rows."""
        before, top = self.rows, round(self.scroll_offset.y)
        bottom, widths = top + self.size.height, self._widths
        self.rows, self._columns = rows, tuple(columns)
        self._widths = [
            max(map(_width, column)) for column in zip(self._columns, *rows, strict=True)
        ]
        self.virtual_size = Size(sum(self._widths) + len(_GAP) * len(self._widths), len(rows) + 1)
        if before[top:bottom] != rows[top:bottom] or widths != self._widths:
            self.refresh()

    def render_line(self, y: int) -> Strip:
        """Draw a line of the screen; the names of the columns stay at the top."""
        left, top = self.scroll_offset
        row = top + y - 1
        if y == 0:
            text, look = self._text(self._columns), "rows--header"
        elif row < len(self.rows):
            text, look = self._text(self.rows[row]), "rows--odd" if row % 2 else ""
        else:
            return Strip.blank(self.size.width, self.rich_style)
        style = self.get_component_rich_style(look) if look else self.rich_style
        strip = Strip([Segment(text, style)])
        return strip.extend_cell_length(left + self.size.width, style).crop(
            left, left + self.size.width
        )

    def _text(self, cells: Sequence[str]) -> str:
        sized = (
            " " * (width - _width(cell)) + cell
            if name in NUMBER_COLUMNS
            else set_cell_size(cell, width)
            for name, cell, width in zip(self._columns, cells, self._widths, strict=True)
        )
        return _GAP.join(sized)


def _width(cell: str) -> int:
    return len(cell) if cell.isascii() else cell_len(cell)


class WatchApp(App[None]):
    """Shows one group; `q` ends it.

    Args:
        reader: reads the group.
        interval_s: time between two looks.
    """

    TITLE = "coopgroup watch"
    CSS = """
    #headline { padding: 0 1; width: 100%; text-style: bold; }
    #members { height: 1fr; }
    #partitions { height: 2fr; }
    #moves { height: 8; border-top: solid $primary; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [("q", "quit", "Quit")]

    def __init__(self, reader: Reader, interval_s: float) -> None:
        super().__init__()
        self._polling = ViewPolling(reader, interval_s, self._show_later)
        self._shown: GroupView | None = None

    def compose(self) -> ComposeResult:
        """Return the parts of the screen, top first."""
        yield Label("connecting …", id="headline", markup=False)
        yield Rows(id="members")
        yield Rows(id="partitions")
        yield RichLog(id="moves", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        """Begin to look."""
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
            line.update(printable(f"no answer: {found}"))
            return
        line.update("\n".join(heading(found)))
        self.query_one("#members", Rows).show(member_rows(found), member_columns(found))
        partitions = self.query_one("#partitions", Rows)
        partitions.show(partition_rows(found), partition_columns(found))
        log = self.query_one("#moves", RichLog)
        for at, text, why in reversed(move_rows(found.moves_since(self._shown))):
            log.write(f"{at}  {text}" + (f" ({why})" if why else ""))
        self._shown = found


def watch_in_terminal(reader: Reader, interval_s: float) -> None:
    """Show a group until the user quits."""
    WatchApp(reader, interval_s).run()
