"""Commits whose callers still wait.

Rules of this file: each commit ends exactly once, whoever ends it first; a caller that raises keeps
no other commit from ending; a commit costs the same however many wait, because thousands wait
during an outage and the thread that counts them also sends the heartbeats. A commit may be
registered, refused and waited for on any thread; everything else happens on the group's thread.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Final, TypeAlias

from attrs import define, field

from coopgroup.kafka.clock import now_ms, now_s
from coopgroup.member.effects import FinishCommit

if TYPE_CHECKING:
    from collections.abc import Callable

    from coopgroup.member import ErrorCode
    from coopgroup.member.events import CommitRequested, Offset

__all__ = ["OnCommitted", "PendingCommits"]

_STEP_S: Final = 0.005

OnCommitted: TypeAlias = "Callable[[tuple[tuple[str, int, int], ...]], None]"
"""Called with (topic, partition, error code) for each offset, ascending."""


@define(eq=False)
class PendingCommits:
    """Of one member.

    Attributes:
        timeout_ms: how long a commit waits for a coordinator of which nothing is heard.
        warn: gets what a caller raises.
    """

    timeout_ms: int
    warn: Callable[[BaseException], None]
    _last_id: int = field(default=0, init=False)
    _callers: dict[int, OnCommitted] = field(factory=dict, init=False)
    # Offsets of the commits that the member has.
    _asked: dict[int, tuple[Offset, ...]] = field(factory=dict, init=False)
    # When each of them was asked for, with its id, oldest first; some may have ended since.
    _ages: deque[tuple[int, int]] = field(factory=deque, init=False)
    # When the coordinator was heard last.
    _heard_at_ms: int = field(default=0, init=False)
    # A signal handler may close the consumer while its thread is in here.
    _lock: threading.RLock = field(factory=threading.RLock, init=False)

    def register(self, on_committed: OnCommitted) -> int:
        """Give a commit an id."""
        with self._lock:
            self._last_id += 1
            self._callers[self._last_id] = on_committed
            return self._last_id

    def refuse(self, event: CommitRequested, code: ErrorCode) -> None:
        """End a commit that nobody takes up any more."""
        self.finish(FinishCommit(commit_id=event.commit_id, codes=_codes(event.offsets, code)))

    def take_up(self, event: CommitRequested) -> None:
        """The member has a commit from now on."""
        self._asked[event.commit_id] = event.offsets
        self._ages.append((now_ms(), event.commit_id))

    def hear(self) -> None:
        """The coordinator has answered something."""
        self._heard_at_ms = now_ms()

    @property
    def are_waited_for(self) -> bool:
        """Whether the member has any."""
        return bool(self._asked)

    def overdue(self) -> list[int]:
        """Ids of those that wait for a coordinator of which nothing is heard.

        A coordinator that answers may let a commit wait for the end of a round: that is no failure.
        """
        ages, asked, now = self._ages, self._asked, now_ms()
        found = []
        is_silent = now - self._heard_at_ms >= self.timeout_ms
        while ages and (
            ages[0][1] not in asked or (is_silent and now - ages[0][0] >= self.timeout_ms)
        ):
            _, commit_id = ages.popleft()
            if commit_id in asked:
                found.append(commit_id)
        return found

    def wait(self, limit_s: float) -> bool:
        """Wait on a thread of the application for the commits that were registered so far.

        Args:
            limit_s: how long to wait, in seconds.

        Returns:
            Whether all of them have ended.
        """
        deadline_s = now_s() + limit_s
        last_id = self._last_id
        while self._has_until(last_id):
            if now_s() >= deadline_s:
                return False
            # A condition would need a lock that a signal handler, which may close the consumer,
            # cannot take if it interrupted its holder.
            time.sleep(_STEP_S)
        return True

    def _has_until(self, last_id: int) -> bool:
        """Return whether a commit with an id up to `last_id` has not ended."""
        with self._lock:
            return next(iter(self._callers), last_id + 1) <= last_id

    def finish(self, finished: FinishCommit) -> None:
        """Tell a caller what became of its commit."""
        self._asked.pop(finished.commit_id, None)
        with self._lock:
            on_committed = self._callers.pop(finished.commit_id, None)
        if on_committed is None:  # it was overdue before
            return
        try:
            on_committed(finished.codes)
        except Exception as error:  # noqa: BLE001 -- the other commits must end, too
            self.warn(error)

    def end(self, commit_id: int, code: ErrorCode) -> None:
        """End one with the same code for all of its offsets."""
        offsets = self._asked.get(commit_id, ())
        self.finish(FinishCommit(commit_id=commit_id, codes=_codes(offsets, code)))

    def end_taken_up(self, code: ErrorCode) -> None:
        """End all that the member has."""
        for commit_id in tuple(self._asked):
            self.end(commit_id, code)

    def end_all(self, code: ErrorCode) -> None:
        """End all, also those that never reached the member."""
        for commit_id in tuple(self._callers):
            self.end(commit_id, code)


def _codes(offsets: tuple[Offset, ...], code: ErrorCode) -> tuple[tuple[str, int, int], ...]:
    return tuple(sorted((one.topic, one.partition, int(code)) for one in offsets))
