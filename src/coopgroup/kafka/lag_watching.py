"""The leader's looks at the lags between rounds, on a thread of their own.

Rules of this file: a look may never cost the group anything. It runs off the group's thread and is
bounded in time; one at a time, and an assignor that is deciding a round is not asked for another
opinion meanwhile. A look that fails is tried again when the next one is due.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from attrs import define, field

from coopgroup.kafka.clock import now_s
from coopgroup.session import LagsChecked, check_lags, one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from coopgroup.kafka.leading import RoundLeader
    from coopgroup.kafka.telemetry_sink import TelemetrySink
    from coopgroup.session import CheckLags

__all__ = ["LagWatcher"]

_STOP_TIMEOUT_S: Final = 2.0


@define(eq=False)
class LagWatcher:
    """Looks at lags for the driver.

    Attributes:
        leader: whose look-ups, assignor and time limit count, and whose turn it may be.
        post: gives events to the driver, from any thread.
        sink: for what went wrong.
    """

    leader: RoundLeader
    post: Callable[[LagsChecked], None]
    sink: TelemetrySink
    _thread: threading.Thread | None = field(default=None, init=False)
    _fails: bool = field(default=False, init=False)
    _stopped: bool = field(default=False, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)  # of thread and stop

    def start(self, duty: CheckLags) -> None:
        """Look in the background; left out while the last look is still under way."""
        try:
            with self._lock:
                if self._stopped or (self._thread is not None and self._thread.is_alive()):
                    return
                self._thread = None
                thread = threading.Thread(
                    target=self._run, args=(duty,), name="coopgroup-lag-watcher", daemon=True
                )
                thread.start()
                self._thread = thread
        except RuntimeError as error:  # no thread is to be had
            self._warn(one_line(error))

    def stop(self) -> None:
        """End the look under way; call it after the leader's look-ups were closed."""
        with self._lock:
            self._stopped = True
            thread = self._thread
        if thread is not None:
            thread.join(_STOP_TIMEOUT_S)

    def _run(self, duty: CheckLags) -> None:
        until_s = now_s() + self.leader.timeout_ms / 1000
        try:
            lags = self.leader.lookup.lags(duty.resources)
            if now_s() > until_s or not self.leader.turn.acquire(blocking=False):
                return
            try:
                checked = check_lags(duty, lags, assignor=self.leader.assignor)
            finally:
                self.leader.turn.release()
        except BaseException as error:  # noqa: BLE001 -- SystemExit, too, would go unnoticed
            self._warn(one_line(error))
            return
        self._fails = False
        if now_s() <= until_s and not self._stopped:
            self.post(checked)

    def _warn(self, reason: str) -> None:
        """Say once that looks fail, until one does not."""
        if not self._fails and not self._stopped:
            self.sink.warn("lag_check_failed", error=reason)
        self._fails = True
