"""Check the lags between rounds, for the leader, on a separate thread.

Rules of this file: a check must never cost the group anything. It does not run on the group's
thread, it is bounded in time, and only one runs at a time. It does not call an assignor that is
deciding a round. After a failed check, the next one runs at its regular time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from attrs import define, field

from coopgroup.core.session import CheckLags, LagsChecked, check_lags, one_line
from coopgroup.kafka.clock import now_s
from coopgroup.kafka.membership.leading import RoundLeader
from coopgroup.worker import Worker

__all__ = ["LagWatcher"]

_STOP_TIMEOUT_S: Final = 2.0


@define(eq=False)
class LagWatcher:
    """Checks lags for the driver."""

    leader: RoundLeader
    post: Callable[[LagsChecked], None]
    _worker: Worker = field(factory=lambda: Worker("coopgroup-lag-watcher"), init=False)
    _is_checking: bool = field(default=False, init=False)
    _fails: bool = field(default=False, init=False)

    def start(self, duty: CheckLags) -> None:
        """Check in the background, unless the last check is still running."""
        if self._is_checking:
            return
        self._is_checking = True
        try:
            self._worker.submit(partial(self._run, duty))
        except RuntimeError as error:  # no thread is available
            self._is_checking = False
            self._warn(one_line(error))

    def stop(self) -> None:
        """End the running check; call this after the leader's look-ups were closed."""
        self._worker.close(_STOP_TIMEOUT_S)

    def _run(self, duty: CheckLags) -> None:
        try:
            self._check(duty)
        finally:
            self._is_checking = False

    def _check(self, duty: CheckLags) -> None:
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
        if now_s() <= until_s and not self.leader.is_stopped:
            self.post(checked)

    def _warn(self, reason: str) -> None:
        if not self._fails:
            self.leader.warn("lag_check_failed", error=reason)
        self._fails = True
