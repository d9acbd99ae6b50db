"""`LoopWork`: how fast the tasks of a loop process records while there are more.

The hand-out looks at the clock every few milliseconds. If records were waiting at one look, and no
task has waited for a record until the next look, the loop worked all the time in between. The
records that it took in this time count. A member that mostly waits is not measured: its rate would
show its waits.

The meter sees how fast records are taken. So it does not see work that the application passes on to
other tasks without awaiting them, or to threads. `coopgroup.processing` measures its handlers.
"""

from __future__ import annotations

from attrs import define, field

from coopgroup.kafka.membership.work_meter import WorkMeter

__all__ = ["LoopWork"]


@define(eq=False)
class LoopWork:
    """Measures the work of one loop; only its thread calls.

    Attributes:
        taken: number of records that the tasks have taken.
    """

    meter: WorkMeter
    taken: int = field(default=0, init=False)
    # Time and `taken` of the last look; no time while the loop waits for records.
    _since_s: float | None = field(default=None, init=False)
    _taken_before: int = field(default=0, init=False)

    def look(self, now_s: float, *, has_more: bool) -> None:
        """Note that a task asks for records, some of which may be waiting."""
        count = self.taken - self._taken_before
        if self._since_s is not None:
            if not count:
                return
            self._add(count, now_s - self._since_s)
        elif not has_more:
            return
        self._since_s, self._taken_before = now_s, self.taken

    def wait(self, now_s: float) -> None:
        """Note that a task waits, because no record is ready."""
        if self._since_s is not None:
            self._add(self.taken - self._taken_before, now_s - self._since_s)
            self._since_s = None

    def _add(self, records: int, seconds: float) -> None:
        if records and not self.meter.is_elsewhere:
            self.meter.add(records, seconds)
