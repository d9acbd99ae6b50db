"""`Retries`: when to tell that something is tried again and again without success.

A fault that is retried without end must not be silent. It is told once after `TELL_AFTER_MS`,
because brokers that restart answer sooner. Then it is told after each `TELL_AGAIN_MS`, and once
more when it ends. The core and its hosts use this value for all their retries.
"""

from __future__ import annotations

from typing import Final

import attrs
from attrs import frozen

TELL_AFTER_MS: Final = 10_000
TELL_AGAIN_MS: Final = 600_000


@frozen(kw_only=True)
class Retries:
    """Failures in a row.

    Attributes:
        since_ms: begin of the first failure.
        error: the last error.
        code: number of the last error, 0 without one.
        told_at_ms: time of the last telling; None before the first.
    """

    since_ms: int
    error: str = ""
    code: int = 0
    told_at_ms: int | None = None

    def told(self, now_ms: int, *, after_ms: int = TELL_AFTER_MS) -> Retries:
        """Return the failures after they were told, or the same object if that is not due.

        Args:
            now_ms: the monotonic clock, in ms.
            after_ms: time from the first failure to the first telling; 0 to tell it immediately.
        """
        if self.told_at_ms is not None:
            due_ms = self.told_at_ms + TELL_AGAIN_MS
        else:
            due_ms = self.since_ms + after_ms
        return self if now_ms < due_ms else attrs.evolve(self, told_at_ms=now_ms)
