"""A bounded number of threads for an application's callbacks.

Rules of this file: the most urgent call runs first. Urgent calls run even if callbacks block all
threads. Threads start when they are needed and end when they are idle. No thread keeps the
interpreter from exiting, even if a callback hangs.
"""

from __future__ import annotations

import heapq
import math
import threading
from collections.abc import Callable
from typing import Final

from attrs import Factory, define, field

from coopgroup.kafka.clock import now_s

__all__ = ["URGENT", "CallbackPool"]

URGENT: Final = 0
"""Calls that do not wait for a free thread: immediate stops, and listeners for failures."""
_IDLE_S: Final = 5.0
_CLOSE_S: Final = 1.0


@define(eq=False)
class CallbackPool:
    """Runs calls that never raise.

    Attributes:
        threads_max: maximum number of concurrent calls, without urgent ones.
    """

    name: str
    threads_max: int
    _calls: list[tuple[int, int, Callable[[], None]]] = field(factory=list, init=False)
    _number: int = field(default=0, init=False)
    _threads: int = field(default=0, init=False)
    _idle: int = field(default=0, init=False)
    _closed: bool = field(default=False, init=False)
    _own: set[int] = field(factory=set, init=False)
    # Time when a thread last took a call, or when the first waiting call arrived.
    _moved_on_s: float = field(default=0.0, init=False)
    # Entered instead of the condition, whose `__enter__` is Python code: a signal's exception could
    # end it with the lock held.
    _lock: threading.RLock = field(factory=threading.RLock, init=False)
    _changed: threading.Condition = field(
        default=Factory(lambda self: threading.Condition(self._lock), takes_self=True), init=False
    )

    @property
    def waits_since_s(self) -> float:
        """Return since when calls wait without a free thread; infinite if no call waits."""
        with self._lock:
            return self._moved_on_s if self._calls else math.inf

    def submit(self, urgency: int, call: Callable[[], None]) -> None:
        """Run a call on a thread; a waiting call with a smaller number goes first."""
        with self._lock:
            self._number += 1
            if not self._calls:
                self._moved_on_s = now_s()
            heapq.heappush(self._calls, (urgency, self._number, call))
            is_full = self._threads >= self.threads_max and urgency > URGENT
            if self._idle >= len(self._calls) or is_full:
                self._changed.notify()
                return
            self._threads += 1
        try:
            threading.Thread(target=self._run, name=self.name, daemon=True).start()
        except RuntimeError:  # no free thread: a running thread or the next call takes it
            with self._lock:
                self._threads -= 1

    def close(self) -> None:
        """End idle threads; waiting calls are still made."""
        with self._lock:
            self._closed = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._idle, _CLOSE_S)

    def refuse_own(self, action: str) -> None:
        """Refuse an action that waits for callbacks if a callback calls it.

        Raises:
            RuntimeError: this is a thread of the pool.
        """
        if threading.get_ident() in self._own:
            raise RuntimeError(f"a callback cannot {action}: that would wait for itself")

    def _run(self) -> None:
        self._own.add(threading.get_ident())
        while True:
            with self._lock:
                self._idle += 1
                if not self._calls and not self._closed:
                    self._changed.wait_for(lambda: self._calls or self._closed, _IDLE_S)
                self._idle -= 1
                is_surplus = self._threads > self.threads_max
                if not self._calls or (is_surplus and self._calls[0][0] > URGENT):
                    self._threads -= 1
                    self._own.discard(threading.get_ident())
                    self._changed.notify_all()
                    return
                _, _, call = heapq.heappop(self._calls)
                self._moved_on_s = now_s()
            call()
