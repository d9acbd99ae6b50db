"""The cost of each commit during an outage of the group coordinator.

An application that commits each record continues during an outage, so thousands of commits wait on
the group's thread. That thread also sends the heartbeats. Each commit must therefore cost the same,
however many wait. Three cases: a request without an answer blocks the commits, requests
with all commits fail, and the commits time out together.

Goal: with 16 times as many commits a commit costs at most twice as much, and the next heartbeat is
never later than a tenth of a session timeout (4.5 s by default).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import pytest
from attrs import define, field

from coopgroup.kafka.membership.driver import GroupDriver
from coopgroup.kafka.rpc.transport import FailureKind, TransportFailure
from coopgroup.member.events import CommitRequested, Offset
from coopgroup.model.group_api import GroupRequest, HeartbeatRequest, OffsetCommitRequest
from tests.support.waiting import wait_for
from tests.unit.kafka.one_member_group import Outcome, running, subscribe

__all__ = ["run"]

COUNTS: Final = (1_000, 4_000, 16_000)
WAIT_S: Final = 300.0
# The outage ends, or the commits time out, after all have been requested.
HELD_UP: Final = {"heartbeat.interval.ms": 20, "socket.timeout.ms": 300_000}
TIMING_OUT: Final = {"heartbeat.interval.ms": 80_000, "socket.timeout.ms": 2_000}
SETTINGS: Final = {"session.timeout.ms": 90_000, "max.poll.interval.ms": 300_000}


@define(eq=False)
class _Outage:
    """An outage for commits, and the heartbeats during it.

    Attributes:
        fails: whether each commit request fails immediately.
        heartbeats_s: when each heartbeat was sent.
    """

    fails: bool
    heartbeats_s: list[float] = field(factory=list)

    def outcome(self, request: GroupRequest) -> Outcome:
        """Note a heartbeat; fail a commit."""
        if isinstance(request, HeartbeatRequest):
            self.heartbeats_s.append(time.monotonic())
        if self.fails and isinstance(request, OffsetCommitRequest):
            return TransportFailure(kind=FailureKind.DISCONNECTED, message="an outage")
        return None

    def longest_gap_ms(self) -> float:
        """Return the longest time between two heartbeats."""
        pairs = zip(self.heartbeats_s, self.heartbeats_s[1:], strict=False)
        return round(1_000 * max((after - before for before, after in pairs), default=0.0), 1)


def run(*, counts: tuple[int, ...] = COUNTS) -> dict[str, Any]:
    """Measure outages with more and more commits.

    Args:
        counts: numbers of commits, ascending.

    Returns:
        By kind of outage and number of commits: CPU time of the group's thread per commit in µs,
        and the longest gap between two heartbeats in ms. Heartbeats are due every 20 ms. And by
        kind of outage `growth`: the cost at the largest number over that at the smallest.
    """
    kinds: dict[str, Callable[[int], dict[str, float]]] = {
        "no_answer": lambda count: _held_up(count, fails=False),
        "failing": lambda count: _held_up(count, fails=True),
        "timing_out": _timed_out,
    }
    found: dict[str, Any] = {}
    for name, measure in kinds.items():
        rows = {}
        for count in counts:
            rows[str(count)] = measure(count)
            print(f"commits: {name}, {count:,} commits: {rows[str(count)]}", flush=True)
        costs = [row["us_per_commit"] for row in rows.values()]
        found[name] = {**rows, "growth": round(costs[-1] / costs[0], 2)}
    return found


def _held_up(count: int, *, fails: bool) -> dict[str, float]:
    """Request commits while no answer comes; the coordinator answers when all commits wait."""
    outage = _Outage(fails=fails)
    with pytest.MonkeyPatch.context() as patch, running(patch, more=SETTINGS | HELD_UP) as both:
        driver, group = both
        group.override = outage.outcome
        subscribe(driver)
        group.silent = frozenset() if fails else frozenset({OffsetCommitRequest})
        began_us = _cpu_us(driver)
        ended = _ask(driver, count)
        wait_for(lambda: _taken(driver) + len(ended) == count)
        outage.fails = False
        group.answer_held()
        wait_for(lambda: len(ended) == count)
        return {
            "us_per_commit": round((_cpu_us(driver) - began_us) / count, 1),
            "heartbeat_gap_ms": outage.longest_gap_ms(),
        }


def _timed_out(count: int) -> dict[str, float]:
    """Request commits that fail until they time out, without an answer of the coordinator."""
    outage = _Outage(fails=True)
    with pytest.MonkeyPatch.context() as patch, running(patch, more=SETTINGS | TIMING_OUT) as both:
        driver, group = both
        subscribe(driver)
        group.override = outage.outcome
        began_us = _cpu_us(driver)
        ended = _ask(driver, count)
        wait_for(lambda: len(ended) == count)
        return {"us_per_commit": round((_cpu_us(driver) - began_us) / count, 1)}


def _ask(driver: GroupDriver, count: int) -> list[object]:
    """Request commits of ascending offsets; the list gets their outcomes."""
    ended: list[object] = []
    for offset in range(count):
        offsets = (Offset("orders", offset % 2, offset),)
        commit_id = driver.new_commit(ended.append)
        driver.post(CommitRequested(commit_id=commit_id, offsets=offsets))
    return ended


def _taken(driver: GroupDriver) -> int:
    """Return how many commits wait in the member."""
    return sum(1 for _ in driver.member.commits.queue)


def _cpu_us(driver: GroupDriver) -> float:
    """Return the CPU time of the group's thread, in µs."""
    ident = driver.thread.ident
    assert ident is not None
    return time.clock_gettime(time.pthread_getcpuclockid(ident)) * 1e6
