"""The current state of a group, read from the logs that its members are writing."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
from attrs import define, field

from tests.lab.recording import Event, EventReader, RowReader, Rows

FRESH_NS: Final = 500_000_000
NOBODY: Final = -1


@define
class WatchedLog:
    """The growing logs of one process.

    Attributes:
        state: name of its last event, without commits.
        owned: assigned partitions that it neither gave up nor lost.
    """

    member: str
    records_path: Path
    rows: RowReader
    events: EventReader
    handed_out: int = 0
    state: str = "new"
    owned: set[int] = field(factory=set)


@define(kw_only=True)
class GroupWatch:
    """The last record of each partition and the last events of each process.

    Attributes:
        last_ns: (partitions,) moment of the last record; 0 for none.
        last_offsets: (partitions,) highest offset handed out; -1 for none.
        owners: (partitions,) index into `logs` of the last process with a record; -1 for none.
        committed: (partitions,) highest position that a member committed.
        last_callback_ns: last time that a member reported a callback, a start or an end.
        news: member and event of new events, without commits; the reader of the list empties it.
    """

    partition_count: int
    last_ns: npt.NDArray[np.int64] = field(init=False)
    last_offsets: npt.NDArray[np.int64] = field(init=False)
    owners: npt.NDArray[np.int64] = field(init=False)
    committed: npt.NDArray[np.int64] = field(init=False)
    last_callback_ns: int = field(init=False, default=0)
    logs: list[WatchedLog] = field(init=False, factory=list)
    news: list[tuple[str, Event]] = field(init=False, factory=list)

    def __attrs_post_init__(self) -> None:
        self.last_ns = np.zeros(self.partition_count, np.int64)
        self.last_offsets = np.full(self.partition_count, -1, np.int64)
        self.owners = np.full(self.partition_count, NOBODY, np.int64)
        self.committed = np.zeros(self.partition_count, np.int64)

    def add(self, member: str, records_path: Path, events_path: Path) -> None:
        """Watch a further process."""
        self.logs.append(
            WatchedLog(member, records_path, RowReader(records_path), EventReader(events_path))
        )

    def refresh(self) -> None:
        """Read new records and events."""
        for index, log in enumerate(self.logs):
            rows = log.rows.read_new()
            if len(rows):
                self._take_rows(index, rows)
                log.handed_out += len(rows)
            for event in log.events.read_new():
                self._take_event(log, event)

    def is_settled(self, living: frozenset[Path], *, quiet_s: float, fair: bool) -> bool:
        """Return whether the group is at rest; see `Group.wait_settled`."""
        self.refresh()
        now_ns = time.monotonic_ns()
        if now_ns - self.last_callback_ns < quiet_s * 1e9 or not living:
            return False
        if (self.last_ns < now_ns - FRESH_NS).any():
            return False
        owners = {self.logs[owner].records_path for owner in np.unique(self.owners).tolist()}
        return owners == living if fair else owners <= living

    def _take_rows(self, index: int, rows: Rows) -> None:
        """Note the newest record of each partition; `rows` are in the order of writing."""
        for partition in np.unique(rows["partition"]).tolist():
            mine = rows[rows["partition"] == partition]
            self.last_offsets[partition] = max(
                int(self.last_offsets[partition]), int(mine["offset"].max())
            )
            newest_ns = int(mine["at_ns"][-1])
            if newest_ns > self.last_ns[partition]:
                self.last_ns[partition] = newest_ns
                self.owners[partition] = index

    def _take_event(self, log: WatchedLog, event: Event) -> None:
        match event:
            case Event(name="committed", fields={"positions": list(positions)}):
                for partition, position in positions:
                    self.committed[partition] = max(int(self.committed[partition]), position)
                return
            case Event(name="commit_failed" | "consumer_error"):
                return
            case Event(name="assigned", fields={"partitions": list(partitions)}):
                log.owned.update(partitions)
            case Event(name="revoked" | "lost", fields={"partitions": list(partitions)}):
                log.owned.difference_update(partitions)
            case _:
                pass
        log.state = event.name
        self.last_callback_ns = max(self.last_callback_ns, event.at_ns)
        self.news.append((log.member, event))
