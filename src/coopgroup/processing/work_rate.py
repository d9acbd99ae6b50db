"""`HandlerWork`: how fast the handlers of `process` are while all of them have work.

A rate counts what the member could process, not what arrived. So a record counts only if all
handlers were at work when the record before it ended, and when this one ended. With fewer records
in flight the rate would show the waits.

Handlers at work are limited by `workers` or `concurrency`, and with the order "partition" also by
the number of partitions.
"""

from __future__ import annotations

from attrs import define, field

from coopgroup.kafka.membership.work_meter import WorkMeter
from coopgroup.processing.scheduler import Scheduler

__all__ = ["HandlerWork"]


@define(eq=False)
class HandlerWork:
    """Measures the handlers of one run of `process`.

    Attributes:
        handlers: maximum number of records that are handled side by side.
    """

    meter: WorkMeter
    scheduler: Scheduler
    handlers: int
    _since_s: float | None = field(default=None, init=False)

    def note_end(self, now_s: float) -> None:
        """Note that a record has been handled, before the scheduler hears of it."""
        most = self.handlers
        if self.scheduler.order == "partition":
            most = min(most, self.scheduler.partition_count)
        is_full = self.scheduler.in_progress + self.scheduler.ready >= most
        if is_full and self._since_s is not None:
            self.meter.add(1, now_s - self._since_s)
        self._since_s = now_s if is_full else None
