"""What a file and a topic of telemetry have in common: the bounded queue of records that wait.

What does not fit is dropped and counted.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque

from attrs import define, field

from coopgroup.telemetry import Envelope


@define(eq=False)
class TelemetryWriter(ABC):
    """Writes records in the order of `put`.

    Attributes:
        capacity: how many records may wait; more are dropped.
        dropped: number of records that were not written since the start.
    """

    capacity: int = field(default=10_000, kw_only=True)
    # Reentrant: a signal handler may close the consumer while its thread holds the lock.
    _lock: threading.RLock = field(factory=threading.RLock, init=False)  # guards the rest
    # Records stay here until they are written. An event is set when all before it are written.
    _waiting: deque[Envelope | threading.Event] = field(factory=deque, init=False)
    # Whether the writer will come.
    _is_awake: bool = field(default=False, init=False)
    _is_closed: bool = field(default=False, init=False)
    dropped: int = field(default=0, init=False)
    # Records dropped before the writer was refused; None while it is not.
    _dropped_before: int | None = field(default=None, init=False)

    @abstractmethod
    def _wake(self) -> bool:
        """Begin to write soon; return False if that is not possible now."""

    @abstractmethod
    def _tell_dropped(self, dropped: int) -> None:
        """Say how many records were dropped since the start."""

    def put(self, envelope: Envelope) -> None:
        """Add a record, or drop it if too many wait; this never waits for the writer."""
        with self._lock:
            if self._is_closed:
                return
            is_full = len(self._waiting) >= self.capacity
            if not is_full:
                self._waiting.append(envelope)
            self._rouse()
        if is_full:
            self._drop()

    def _rouse(self) -> None:
        """Wake the writer if it rests; if it cannot be woken, the next record tries again."""
        if not self._is_awake:
            self._is_awake = True
            if not self._wake():
                self._is_awake = False

    def _rest(self) -> None:
        """Let the writer rest until the next record, unless one came in the meantime."""
        with self._lock:
            self._is_awake = False
            if self._waiting:
                self._rouse()

    def _drop(self, count: int = 1) -> None:
        """Count dropped records."""
        with self._lock:
            self.dropped += count
            dropped = self.dropped
        if dropped.bit_count() == 1:
            self._tell_dropped(dropped)

    def _refuse(self) -> bool:
        """Note that the disk or the broker refuses a record; return whether that is new."""
        is_new = self._dropped_before is None
        if is_new:
            self._dropped_before = self.dropped
        return is_new

    def _accept(self) -> int | None:
        """Note a written record; return how many were dropped if the writer was refused before."""
        before, self._dropped_before = self._dropped_before, None
        return None if before is None else self.dropped - before

    def _take_no_more(self) -> bool:
        """Refuse later records; return whether the writer must end now."""
        with self._lock:
            was_closed, self._is_closed = self._is_closed, True
        return not was_closed
