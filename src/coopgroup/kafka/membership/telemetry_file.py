"""The file of a member's telemetry, written on a separate thread.

The group's thread sends the heartbeats. A disk that is full, slow or hung may cost telemetry
records, never the session. So `put` only adds to a bounded queue, and a writer thread does all work
on the file.

Rules of this file: `put` never waits for the disk. A record is written as a whole line or counted
as dropped, and drops are logged. A disk error never ends the writer: it tries again until there is
room. Several members may append to one file. So before each line, the writer checks whether another
process has rotated the file. A link in its place is refused, also later: a rotation would rename
a file that another user chose.

`logging.handlers.RotatingFileHandler` does less. It writes a record again if a full disk refused
it, appends to a file that another process has rotated or deleted, renames `/dev/stdout`, and loses
records in a folder that allows no renaming.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import json
import os
import stat
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from attrs import define, field

from coopgroup.kafka.clock import now_s
from coopgroup.kafka.membership.telemetry_writer import TelemetryWriter
from coopgroup.telemetry import Envelope, to_json
from coopgroup.worker import Worker

_MODE: Final = 0o600
# The file is rotated before it exceeds this size. All files together take 500 MiB at most, so that
# telemetry does not fill the disk.
_BYTES_MAX: Final = 100 * 1024 * 1024
_BACKUPS: Final = 4
# Links of the system. What they lead to belongs to the supervisor, so it is not rotated.
_STANDARD: Final = frozenset({"/dev/stdout", "/dev/stderr"})
_RETRY_S: Final = 0.1
_RETRY_S_MAX: Final = 5.0
_ROTATE_AGAIN_S: Final = 60.0
# How long a closing consumer waits for the disk.
_CLOSE_S: Final = 2.0


@define(eq=False)
class TelemetryFile(TelemetryWriter):
    """Appends records to a file, one JSON object per line."""

    path: Path
    warn: Callable[..., None]
    _worker: Worker = field(factory=lambda: Worker("coopgroup-telemetry"), init=False)
    # Only the worker's jobs use the rest.
    _pause_s: float = field(default=_RETRY_S, init=False)
    _descriptor: int | None = field(default=None, init=False)
    _rotates: bool = field(default=False, init=False)
    _rotate_at_s: float = field(default=0.0, init=False)
    # Whether the file may end with a part of a line: then a new line begins first.
    _is_torn: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        """Open the file, so that a wrong path is an error of the constructor.

        Raises:
            OSError: the file cannot be opened for writing.
        """
        self._open()

    # --- any thread ------------------------------------------------------------------------------

    def flush(self, timeout_s: float) -> bool:
        """Wait until the records so far are written; return whether they are."""
        written = threading.Event()
        with self._lock:
            if not self._waiting or self._is_closed:
                return not self._waiting
            self._waiting.append(written)
            self._rouse()
        return written.wait(timeout_s)

    def close(self) -> None:
        """Write the records that wait, for a bounded time, and close the file."""
        if not self._take_no_more():
            return
        try:
            self._worker.submit(self._finish)
        except RuntimeError:  # no thread is available
            self._finish()
        if not self._worker.close(_CLOSE_S):
            self.warn("telemetry_file_hangs", path=str(self.path), records=len(self._waiting))

    def _wake(self) -> bool:
        with suppress(RuntimeError):  # no thread is available
            self._worker.submit(self._write_all)
            return True
        return False

    def _tell_dropped(self, dropped: int) -> None:
        self.warn("telemetry_dropped", path=str(self.path), records=dropped)

    # --- the worker's jobs, one at a time --------------------------------------------------------

    def _write_all(self) -> None:
        """Write all records; if the disk refuses one, try again after a pause."""
        while self._waiting:
            if not self._write(self._waiting[0]) and not self._is_closed:
                self._pause_s = min(2 * self._pause_s, _RETRY_S_MAX)
                self._worker.submit(self._write_all, after_s=self._pause_s / 2)
                return
            self._waiting.popleft()
            self._pause_s = _RETRY_S
        self._rest()

    def _finish(self) -> None:
        self._write_all()
        self._close_descriptor()
        if self.dropped:
            self._tell_dropped(self.dropped)

    def _write(self, entry: Envelope | threading.Event) -> bool:
        """Write a record; return False if the disk refuses it."""
        if isinstance(entry, threading.Event):
            entry.set()
            return True
        try:
            self._append(json.dumps(to_json(entry), separators=(",", ":")).encode() + b"\n")
        except OSError as error:
            if self._refuse():
                self.warn("telemetry_file_unwritable", path=str(self.path), error=str(error))
            if self._is_closed:
                self._drop()
            return False
        except Exception as error:  # noqa: BLE001 -- the next record may be written
            self.warn("telemetry_not_written", path=str(self.path), error=repr(error))
            self._drop()
        else:
            dropped = self._accept()
            if dropped is not None:
                self.warn("telemetry_file_writable", path=str(self.path), dropped=dropped)
        return True

    def _append(self, line: bytes) -> None:
        descriptor, written = self._prepare(len(line)), 0
        if self._is_torn:
            os.write(descriptor, b"\n")
            self._is_torn = False
        try:
            while written < len(line):
                written += os.write(descriptor, line[written:])
        except OSError:
            self._is_torn = written > 0 and not self._take_back(descriptor, written)
            raise

    def _take_back(self, descriptor: int, written: int) -> bool:
        """Cut a torn line off; return False if the file is a pipe, or cannot be cut."""
        with suppress(OSError):
            if self._rotates:
                os.ftruncate(descriptor, os.fstat(descriptor).st_size - written)
                return True
        return False

    def _prepare(self, length: int) -> int:
        """Return the descriptor to append to: reopened if the file moved, rotated if it is full."""
        if self._descriptor is not None and self._rotates and not self._is_in_place():
            self._close_descriptor()
        descriptor = self._open() if self._descriptor is None else self._descriptor
        if self._rotates:
            size = os.fstat(descriptor).st_size
            if size and size + length > _BYTES_MAX and now_s() >= self._rotate_at_s:
                self._rotate(descriptor)
        return self._open() if self._descriptor is None else self._descriptor

    def _open(self) -> int:
        descriptor = self._descriptor = _open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.set_blocking(descriptor, True)  # a slow reader of a pipe gets whole lines
        status = os.fstat(descriptor)
        self._rotates = stat.S_ISREG(status.st_mode) and str(self.path) not in _STANDARD
        # A killed process may have torn its last line.
        self._is_torn = self._rotates and not self._ends_with_a_line(status.st_size)
        return descriptor

    def _ends_with_a_line(self, size: int) -> bool:
        try:
            reader = _open(self.path, os.O_RDONLY)
        except OSError:
            return True  # write only
        try:
            return os.pread(reader, 1, max(0, size - 1)) in {b"\n", b""}
        finally:
            os.close(reader)

    def _is_in_place(self) -> bool:
        assert self._descriptor is not None
        try:
            return os.path.samestat(self.path.lstat(), os.fstat(self._descriptor))
        except FileNotFoundError:
            return False

    def _rotate(self, descriptor: int) -> None:
        """Rename FILE to FILE.1, FILE.1 to FILE.2 and so on.

        Members may share the file: with the lock, only one of them rotates it.
        """
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self._is_in_place():
                self._shift()
        except BlockingIOError:
            return  # another member is rotating it
        except OSError as error:
            with suppress(OSError):  # other members may be able to rotate the file
                fcntl.flock(descriptor, fcntl.LOCK_UN)
            self._rotate_at_s = now_s() + _ROTATE_AGAIN_S
            self.warn("telemetry_file_not_rotated", path=str(self.path), error=str(error))
            return
        self._close_descriptor()

    def _shift(self) -> None:
        names = [self.path, *(Path(f"{self.path}.{n + 1}") for n in range(_BACKUPS))]
        for before, after in reversed(list(itertools.pairwise(names))):
            if before.exists():
                before.replace(after)

    def _close_descriptor(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def _open(path: Path, flags: int) -> int:
    """Open a file; no link is followed, and a pipe without a reader is an error."""
    flags |= os.O_CLOEXEC | os.O_NONBLOCK
    if str(path) not in _STANDARD:
        flags |= os.O_NOFOLLOW
    try:
        return os.open(path, flags, _MODE)
    except OSError as error:
        if error.errno == errno.ELOOP and path.is_symlink():
            raise OSError(error.errno, "it is a symbolic link: name its target") from None
        if error.errno == errno.ENXIO and path.is_fifo():
            raise OSError(error.errno, "it is a pipe without a reader") from None
        raise
