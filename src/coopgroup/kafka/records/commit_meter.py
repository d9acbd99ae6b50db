"""`CommitMeter`: counts commits and their durations, for metrics.

Commits are counted here and not written to telemetry: an application may commit each record.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Mapping
from typing import Final

from attrs import define, field, frozen

COMMIT_BUCKETS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds of the durations that are counted together, in seconds."""


@frozen(kw_only=True)
class CommitCounts:
    """All commits of a member so far.

    Attributes:
        by_outcome: number of commits that ended as "committed" or "failed".
        buckets: number of commits up to each bound of `COMMIT_BUCKETS_S`, and of longer ones; not
            cumulative.
        bucket_seconds: sum of the durations in each bucket, in seconds.
    """

    by_outcome: Mapping[str, int]
    buckets: tuple[int, ...]
    bucket_seconds: tuple[float, ...]

    @property
    def seconds(self) -> float:
        """Return the sum of all durations, in seconds."""
        return sum(self.bucket_seconds)

    def __add__(self, other: CommitCounts) -> CommitCounts:
        """Return the commits of two members together."""
        return CommitCounts(
            by_outcome={
                one: count + other.by_outcome[one] for one, count in self.by_outcome.items()
            },
            buckets=tuple(a + b for a, b in zip(self.buckets, other.buckets, strict=True)),
            bucket_seconds=tuple(
                a + b for a, b in zip(self.bucket_seconds, other.bucket_seconds, strict=True)
            ),
        )


NO_COMMITS: Final = CommitCounts(
    by_outcome={"committed": 0, "failed": 0},
    buckets=(0,) * (len(COMMIT_BUCKETS_S) + 1),
    bucket_seconds=(0.0,) * (len(COMMIT_BUCKETS_S) + 1),
)
"""The counts of a member that has not committed yet."""


@define(eq=False)
class CommitMeter:
    """The counts of one member; any thread may call."""

    _by_outcome: dict[str, int] = field(factory=lambda: {**NO_COMMITS.by_outcome}, init=False)
    _buckets: list[int] = field(factory=lambda: [*NO_COMMITS.buckets], init=False)
    _bucket_seconds: list[float] = field(factory=lambda: [*NO_COMMITS.bucket_seconds], init=False)
    # Reentrant: a signal handler may commit while its thread holds the lock.
    _lock: threading.RLock = field(factory=threading.RLock, init=False)

    def add(self, seconds: float, *, is_committed: bool) -> None:
        """Count a commit that has ended."""
        with self._lock:
            self._by_outcome["committed" if is_committed else "failed"] += 1
            bucket = bisect_left(COMMIT_BUCKETS_S, seconds)
            self._buckets[bucket] += 1
            self._bucket_seconds[bucket] += seconds

    def counts(self) -> CommitCounts:
        """Return the counts so far."""
        with self._lock:
            return CommitCounts(
                by_outcome=dict(self._by_outcome),
                buckets=tuple(self._buckets),
                bucket_seconds=tuple(self._bucket_seconds),
            )
