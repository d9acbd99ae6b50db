"""The state of the work on one resource, and the callback that follows from it.

Each resource has a wish (run, stop, end) and a state (running or not, callbacks in progress). After
each change of either, the next step follows from both:

    a callback is in progress   wait for it: two callbacks of a resource never run concurrently
    runs, and should not        `lost` if the grant has ended (the lease, an overdue stop) when a
                                thread is free for the call, else `stop`
    runs, and should            nothing, or `change` if its definition has changed; nothing if the
                                catalogue has lost it, because its leader will revoke it
    does not run, and should    `start`, unless `start` has declined it or has failed permanently
    does not run, nor should    done: tell the group that a revoked resource has stopped
"""

from __future__ import annotations

import enum
import math

from attrs import define

from coopgroup.core.model import Resource
from coopgroup.errors import Decline, StartFailed
from coopgroup.groups.catalogue import UNDEFINED, Mark
from coopgroup.kafka.clock import now_s
from coopgroup.telemetry import StopReason


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
    CHANGE = 3


@define(eq=False)
class Work:
    """One resource.

    Attributes:
        token: generation in which it was granted.
        is_stale: whether the running work belongs to a grant that has ended.
        is_told: whether telemetry has reported that it runs.
        version: version of the catalogue that the leader read for the grant; None without one.
        mark: definition with which it was started last.
        is_changed: whether the definition has changed since.
        is_deleted: whether it was missing in the catalogue that was read last.
        refusal: why `start` refused it; None if it did not.
        waits_since_s: since when it waits for a newer catalogue; infinite if it does not.
        is_waiting_told: whether that wait has been reported.
        is_changing: whether a callback for a changed definition is in progress.
    """

    resource: Resource
    token: int
    version: int | None = None
    mark: Mark = UNDEFINED
    is_changed: bool = False
    is_deleted: bool = False
    refusal: Decline | StartFailed | None = None
    waits_since_s: float = math.inf
    is_waiting_told: bool = False
    wish: Wish = Wish.RUN
    runs: bool = False
    is_stale: bool = False
    busy: int = 0
    is_revoked: bool = False
    is_told: bool = False
    reason: StopReason = StopReason.REVOKED
    began_s: float = 0.0
    is_changing: bool = False
    attempts: int = 0
    retry_at_s: float = 0.0

    @property
    def next_action(self) -> Action | None:
        """Return the callback that is due if none is in progress; None if none is due."""
        if self.runs and (self.is_stale or self.wish is not Wish.RUN):
            is_lost = self.is_stale or self.wish is Wish.END
            return Action.LOST if is_lost else Action.STOP
        if self.runs:
            return Action.CHANGE if self.is_changed and not self.is_deleted else None
        return Action.START if self.wish is Wish.RUN and self.refusal is None else None

    def want(self, wish: Wish, reason: StopReason = StopReason.REVOKED) -> None:
        """Change the wish; a callback that failed before is tried again immediately."""
        self.wish, self.reason, self.began_s = wish, reason, now_s()
        self.is_revoked = False
        self.waits_since_s = math.inf
        self.attempts, self.retry_at_s = 0, 0.0

    def refuse(self, refusal: Decline | StartFailed | None) -> None:
        """Note a refusal, or its end; failures before it are no reason to wake any more."""
        self.refusal = refusal
        self.attempts, self.retry_at_s = 0, 0.0

    def finished(self, *, runs: bool) -> None:
        """Note that a callback has returned; another one may still hang."""
        self.runs = runs
        self.is_stale = self.is_stale if self.runs else self.busy > 0
        self.attempts, self.retry_at_s = 0, 0.0
