"""`RecordQueue`: a bounded queue between the threads of members and a slow receiver.

A member's threads only append records. A job beside them passes them on, in order. If it is too
slow, further records are dropped and counted. An exception of the receiver is counted, and goes no
further.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final, Generic, TypeVar

from attrs import define, field

from coopgroup.kafka.clock import now_s
from coopgroup.telemetry import Envelope
from coopgroup.worker import Worker

LOOK_S: Final = 30.0
# Enough for an exporter that pauses. If it hangs, the bound keeps the memory of the process small.
_RECORDS_MAX: Final = 10_000
_From = TypeVar("_From")


@define(eq=False, weakref_slot=True)
class RecordQueue(Generic[_From]):
    """Records on their way, each with its sender.

    Attributes:
        take: gets each record; only one thread at a time calls it.
        look: called every 30 s on the thread of the jobs; None for no call.
        capacity: number of records that may wait.
        dropped: number of records that found no place, or that `take` refused.
    """

    take: Callable[[_From, Envelope], None]
    look: Callable[[], None] | None = None
    capacity: int = _RECORDS_MAX
    dropped: int = field(default=0, init=False)
    _waiting: deque[tuple[_From, Envelope]] = field(factory=deque, init=False)
    _worker: Worker = field(factory=lambda: Worker("coopgroup-metrics"), init=False)
    _look_at_s: float = field(default=0.0, init=False)
    _taking: threading.RLock = field(factory=threading.RLock, init=False)

    def put(self, sender: _From, envelope: Envelope) -> None:
        """Append a record; never waits."""
        if len(self._waiting) >= self.capacity:
            self.dropped += 1
            return
        self._waiting.append((sender, envelope))
        self.wake()

    def drain(self) -> None:
        """Pass on all waiting records, on this thread."""
        with self._taking:
            # Bounded, so that jobs of later records cannot pile up behind this call.
            for _ in range(len(self._waiting)):
                sender, envelope = self._waiting.popleft()
                try:
                    self.take(sender, envelope)
                except Exception:  # noqa: BLE001 -- counted, and shown as a metric
                    self.dropped += 1

    def wake(self, after_s: float = 0.0) -> None:
        """Let a job pass on the records, and call `look` if it is time; does not wait."""
        job = partial(_serve, weakref.ref(self))
        with suppress(RuntimeError):  # the interpreter ends, or no thread is available
            self._worker.submit(job, after_s=after_s)

    def _serve(self) -> None:
        self.drain()
        if self.look is not None and now_s() >= self._look_at_s:
            self._look_at_s = now_s() + LOOK_S
            self.wake(after_s=LOOK_S)
            self.look()


def _serve(own: weakref.ref[RecordQueue[_From]]) -> None:
    """Turn a queue if it still exists: its jobs must not keep it alive."""
    records = own()
    if records is not None:
        records._serve()  # noqa: SLF001 -- same module
