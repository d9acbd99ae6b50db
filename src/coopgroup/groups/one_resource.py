"""One resource of a member: what should be the case, what is, and the callback that follows.

Rules of this file: values only; who makes the callbacks, and under which lock, is `work`.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from attrs import define

from coopgroup.kafka.clock import now_s
from coopgroup.telemetry import StopReason

if TYPE_CHECKING:
    from coopgroup.model import Resource

__all__ = ["Action", "Wish", "Work"]


class Wish(enum.Enum):
    """What should be the case: it runs, it is stopped, or it ends as lost."""

    RUN = "run"
    STOP = "stop"
    END = "end"


class Action(enum.Enum):
    """Callbacks, with the urgency of each: what must not go on comes first."""

    LOST = 0
    STOP = 1
    START = 2


@define(eq=False)
class Work:
    """One resource.

    Attributes:
        resource: which.
        token: generation in which it was granted.
        wish: what should be the case.
        runs: whether `start` has returned, and neither `stop` nor `lost` since.
        is_stale: whether what runs is of a grant that has ended.
        busy: callbacks under way.
        is_revoked: whether the group waits for the stop.
        is_told: whether telemetry says that it runs.
        reason: why it stops.
        began_s: when it was told to stop.
        is_warned: whether it was warned of how long that takes.
        attempts: callbacks in a row that have raised.
        retry_at_s: not tried again before.
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
        """The callback that is due if none is under way; None for none."""
        if self.runs and (self.is_stale or self.wish is not Wish.RUN):
            is_lost = self.is_stale or self.wish is Wish.END
            return Action.LOST if is_lost else Action.STOP
        return Action.START if self.wish is Wish.RUN and not self.runs else None

    def want(self, wish: Wish, reason: StopReason = StopReason.REVOKED) -> None:
        """Change the wish; what failed before is tried again at once."""
        self.wish, self.reason, self.began_s = wish, reason, now_s()
        self.is_revoked = self.is_warned = False
        self.attempts, self.retry_at_s = 0, 0.0

    def finished(self, action: Action) -> None:
        """A callback has returned; another one may be caught still."""
        self.runs = action is Action.START
        self.is_stale = self.is_stale if self.runs else self.busy > 0
        self.attempts, self.retry_at_s = 0, 0.0
