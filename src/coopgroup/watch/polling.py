"""Reads a group again and again on a thread, so that no display waits for a broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from attrs import define, field

from coopgroup.watch.tracking import GroupTracker
from coopgroup.watch.values import GroupView
from coopgroup.worker import Worker


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
    """The looks of one display, on a thread.

    Attributes:
        interval_s: time between two looks.
        show: called on the thread with each snapshot, or with the error of a look.
    """

    reader: Reader
    interval_s: float
    show: Callable[[GroupView | Exception], None]
    _tracker: GroupTracker = field(factory=GroupTracker, init=False)
    _worker: Worker = field(factory=lambda: Worker("coopgroup-watch"), init=False)
    _is_over: bool = field(default=False, init=False)

    def start(self) -> None:
        """Begin to look."""
        self._worker.submit(self._look)

    def stop(self) -> None:
        """End after the present look, which shows nothing more; this does not wait."""
        self._is_over = True
        self._worker.close(0.0)

    def _look(self) -> None:
        if self._is_over:
            return
        found: GroupView | Exception
        try:
            found = self._tracker.note(self.reader.read())
        except Exception as error:  # noqa: BLE001 -- shown; the next look may work
            found = error
        if not self._is_over:
            self.show(found)
        self._worker.submit(self._look, after_s=self.interval_s)
