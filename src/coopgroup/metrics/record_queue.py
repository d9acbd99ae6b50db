"""`RecordQueue`: a bounded queue between the threads of members and a slow receiver.

A member's threads only append records. A thread of the queue passes them on, in order. If it is too
slow, further records are dropped and counted. An exception of the receiver is counted, and goes no
further.
"""

from __future__ import annotations

import queue
import threading
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Generic, TypeVar

from attrs import define, field

from coopgroup.kafka.clock import now_s
from coopgroup.telemetry import Envelope

__all__ = ["RecordQueue"]

LOOK_S: Final = 30.0
_IDLE_S: Final = 5.0
_From = TypeVar("_From")


@define(eq=False, weakref_slot=True)
class RecordQueue(Generic[_From]):
    """Records on their way, each with its sender.

    Attributes:
        capacity: number of records that may wait.
        take: gets each record; only one thread at a time calls it.
        look: called every 30 s on the queue's thread; None for no call.
        dropped: number of records that found no place, or that `take` refused.
    """

    capacity: int
    take: Callable[[_From, Envelope], None]
    look: Callable[[], None] | None = None
    dropped: int = field(default=0, init=False)
    _waiting: deque[tuple[_From, Envelope]] = field(factory=deque, init=False)
    # `put` of a SimpleQueue may be interrupted by a signal handler that puts, too.
    _wakes: queue.SimpleQueue[None] = field(factory=queue.SimpleQueue, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)
    _taking: threading.RLock = field(factory=threading.RLock, init=False)

    def put(self, sender: _From, envelope: Envelope) -> None:
        """Append a record; never waits."""
        if len(self._waiting) >= self.capacity:
            self.dropped += 1
            return
        self._waiting.append((sender, envelope))
        self._wakes.put(None)
        self.ensure_thread()

    def drain(self) -> None:
        """Pass on all waiting records, on this thread."""
        with self._taking:
            while self._waiting:
                sender, envelope = self._waiting.popleft()
                try:
                    self.take(sender, envelope)
                except Exception:  # noqa: BLE001 -- counted, and shown as a metric
                    self.dropped += 1

    def ensure_thread(self) -> None:
        """Start the thread if it does not run."""
        # A forked child has no thread, and gets its own.
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(
                target=_serve,
                args=(weakref.ref(self), self._wakes),
                name="coopgroup-metrics",
                daemon=True,
            )
            with suppress(RuntimeError):  # the interpreter ends, or no thread is available
                self._thread.start()


def _serve(own: weakref.ref[RecordQueue[_From]], wakes: queue.SimpleQueue[None]) -> None:
    """Pass on records, and call `look`, as long as the queue exists."""
    look_at_s = now_s()
    while True:
        with suppress(queue.Empty):
            wakes.get(timeout=_IDLE_S)
        records = own()
        if records is None:
            return
        records.drain()
        if records.look is not None and now_s() >= look_at_s:
            look_at_s = now_s() + LOOK_S
            records.look()
        del records
