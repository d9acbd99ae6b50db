"""Reads a group again and again on a thread, so that no display waits for a broker."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from attrs import define, field

from coopgroup.watch.tracking import GroupTracker
from coopgroup.watch.values import GroupView

__all__ = ["Reader", "ViewPolling"]


class Reader(Protocol):
    """The source of every live view, in the terminal and over HTTP.

    `watch.reading` has the one for brokers. Another source needs this method only. Telemetry of
    members goes into `GroupView.records`: the page draws its rounds, faults and warm-ups.
    """

    def read(self) -> GroupView:
        """Return the group of this moment; may wait, and raise."""
        ...


@define(eq=False)
class ViewPolling:
    """The thread of one display.

    Attributes:
        interval_s: time between two looks.
        show: called on the thread with each snapshot, or with the error of a look.
    """

    reader: Reader
    interval_s: float
    show: Callable[[GroupView | Exception], None]
    _tracker: GroupTracker = field(factory=GroupTracker, init=False)
    _is_over: threading.Event = field(factory=threading.Event, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="coopgroup-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread after its present look; this does not wait."""
        self._is_over.set()

    def _run(self) -> None:
        while not self._is_over.is_set():
            found: GroupView | Exception
            try:
                found = self._tracker.note(self.reader.read())
            except Exception as error:  # noqa: BLE001 -- shown; the next look may work
                found = error
            if not self._is_over.is_set():
                self.show(found)
            self._is_over.wait(self.interval_s)
