"""A `GroupDriver` whose turns are jobs of the test's hand.

Production runs `take` and `turn` in a loop on a thread. Here each event, and each deadline of the
driver, is a job of the hand: `hand.run()` takes everything that waits, `hand.advance(s)` lets the
driver's deadlines pass as well.
"""

from __future__ import annotations

import math
from typing import Final

import pytest
from attrs import define, field

from coopgroup.core.session import SessionEvent
from coopgroup.kafka.membership.driver import GroupDriver
from coopgroup.kafka.membership.group_events import GroupEvents
from coopgroup.kafka.membership.ports import Notice
from coopgroup.worker import Job

_TURNS_MAX: Final = 100_000
_STEP_S: Final = 1e-6  # rounding must not make a deadline due for ever


@define(eq=False)
class TurnedDriver:
    """Turns one driver.

    Attributes:
        is_held: whether the driver's thread does not get to run, as in a frozen process.
    """

    driver: GroupDriver
    is_held: bool = False
    _next: Job | None = field(default=None, init=False)

    def plan(self, pause_s: float) -> None:
        """Turn after a pause, instead of later."""
        if self._next is not None:
            self._next.cancel()
        if not math.isinf(pause_s):
            worker = self.driver._worker  # noqa: SLF001  (`stop` makes its waiting jobs run)
            self._next = worker.submit(self._turn, after_s=pause_s)

    def _turn(self) -> None:
        if self.is_held:
            return
        for _ in range(_TURNS_MAX):
            event = self.driver.take(0.0)
            if event is None:
                self.driver.is_running = False
                return
            self.driver.turn(event)
            if not self.driver._events.are_waiting:  # noqa: SLF001 -- of a host
                self.plan(max(_STEP_S, self.driver.pause_s()))
                return
        pytest.fail("events cause events without end")


def turn_drivers(patch: pytest.MonkeyPatch) -> list[TurnedDriver]:
    """Turn all drivers that start from now on, within `by_hand`; return them, in that order."""
    turned: list[TurnedDriver] = []
    start, put, end = GroupDriver.start, GroupEvents.put, GroupEvents.end

    def started(driver: GroupDriver) -> None:
        start(driver)
        turned.append(TurnedDriver(driver))
        plan()

    def plan() -> None:
        for one in turned:
            if one.driver._events.are_waiting:  # noqa: SLF001 -- of a host
                one.plan(0.0)

    def put_and_plan(events: GroupEvents, event: SessionEvent) -> None:
        put(events, event)
        plan()

    def end_and_plan(events: GroupEvents) -> None:
        end(events)
        plan()

    patch.setattr(GroupDriver, "_run", lambda _: None)
    patch.setattr(GroupDriver, "start", started)
    patch.setattr(GroupEvents, "put", put_and_plan)
    patch.setattr(GroupEvents, "end", end_and_plan)
    return turned


def take_notice(driver: GroupDriver) -> Notice | None:
    """Take the oldest notice of the driver's inbox, as an application that has obeyed it."""
    notice = driver.inbox.first()
    if notice is not None:
        driver.inbox.remove(notice)
    return notice
