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

from coopgroup.kafka.membership.driver import GroupDriver
from coopgroup.kafka.membership.group_events import GroupEvents
from coopgroup.session import SessionEvent
from coopgroup.worker import Job, Worker
from tests.support.by_hand import Hand

__all__ = ["TURNS", "TurnedDriver", "turn_drivers"]

TURNS: Final = "turns of "


@define(eq=False)
class TurnedDriver:
    """Turns one driver.

    Attributes:
        is_held: whether the driver's thread does not get to run, as in a frozen process.
    """

    driver: GroupDriver
    is_held: bool = False
    _worker: Worker = field(init=False)
    _next: Job | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._worker = Worker(f"{TURNS}{self.driver.settings.member.group_id}")

    def plan(self, pause_s: float) -> None:
        """Turn after a pause, instead of later."""
        if self._next is not None:
            self._next.cancel()
        if not math.isinf(pause_s):
            self._next = self._worker.submit(self._turn, after_s=pause_s)

    def _turn(self) -> None:
        if self.is_held:
            return
        event = self.driver.take(0.0)
        if event is None:
            self.driver.is_running = False
            return
        self.driver.turn(event)
        self.plan(0.0 if self.driver.has_events else self.driver.pause_s())


def turn_drivers(hand: Hand, patch: pytest.MonkeyPatch) -> list[TurnedDriver]:
    """Let the hand turn all drivers that start from now on; return them, in that order."""
    turned: list[TurnedDriver] = []
    start, put, end = GroupDriver.start, GroupEvents.put, GroupEvents.end

    def started(driver: GroupDriver) -> None:
        start(driver)
        for job in hand.jobs(f"coopgroup-{driver.settings.member.group_id}"):
            job.cancel()  # the loop of production
        turned.append(TurnedDriver(driver))

    def plan(events: GroupEvents) -> None:
        for one in turned:
            if one.driver.has_events:
                one.plan(0.0)

    def put_and_plan(events: GroupEvents, event: SessionEvent) -> None:
        put(events, event)
        plan(events)

    def end_and_turn(events: GroupEvents) -> None:
        end(events)
        plan(events)

    patch.setattr(GroupDriver, "start", started)
    patch.setattr(GroupEvents, "put", put_and_plan)
    patch.setattr(GroupEvents, "end", end_and_turn)
    return turned
