"""Calls of an application's callbacks that wait for a thread.

A `Worker` raises if the system has no thread left. Here such a call waits for the next one.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable
from functools import partial

from attrs import define, field

from coopgroup.kafka.clock import now_s
from coopgroup.worker import Worker

__all__ = ["Calls"]


@define(eq=False)
class Calls:
    """Gives calls to a worker, and knows since when they wait."""

    worker: Worker
    _waiting: int = field(default=0, init=False)
    _refused: deque[tuple[int, Callable[[], None]]] = field(factory=deque, init=False)
    # Time when a thread last took a call, or when the first waiting call arrived.
    _moved_on_s: float = field(default=0.0, init=False)
    _lock: threading.RLock = field(factory=threading.RLock, init=False)

    @property
    def waits_since_s(self) -> float:
        """Return since when calls wait without a free thread; infinite if no call waits."""
        with self._lock:
            return self._moved_on_s if self._waiting else math.inf

    def submit(self, urgency: int, call: Callable[[], None]) -> None:
        """Run a call on a thread; a waiting call with a smaller number goes first."""
        with self._lock:
            if not self._waiting:
                self._moved_on_s = now_s()
            self._waiting += 1
            self._refused.append((urgency, call))
            self.try_again()

    def try_again(self) -> None:
        """Submit the calls for which the system had no thread."""
        with self._lock:
            while self._refused:
                urgency, call = self._refused.popleft()
                try:
                    self.worker.submit(partial(self._take, call), urgency=urgency)
                except RuntimeError:
                    self._refused.appendleft((urgency, call))
                    return

    def _take(self, call: Callable[[], None]) -> None:
        with self._lock:
            self._waiting -= 1
            self._moved_on_s = now_s()
        call()
