"""Logs that survive SIGKILL: records handed out, records acknowledged, and events.

The log of records is a file mapped into the writer's memory, filled with zeros at first. A write
reaches the page cache immediately, so a process killed between two instructions loses no earlier
record. Records need no system call, and a reader in another process sees them immediately. The
moment of a row is written last: a row counts if its moment is not zero. Events are rare and are
appended as lines of JSON, one write each.

Moments are `time.monotonic_ns()`, CLOCK_MONOTONIC on Linux: one clock for all processes of a
machine.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import time
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
from attrs import frozen

from tests.support.growing_file import GrowingFile

HANDED_OUT: Final = np.dtype(
    [
        ("at_ns", "<i8"),
        ("produced_ns", "<i8"),
        ("offset", "<i8"),
        ("partition", "<i4"),
        ("spell", "<i4"),
    ]
)
"""A record given to the application: its time, the time when it was produced (0 if unknown), its
position, and the number of times that this process had been assigned the partition."""

ACKNOWLEDGED: Final = HANDED_OUT
"""A record that the broker acknowledged to the producer; `spell` is 0."""

Rows: TypeAlias = "npt.NDArray[np.void]"
"""Rows of `HANDED_OUT` or `ACKNOWLEDGED`."""

_ROW: Final = struct.Struct("<qqii")  # all fields except the moment
_MOMENT: Final = struct.Struct("<q")
_ROW_BYTES: Final = HANDED_OUT.itemsize
_GROW_ROWS: Final = 1 << 18
_READ_ROWS_MAX: Final = 1 << 16


class RowLog:
    """Writer of a log of records."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        self._rows = 0
        self._capacity = _GROW_ROWS
        self._map = self._mapped()

    def append(
        self, at_ns: int, produced_ns: int, offset: int, partition: int, spell: int = 0
    ) -> None:
        """Write a row; it survives SIGKILL after the return."""
        if self._rows == self._capacity:
            self._map.close()
            self._capacity += _GROW_ROWS
            self._map = self._mapped()
        start = self._rows * _ROW_BYTES
        _ROW.pack_into(self._map, start + 8, produced_ns, offset, partition, spell)
        _MOMENT.pack_into(self._map, start, at_ns)
        self._rows += 1

    def close(self) -> None:
        """Unmap and close the file; unused rows stay zero."""
        self._map.close()
        os.close(self._file)

    def _mapped(self) -> mmap.mmap:
        os.ftruncate(self._file, self._capacity * _ROW_BYTES)
        return mmap.mmap(self._file, self._capacity * _ROW_BYTES)


class RowReader:
    """Reads a log of records that may still be written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows = 0

    def read_new(self) -> Rows:
        """Return rows written since the last call, in the order of writing."""
        parts = []
        while True:
            part = self._read_part()
            parts.append(part)
            self._rows += len(part)
            if len(part) < _READ_ROWS_MAX:
                return np.concatenate(parts)

    def _read_part(self) -> Rows:
        if not self._path.exists():
            return np.empty(0, HANDED_OUT)
        rows = np.fromfile(
            self._path, HANDED_OUT, count=_READ_ROWS_MAX, offset=self._rows * _ROW_BYTES
        )
        unwritten = np.flatnonzero(rows["at_ns"] == 0)
        written: Rows = rows[: unwritten[0]] if len(unwritten) else rows
        return written


@frozen(kw_only=True)
class Event:
    """A report of a worker other than a record.

    Attributes:
        at_ns: moment, on the clock of this file.
        name: `ready`, `started`, `assigned`, `revoking`, `revoked`, `lost`,
            `committed`, `commit_failed`, `consumer_error`, `handing_over`, `closing`, `closed`.
    """

    at_ns: int
    name: str
    fields: dict[str, object]


class EventLog:
    """Writer of events."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, name: str, **fields: object) -> None:
        """Append an event; it survives SIGKILL after the return."""
        line = json.dumps({"at_ns": time.monotonic_ns(), "name": name, "fields": fields})
        os.write(self._file, line.encode() + b"\n")

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


class EventReader:
    """Reads events that may still be written."""

    def __init__(self, path: Path) -> None:
        self._file = GrowingFile(path)

    def read_new(self) -> list[Event]:
        """Return events written since the last call."""
        return [Event(**json.loads(line)) for line in self._file.read_new()]
