"""`CommitMeter`: counts commits and their durations, for metrics.

Commits are counted here and not written to telemetry: an application may commit each record.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Mapping
from typing import Final

from attrs import define, field, frozen

__all__ = ["COMMIT_BUCKETS_S", "CommitCounts", "CommitMeter"]

COMMIT_BUCKETS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds of the durations that are counted together, in seconds."""


@frozen(kw_only=True)
class CommitCounts:
    """All commits of a member so far.

    Attributes:
        by_outcome: number of commits that ended as "committed" or "failed".
        seconds: sum of their durations, in seconds.
        buckets: number of commits up to each bound of `COMMIT_BUCKETS_S`, and of longer ones; not
            cumulative.
    """

    by_outcome: Mapping[str, int]
    seconds: float
    buckets: tuple[int, ...]


@define(eq=False)
class CommitMeter:
    """The counts of one member; any thread may call."""

    _by_outcome: dict[str, int] = field(factory=lambda: {"committed": 0, "failed": 0}, init=False)
    _seconds: float = field(default=0.0, init=False)
    _buckets: list[int] = field(factory=lambda: [0] * (len(COMMIT_BUCKETS_S) + 1), init=False)
    # Reentrant: a signal handler may commit while its thread holds the lock.
    _lock: threading.RLock = field(factory=threading.RLock, init=False)

    def add(self, seconds: float, *, is_committed: bool) -> None:
        """Count a commit that has ended."""
        with self._lock:
            self._by_outcome["committed" if is_committed else "failed"] += 1
            self._seconds += seconds
            self._buckets[bisect_left(COMMIT_BUCKETS_S, seconds)] += 1

    def counts(self) -> CommitCounts:
        """Return the counts so far."""
        with self._lock:
            return CommitCounts(
                by_outcome=dict(self._by_outcome),
                seconds=self._seconds,
                buckets=tuple(self._buckets),
            )
