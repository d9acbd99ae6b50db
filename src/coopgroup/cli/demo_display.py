"""The display of the demonstration: a live table on a terminal, otherwise plain lines."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Self

import numpy as np
import numpy.typing as npt
from attrs import define, field
from rich.console import Console
from rich.console import Group as Stack
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from coopgroup.simulator.transcript import ranges
from coopgroup.testing.trial import Facts, Group, Trial
from coopgroup.testing.trial.recording import Event, RowReader
from coopgroup.testing.trial.watch import WatchedLog

__all__ = [
    "Display",
    "MemberRow",
    "describe",
    "in_brief",
    "member_rows",
    "summary_table",
]

REFRESH_S: Final = 0.2
EVENTS_SHOWN: Final = 6
TABLE_FRAME: Final = 5  # lines of title, heading and rules
OURS: Final = "coopgroup-"
NEWS: Final = {
    "assigned": "{member} gets {count}",
    "closed": "{member} has left",
    "closing": "{member} is asked to close",
    "lost": "{member} lost {count}",
    "revoked": "{member} gives up {count}",
    "started": "{member} joins",
}
STATES: Final = {
    "assigned": "consuming",
    "closing": "closing",
    "lost": "rejoining",
    "revoked": "consuming",
    "revoking": "giving up",
    "started": "joining",
    "stopping": "giving up",
}


@define(kw_only=True)
class Display:
    """Shows the groups and their events.

    Attributes:
        groups: groups in the order of display; may be filled after construction.
        ends: (partitions,) offset after the last acknowledged record.
    """

    console: Console
    trial: Trial
    groups: list[Group] = field(factory=list)
    _phase: str = field(init=False, default="")
    _began: float = field(init=False, factory=time.monotonic)
    _shown_at: float = field(init=False, default=0.0)
    _lines: deque[str] = field(init=False, factory=lambda: deque(maxlen=EVENTS_SHOWN))
    _live: Live | None = field(init=False, default=None)
    _reader: RowReader = field(init=False)
    ends: npt.NDArray[np.int64] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._reader = RowReader(self.trial.producer_path)
        self.ends = np.zeros(self.trial.partition_count, np.int64)

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._live = Live(console=self.console, auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def phase(self, text: str) -> None:
        """Announce the next phase."""
        self._phase = text
        self._tell(f"--- {text}")
        self.refresh(at_once=True)

    def refresh(self, *, at_once: bool = False) -> None:
        """Read new events and show them, unless the last refresh was very recent."""
        now = time.monotonic()
        if not at_once and now - self._shown_at < REFRESH_S:
            return
        self._shown_at = now
        rows = self._reader.read_new()
        np.maximum.at(self.ends, rows["partition"], rows["offset"] + 1)
        for group in self.groups:
            group.watch.refresh()
            news, group.watch.news = group.watch.news, []
            for member, event in sorted(news, key=lambda item: item[1].at_ns):
                line = describe(member, event)
                if line is not None:
                    self._tell(f"{group.kind}: {line}")
        if self._live is not None:
            self._live.update(self._screen(), refresh=True)

    def _tell(self, text: str) -> None:
        line = f"{time.monotonic() - self._began:5.1f} s  {text}"
        self._lines.append(line)
        if self._live is None:
            self.console.print(escape(line), highlight=False, soft_wrap=True)

    def _screen(self) -> Stack:
        """Show as many groups as tables as fit, at least one; the others as lines."""
        rows_of = [(group.kind, member_rows(group, self.ends)) for group in self.groups]
        lines = [f"{kind}: {in_brief(rows)}" for kind, rows in rows_of]
        room = self.console.height - 1 - EVENTS_SHOWN - len(lines)
        tables: list[Table] = []
        for kind, rows in rows_of:
            room -= len(rows) + TABLE_FRAME - 1  # the table replaces one line
            if room < 0 and tables:
                break
            tables.append(group_table(kind, rows))
        brief = [Text(line, no_wrap=True, overflow="ellipsis") for line in lines[len(tables) :]]
        return Stack(Text(self._phase, style="bold"), *tables, *brief, Text("\n".join(self._lines)))


@define(kw_only=True)
class MemberRow:
    """One line of a group's table.

    Attributes:
        lag: end offset minus committed offset, summed over these partitions.
    """

    member: str
    state: str
    owned: Sequence[int]
    lag: int
    handed_out: int


def member_rows(group: Group, ends: npt.NDArray[np.int64]) -> list[MemberRow]:
    """Return the rows of a group, one per member, sorted by name."""
    rows = []
    log_of = {log.records_path: log for log in group.watch.logs}
    for name in group.names:
        incarnation = group.member(name)
        log = log_of[incarnation.records_path]
        owned = sorted(log.owned) if incarnation.is_alive else []
        lag = int((ends - group.watch.committed)[owned].clip(0).sum())
        rows.append(
            MemberRow(
                member=name,
                state=state_of(log, is_alive=incarnation.is_alive),
                owned=owned,
                lag=lag,
                handed_out=log.handed_out,
            )
        )
    return rows


def state_of(log: WatchedLog, *, is_alive: bool) -> str:
    """Return the activity of a member in one or two words."""
    if not is_alive:
        return "left" if log.state == "closed" else "killed"
    return STATES.get(log.state, log.state)


def group_table(title: str, rows: Iterable[MemberRow]) -> Table:
    """Return a group as a table."""
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("member")
    table.add_column("state", min_width=10)
    table.add_column("partitions", min_width=24)  # all fits 80 columns
    for heading in ("count", "lag", "records"):
        table.add_column(heading, justify="right", min_width=6)
    for row in rows:
        table.add_row(
            row.member,
            row.state,
            ranges(row.owned),
            str(len(row.owned)),
            f"{row.lag:,}",
            f"{row.handed_out:,}",
        )
    return table


def in_brief(rows: Iterable[MemberRow]) -> str:
    """Return a group as a line: `m1 consuming 6, m2 killed`."""
    return ", ".join(
        f"{row.member} {row.state} {len(row.owned)}" if row.owned else f"{row.member} {row.state}"
        for row in rows
    )


def describe(member: str, event: Event) -> str | None:
    """Describe an event in a few words; None for an unimportant event."""
    match event:
        case Event(name="assigned" | "revoked" | "lost", fields={"partitions": []}):
            return None
        case Event(name=name, fields={"partitions": list(partitions)}) if name in NEWS:
            plural = "" if len(partitions) == 1 else "s"
            return NEWS[name].format(member=member, count=f"{len(partitions)} partition{plural}")
        case Event(name=name) if name in NEWS:
            return NEWS[name].format(member=member)
        case _:
            return None


def summary_table(facts_by_kind: dict[str, Facts]) -> Table:
    """Return the results, one column per policy, within 80 characters."""
    table = Table(title="From the records that were handed out, by policy", title_justify="left")
    table.add_column("")
    for kind in facts_by_kind:
        table.add_column(kind.removeprefix(OURS), justify="right")
    rows: dict[str, Callable[[Facts], str]] = {
        "records consumed": lambda facts: f"{facts.consumed:,}",
        "records lost": lambda facts: f"{facts.lost:,}",
        "records handed out again": lambda facts: f"{facts.duplicated:,}",
        "partitions moved": lambda facts: f"{facts.moved:,}",
        "worst pause of what stayed": lambda facts: f"{facts.retained_pause_ms_max:,.0f} ms",
        "time without owner, in all": lambda facts: f"{facts.unavailable_partition_s:,.1f} s",
        "time with two owners": lambda facts: f"{facts.double_owner_ms:,.0f} ms",
        "commits that failed": lambda facts: f"{facts.failed_commits:,}",
    }
    for text, cell in rows.items():
        table.add_row(text, *(cell(facts) for facts in facts_by_kind.values()))
    return table
