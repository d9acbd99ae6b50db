"""Commits whose callers still wait.

Rules of this file:

- Each commit ends exactly once, no matter which part ends it first.
- A callback that raises keeps no other commit from ending.
- The cost of a commit does not grow with the number of waiting commits. Thousands wait during an
  outage, and the same thread sends the heartbeats.
- Any thread may register, refuse or wait for a commit. All other calls are made on the group's
  thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, TypeAlias

from attrs import define, field

from coopgroup.core.member import ErrorCode
from coopgroup.core.member.commits import Codes, codes_of
from coopgroup.core.member.events import Offset
from coopgroup.kafka.clock import now_s, pause

_STEP_S: Final = 0.005

OnCommitted: TypeAlias = "Callable[[Codes], None]"
"""Called with (topic, partition, error code) for each offset, ascending."""


@define(eq=False)
class PendingCommits:
    """The pending commits of one member: their offsets and callers."""

    warn: Callable[[BaseException], None]
    _last_id: int = field(default=0, init=False)
    _callers: dict[int, tuple[tuple[Offset, ...], OnCommitted]] = field(factory=dict, init=False)
    # Reentrant: a signal handler may close the consumer while its thread holds the lock.
    _lock: threading.RLock = field(factory=threading.RLock, init=False)

    def register(self, offsets: tuple[Offset, ...], on_committed: OnCommitted) -> int:
        """Give a commit an id."""
        with self._lock:
            self._last_id += 1
            self._callers[self._last_id] = offsets, on_committed
            return self._last_id

    def wait(self, limit_s: float) -> bool:
        """Wait for all commits registered so far; return whether they have ended in time."""
        deadline_s = now_s() + limit_s
        last_id = self._last_id
        while self._has_until(last_id):
            if now_s() >= deadline_s:
                return False
            # Poll: a condition needs a lock. A signal handler may close the consumer, and it could
            # not take the lock if it interrupted the holder.
            pause(_STEP_S)
        return True

    def _has_until(self, last_id: int) -> bool:
        with self._lock:
            return next(iter(self._callers), last_id + 1) <= last_id

    def finish(self, commit_id: int, codes: Codes | None = None) -> None:
        """Tell the caller the result of its commit; UNKNOWN_MEMBER_ID if the member has none."""
        with self._lock:
            offsets, on_committed = self._callers.pop(commit_id, ((), None))
        if on_committed is None:  # it has ended already
            return
        try:
            on_committed(codes_of(offsets, ErrorCode.UNKNOWN_MEMBER_ID) if codes is None else codes)
        except Exception as error:  # noqa: BLE001 -- the other commits must end, too
            self.warn(error)

    def end_all(self) -> None:
        """End all commits, including those that never reached the member."""
        for commit_id in tuple(self._callers):
            self.finish(commit_id)
