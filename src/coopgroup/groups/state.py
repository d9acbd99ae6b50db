"""The state of the work on one resource, and the table of what follows from it.

Each resource has a wish (run, stop, end) and a state (running or not, callbacks in progress). After
each change of either, `STEPS` decides the next step from both. Nothing is queued: a later notice
changes the wish. When a thread is free for a callback, the table decides whether it is still due.
"""

from __future__ import annotations

import enum
import math
from functools import cache
from typing import Final

from attrs import define

from coopgroup.core.model import Resource
from coopgroup.core.policies.tables import DecisionTable, Row
from coopgroup.errors import Decline, StartFailed
from coopgroup.groups.catalogue import UNDEFINED, Mark
from coopgroup.kafka.clock import now_s
from coopgroup.telemetry import StopReason


class Wish(enum.Enum):
    """The state that a resource should reach: running, stopped, or ended as lost."""

    RUN = "run"
    STOP = "stop"
    END = "end"


class Step(enum.Enum):
    """The next step of a resource: one of four callbacks, or none."""

    LOST = "`lost`"
    STOP = "`stop`"
    START = "`start`"
    CHANGE = "`on_change`; if the group has none, `stop` and then `start`"
    WAIT = "none until that callback has returned"
    KEEP = "none until something changes"
    END = "none; the group hears that a revoked resource has stopped"


URGENCY: Final = {Step.LOST: 0, Step.STOP: 1, Step.START: 2, Step.CHANGE: 3}
"""The steps that are callbacks: ending work comes before starting work."""

STEPS: Final = DecisionTable(
    facts={
        "busy": "another callback of the resource is in progress, or waits for a thread",
        "runs": "`start` has succeeded, and no `stop` or `lost` after it",
        "stale": "the grant has ended: by a loss, with the lease, or because a stop was overdue",
        "wanted": "it was granted and not revoked or lost since, and the process does not close",
        "refused": "`start` has raised `Decline` or `StartFailed`",
        "changed": "its definition has changed, and the catalogue still has it",
    },
    rows=(
        Row(("busy",), Step.WAIT, "Only `lost` may run beside another one: an overdue stop."),
        Row(("runs", "stale"), Step.LOST, "Another process may own it: a flush would be too late."),
        Row(("runs", "not wanted"), Step.STOP, "The next owner waits for it."),
        Row(("not wanted",), Step.END, "The work has ended, or it never began."),
        Row(("not runs", "refused"), Step.KEEP, "The refusal holds until it ends."),
        Row(("not runs",), Step.START, "It was granted."),
        Row(("changed",), Step.CHANGE, "The work still follows the definition before."),
        Row((), Step.KEEP, "It runs, as it should. A leader will revoke it if it was deleted."),
    ),
)


@cache
def _step(*facts: bool) -> Step:
    return STEPS.decide(**dict(zip(STEPS.facts, facts, strict=True)))


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

    def next_step(self, *, besides: int = 0) -> Step:
        """Return the next step.

        Args:
            besides: number of callbacks in progress that do not count.
        """
        wanted, refused = self.wish is Wish.RUN, self.refusal is not None
        changed = self.is_changed and not self.is_deleted
        return _step(self.busy > besides, self.runs, self.is_stale, wanted, refused, changed)

    def want(self, wish: Wish, reason: StopReason = StopReason.REVOKED) -> None:
        """Change the wish; a callback that failed before is tried again immediately."""
        self.wish, self.reason, self.began_s = wish, reason, now_s()
        self.is_stale = self.is_stale or wish is Wish.END
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
