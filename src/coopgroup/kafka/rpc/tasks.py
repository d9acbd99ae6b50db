"""Tasks for kafka-python's loop that only call a function.

kafka-python inspects each function that it is given, and runs it inside a generator. That takes
longer than most of our functions, which run several times for each heartbeat.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kafka.net.selector import Task, TaskState

__all__ = ["Callback", "Reader"]

# What the loop takes for the code of a task that has still to run.
_TO_RUN: Final = ()


class Callback(Task):
    """Calls a function once; its result is ignored."""

    def __init__(self, call: Callable[[], object]) -> None:
        """Make a task for one call."""
        self._call = call
        self._stack: Any = _TO_RUN
        self._res = self._exc = self.scheduled_at = None
        self.state = TaskState.CREATED

    def __call__(self, arg: object = None) -> None:  # noqa: ARG002  (kafka-python's signature)
        """Run; the loop expects this exception at the end of a task."""
        self._stack = None
        self._call()
        raise StopIteration

    def close(self) -> None:
        """Do not run any more."""
        self._stack = None
        self.state = TaskState.CANCELLED


class Reader(Callback):
    """Calls a function each time a socket can be read, as long as it is registered."""

    def __init__(self, call: Callable[[], object]) -> None:
        """Make a task for all reads of a socket."""
        super().__init__(call)
        # The loop checks this after each call. It starts the task again all the same.
        self._stack = None
