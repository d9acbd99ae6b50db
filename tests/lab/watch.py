"""The current state of a group, read from the logs that its members are writing."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
from attrs import define, field, frozen

from tests.lab.recording import EventReader, RowReader, Rows

FRESH_NS: Final = 500_000_000
NOBODY: Final = -1
_NO_CALLBACKS: Final = frozenset({"committed", "commit_failed", "consumer_error"})


@frozen
class WatchedLog:
    """The growing logs of one process."""

    records_path: Path
    rows: RowReader
    events: EventReader


@define(kw_only=True)
class GroupWatch:
    """The last record of each partition and the last events of each process.

    Attributes:
        last_ns: (partitions,) moment of the last record; 0 for none.
        last_offsets: (partitions,) highest offset handed out; -1 for none.
        owners: (partitions,) index into `logs` of the last process with a record; -1 for none.
        last_callback_ns: last time that a member reported a callback, a start or an end.
    """

    partition_count: int
    last_ns: npt.NDArray[np.int64] = field(init=False)
    last_offsets: npt.NDArray[np.int64] = field(init=False)
    owners: npt.NDArray[np.int64] = field(init=False)
    last_callback_ns: int = field(init=False, default=0)
    logs: list[WatchedLog] = field(init=False, factory=list)

    def __attrs_post_init__(self) -> None:
        self.last_ns = np.zeros(self.partition_count, np.int64)
        self.last_offsets = np.full(self.partition_count, -1, np.int64)
        self.owners = np.full(self.partition_count, NOBODY, np.int64)

    def add(self, records_path: Path, events_path: Path) -> None:
        """Watch a further process."""
        rows, events = RowReader(records_path), EventReader(events_path)
        self.logs.append(WatchedLog(records_path, rows, events))

    def refresh(self) -> None:
        """Read new records and events."""
        for index, log in enumerate(self.logs):
            rows = log.rows.read_new()
            if len(rows):
                self._take_rows(index, rows)
            for event in log.events.read_new():
                if event.name not in _NO_CALLBACKS:
                    self.last_callback_ns = max(self.last_callback_ns, event.at_ns)

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
