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
from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

from attrs import define, field

from coopgroup.core.member import ErrorCode
from coopgroup.core.member.effects import FinishCommit
from coopgroup.core.member.events import CommitRequested, Offset
from coopgroup.kafka.clock import now_ms, now_s, pause

_STEP_S: Final = 0.005

OnCommitted: TypeAlias = "Callable[[tuple[tuple[str, int, int], ...]], None]"
"""Called with (topic, partition, error code) for each offset, ascending."""


@define(eq=False)
class PendingCommits:
    """The pending commits of one member.

    Attributes:
        timeout_ms: how long a commit waits for a silent coordinator.
        heard_at_ms: time of the coordinator's last answer; 0 if it never answered.
    """

    timeout_ms: int
    warn: Callable[[BaseException], None]
    heard_at_ms: int = field(default=0, init=False)
    _last_id: int = field(default=0, init=False)
    _callers: dict[int, OnCommitted] = field(factory=dict, init=False)
    # Offsets of the commits that the member has taken up.
    _asked: dict[int, tuple[Offset, ...]] = field(factory=dict, init=False)
    # (request time, id) of these commits, oldest first; some may have ended since.
    _ages: deque[tuple[int, int]] = field(factory=deque, init=False)
    # Reentrant: a signal handler may close the consumer while its thread holds the lock.
    _lock: threading.RLock = field(factory=threading.RLock, init=False)

    def register(self, on_committed: OnCommitted) -> int:
        """Give a commit an id."""
        with self._lock:
            self._last_id += 1
            self._callers[self._last_id] = on_committed
            return self._last_id

    def refuse(self, event: CommitRequested, code: ErrorCode) -> None:
        """End a commit that the member can no longer take up."""
        self.finish(FinishCommit(commit_id=event.commit_id, codes=_codes(event.offsets, code)))

    def take_up(self, event: CommitRequested) -> None:
        """Note that the member has taken up a commit."""
        self._asked[event.commit_id] = event.offsets
        self._ages.append((now_ms(), event.commit_id))

    def hear(self) -> None:
        """Note that the coordinator has answered a request."""
        self.heard_at_ms = now_ms()

    @property
    def are_waited_for(self) -> bool:
        """Return whether the member has pending commits."""
        return bool(self._asked)

    def overdue(self) -> list[int]:
        """Return the ids of commits that have waited too long for a silent coordinator.

        A coordinator that answers may let a commit wait for the end of a round: that is not a
        failure.
        """
        ages, asked, now = self._ages, self._asked, now_ms()
        found = []
        is_silent = now - self.heard_at_ms >= self.timeout_ms
        while ages and (
            ages[0][1] not in asked or (is_silent and now - ages[0][0] >= self.timeout_ms)
        ):
            _, commit_id = ages.popleft()
            if commit_id in asked:
                found.append(commit_id)
        return found

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

    def finish(self, finished: FinishCommit) -> None:
        """Tell the caller the result of its commit."""
        self._asked.pop(finished.commit_id, None)
        with self._lock:
            on_committed = self._callers.pop(finished.commit_id, None)
        if on_committed is None:  # it was overdue and has ended
            return
        try:
            on_committed(finished.codes)
        except Exception as error:  # noqa: BLE001 -- the other commits must end, too
            self.warn(error)

    def end(self, commit_id: int, code: ErrorCode) -> None:
        """End a commit with the same code for all of its offsets."""
        offsets = self._asked.get(commit_id, ())
        self.finish(FinishCommit(commit_id=commit_id, codes=_codes(offsets, code)))

    def end_taken_up(self, code: ErrorCode) -> None:
        """End all commits that the member has taken up."""
        for commit_id in tuple(self._asked):
            self.end(commit_id, code)

    def end_all(self, code: ErrorCode) -> None:
        """End all commits, including those that never reached the member."""
        for commit_id in tuple(self._callers):
            self.end(commit_id, code)


def _codes(offsets: tuple[Offset, ...], code: ErrorCode) -> tuple[tuple[str, int, int], ...]:
    return tuple(sorted((one.topic, one.partition, int(code)) for one in offsets))
