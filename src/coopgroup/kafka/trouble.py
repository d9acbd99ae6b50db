"""`Trouble`: tell of work outside the member that is tried again without end.

The member tells of its own requests (`coopgroup.core.member.retrying`). Its host has more work that
brokers or the application can hold up: look-ups, the bell, telemetry and the catalogue. All of it
is told in the same way (`Retries`): once after a bounded time, then rarely, and once when it ends.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import define, field

from coopgroup.core.model.retries import TELL_AFTER_MS, Retries
from coopgroup.kafka.clock import now_ms


@define(eq=False)
class Trouble:
    """The failures of one kind of work; for any thread.

    Attributes:
        warn: logs an event with its fields; `is_over` marks the end. None to log nothing.
        began: name of the event of a failure that lasts.
        ended: name of the event of the next success.
    """

    warn: Callable[..., None] | None
    began: str
    ended: str
    _retries: Retries | None = field(default=None, init=False)

    def fail(self, *, at_once: bool = False, **fields: object) -> bool:
        """Note a failure, and tell it if that is due; return whether it was told.

        Args:
            at_once: whether the first failure is told immediately, because it does not pass.
            fields: fields of the event.
        """
        at_ms = now_ms()
        before = Retries(since_ms=at_ms) if self._retries is None else self._retries
        self._retries = before.told(at_ms, after_ms=0 if at_once else TELL_AFTER_MS)
        is_told = self._retries is not before
        if is_told and self.warn is not None:
            self.warn(self.began, **fields)
        return is_told

    def succeed(self, **fields: object) -> None:
        """Note a success; tell it if the failures before it were told."""
        before, self._retries = self._retries, None
        if before is not None and before.told_at_ms is not None and self.warn is not None:
            self.warn(self.ended, is_over=True, **fields)
