"""One resource of a member: its wish, its state, and the callback that follows.

Rules of this file: values only. `work` makes the callbacks and holds the lock.
"""

from __future__ import annotations

import enum

from attrs import define

from coopgroup.core.model import Resource
from coopgroup.kafka.clock import now_s
from coopgroup.telemetry import StopReason

__all__ = ["Action", "Wish", "Work"]


class Wish(enum.Enum):
    """The state that a resource should reach: running, stopped, or ended as lost."""

    RUN = "run"
    STOP = "stop"
    END = "end"


class Action(enum.Enum):
    """The callbacks, with their urgency: ending work comes before starting work."""

    LOST = 0
    STOP = 1
    START = 2


@define(eq=False)
class Work:
    """One resource.

    Attributes:
        token: generation in which it was granted.
        is_stale: whether the running work belongs to a grant that has ended.
        is_told: whether telemetry has reported that it runs.
    """

    resource: Resource
    token: int
    wish: Wish = Wish.RUN
    runs: bool = False
    is_stale: bool = False
    busy: int = 0
    is_revoked: bool = False
    is_told: bool = False
    reason: StopReason = StopReason.REVOKED
    began_s: float = 0.0
    is_warned: bool = False
    attempts: int = 0
    retry_at_s: float = 0.0

    @property
    def next_action(self) -> Action | None:
        """Return the callback that is due if none is in progress; None if none is due."""
        if self.runs and (self.is_stale or self.wish is not Wish.RUN):
            is_lost = self.is_stale or self.wish is Wish.END
            return Action.LOST if is_lost else Action.STOP
        return Action.START if self.wish is Wish.RUN and not self.runs else None

    def want(self, wish: Wish, reason: StopReason = StopReason.REVOKED) -> None:
        """Change the wish; a callback that failed before is tried again immediately."""
        self.wish, self.reason, self.began_s = wish, reason, now_s()
        self.is_revoked = self.is_warned = False
        self.attempts, self.retry_at_s = 0, 0.0

    def finished(self, action: Action) -> None:
        """Note that a callback has returned; another one may still hang."""
        self.runs = action is Action.START
        self.is_stale = self.is_stale if self.runs else self.busy > 0
        self.attempts, self.retry_at_s = 0, 0.0
