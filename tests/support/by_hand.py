"""Turn coopgroup's threads by hand, on a clock that the test sets.

Within `by_hand()`, jobs of every `Worker` wait in one list instead of running on threads, and all
modules of coopgroup read the same clock, which moves only by `advance`. A test is then a plain
sequence: cause something, let it run, look.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import pytest
from attrs import define, field

from coopgroup.kafka import clock
from coopgroup.worker import NORMAL, Job, Worker

__all__ = ["Hand", "by_hand"]

_START_S: Final = 1_000.0
_TURNS_MAX: Final = 10_000


@define(eq=False)
class _Pending:
    due_s: float
    urgency: int
    worker: Worker
    job: Job


@define(eq=False)
class Hand:
    """The clock and the waiting jobs of a test.

    Attributes:
        now_s: the time in seconds, on the clock of `coopgroup.kafka.clock`.
        closed: workers that were closed.
    """

    now_s: float = _START_S
    closed: list[Worker] = field(factory=list, init=False)
    _pending: list[_Pending] = field(factory=list, init=False)
    _is_running: bool = field(default=False, init=False)

    def jobs(self, name: str = "") -> list[Job]:
        """Return the waiting jobs, of the workers whose name begins like this."""
        return [
            one.job
            for one in self._pending
            if not one.job.is_cancelled and one.worker.name.startswith(name)
        ]

    def run(self, name: str = "") -> None:
        """Run all jobs that are due, and the jobs that they submit."""
        for _ in range(_TURNS_MAX):
            if not self.run_one(name):
                return
        pytest.fail(f"jobs submit jobs without end: {self._pending}")

    def run_one(self, name: str = "") -> bool:
        """Run the next job that is due; return whether there was one."""
        due = [
            one
            for one in self._pending
            if one.due_s <= self.now_s
            and not one.job.is_cancelled
            and one.worker.name.startswith(name)
        ]
        if not due:
            return False
        chosen = min(due, key=lambda one: (one.urgency, one.due_s))
        self._pending.remove(chosen)
        chosen.job.call()
        return True

    def advance(self, seconds: float) -> None:
        """Let time pass; each job runs at its time."""
        until_s = self.now_s + seconds
        self.run()
        while (due_s := self._next_due_s()) <= until_s:
            self.now_s = max(self.now_s, due_s)
            self.run()
        self.now_s = until_s

    def _next_due_s(self) -> float:
        return min(
            (one.due_s for one in self._pending if not one.job.is_cancelled), default=float("inf")
        )

    def _submit(
        self, worker: Worker, call: Callable[[], None], after_s: float, urgency: int
    ) -> Job:
        job = Job(call)
        if worker in self.closed:
            job.cancel()
        else:
            self._pending.append(_Pending(self.now_s + max(0.0, after_s), urgency, worker, job))
        return job

    def _close(self, worker: Worker) -> bool:
        self.closed.append(worker)
        for one in self._pending:
            if one.worker is worker and one.due_s > self.now_s:
                one.job.cancel()
        self._pending = [one for one in self._pending if not one.job.is_cancelled]
        while any(one.worker is worker for one in self._pending):
            waiting = [one for one in self._pending if one.worker is worker]
            chosen = min(waiting, key=lambda one: one.urgency)
            self._pending.remove(chosen)
            chosen.job.call()
        return True


@contextmanager
def by_hand() -> Iterator[Hand]:
    """Let the test run all jobs and move the clock."""
    hand = Hand()

    def submit(
        self: Worker, call: Callable[[], None], *, after_s: float = 0.0, urgency: int = NORMAL
    ) -> Job:
        return hand._submit(self, call, after_s, urgency)  # noqa: SLF001

    def now_s() -> float:
        return hand.now_s

    def now_ms() -> int:
        return int(hand.now_s * 1000)

    true_s, true_ms = clock.now_s, clock.now_ms
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Worker, "submit", submit)
        patch.setattr(Worker, "close", lambda self, _: hand._close(self))  # noqa: SLF001
        for module in [one for name, one in sys.modules.items() if name.startswith("coopgroup")]:
            if getattr(module, "now_s", None) is true_s:
                patch.setattr(module, "now_s", now_s)
            if getattr(module, "now_ms", None) is true_ms:
                patch.setattr(module, "now_ms", now_ms)
        yield hand
