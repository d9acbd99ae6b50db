"""Turn coopgroup's threads by hand, on a clock that the test sets.

Within `by_hand()`, jobs of every `Worker` wait in one list instead of running on threads, and all
modules of coopgroup read the same clock, which moves only by `advance`. A test is then a plain
sequence: cause something, let it run, look.

With `by_hand(waits=True)`, conditions and events that the test's thread waits for are turned as
well: the wait runs jobs, and moves the clock to its own end if it is not notified before.
"""

from __future__ import annotations

import functools
import importlib
import math
import pkgutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import Any, Final

import pytest
from attrs import define, field

from coopgroup.kafka import clock
from coopgroup.worker import NORMAL, URGENT, Job, Worker

_START_S: Final = 1_000.0
_SUBMIT: Final = Worker.submit
_TURNS_MAX: Final = 10_000
_CLOSE: Final = "coopgroup-close"  # a closing consumer waits for its job, in true time
_LIMIT_S: Final = 60.0  # of a wait that a real thread ends; only a mistake reaches it


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
        is_held: returns whether a job waits, as it does behind a slow callback.
        closed: workers that were closed.
    """

    now_s: float = _START_S
    is_held: Callable[[Job], bool] = lambda _: False
    closed: list[Worker] = field(factory=list, init=False)
    _pending: list[_Pending] = field(factory=list, init=False)
    _running: list[Worker] = field(factory=list, init=False)

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
        names = sorted({one.worker.name for one in self._pending})
        pytest.fail(f"jobs submit jobs without end: {names}")

    def run_one(self, name: str = "") -> bool:
        """Run the next job that is due; return whether there was one."""
        # A driver cancels a job in each turn: thousands of them would slow each look at the list.
        self._pending = [one for one in self._pending if not one.job.is_cancelled]
        due = [
            one
            for one in self._pending
            if one.due_s <= self.now_s and self._may_run(one) and one.worker.name.startswith(name)
        ]
        if not due:
            return False
        chosen = min(due, key=lambda one: (one.urgency, one.due_s))
        self._call(chosen)
        return True

    def _may_run(self, pending: _Pending) -> bool:
        return not pending.job.is_cancelled and not self.is_held(pending.job)

    def _call(self, pending: _Pending) -> None:
        self._pending.remove(pending)
        self._running.append(pending.worker)
        try:
            pending.job.call()
        finally:
            self._running.pop()

    def advance(self, seconds: float, *, urgent: bool = False) -> None:
        """Let time pass; each job runs at its time.

        Args:
            seconds: how much.
            urgent: run urgent jobs only, which have threads of their own: for a job that takes time
                on its worker's only thread.
        """
        until_s = self.now_s + seconds
        if urgent:
            self._pass_urgently(until_s)
            return
        self.run()
        while (due_s := self._next_due_s()) <= until_s:
            self.now_s = max(self.now_s, due_s)
            self.run()
        self.now_s = until_s

    def _pass_urgently(self, until_s: float) -> None:
        own = [one for one in self._pending if one.urgency == URGENT and one.due_s <= until_s]
        for pending in sorted(own, key=lambda one: one.due_s):
            self.now_s = max(self.now_s, pending.due_s)
            if self._may_run(pending):
                self._call(pending)
        self.now_s = until_s

    def _next_due_s(self) -> float:
        return min((one.due_s for one in self._pending if self._may_run(one)), default=math.inf)

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
        while waiting := [
            one for one in self._pending if one.worker is worker and self._may_run(one)
        ]:
            self._call(min(waiting, key=lambda one: one.urgency))
        return not any(one.worker is worker for one in self._pending)

    def _turn(self, until_s: float) -> bool:
        """Run one job, after moving the clock to its time; return whether there was one."""
        if self.run_one():
            return True
        due_s = self._next_due_s()
        if (at_s := min(due_s, until_s)) < math.inf:
            self.now_s = max(self.now_s, at_s)
        return due_s < math.inf and due_s <= until_s


@contextmanager
def by_hand(*, waits: bool = False) -> Iterator[Hand]:
    """Let the test run all jobs and move the clock.

    Args:
        waits: whether a condition that the test's thread waits for runs jobs meanwhile.
    """
    hand = Hand()

    def submit(
        self: Worker, call: Callable[[], None], *, after_s: float = 0.0, urgency: int = NORMAL
    ) -> Job:
        if self.name == _CLOSE and not waits:
            call()
            return Job(call)
        return hand._submit(self, call, after_s, urgency)  # noqa: SLF001

    def now_s() -> float:
        return hand.now_s

    def now_ms() -> int:
        return int(hand.now_s * 1000)

    assert Worker.submit is _SUBMIT, "an earlier test has not taken back what it patched"
    true_s, true_ms = clock.now_s, clock.now_ms
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Worker, "submit", submit)
        patch.setattr(Worker, "close", lambda self, _: hand._close(self))  # noqa: SLF001
        own = property(lambda self: self in hand._running)  # noqa: SLF001
        patch.setattr(Worker, "is_own_thread", own)
        if waits:
            _turn_waits(hand, patch)
        for module in _import_hosts():
            if getattr(module, "now_s", None) is true_s:
                patch.setattr(module, "now_s", now_s)
            if getattr(module, "now_ms", None) is true_ms:
                patch.setattr(module, "now_ms", now_ms)
        yield hand


@functools.cache
def _import_hosts() -> tuple[ModuleType, ...]:
    """Import all modules that read the clock, and return them.

    A module that a test imports later would keep the hand's clock after the test.
    """
    names = ["coopgroup.health"]
    names += [
        one.name
        for host in ("kafka", "aio", "groups", "processing", "metrics", "watch")
        for one in pkgutil.walk_packages(
            importlib.import_module(f"coopgroup.{host}").__path__, f"coopgroup.{host}."
        )
    ]
    return tuple(importlib.import_module(name) for name in names if name != clock.__name__)


def _turn_waits(hand: Hand, patch: pytest.MonkeyPatch) -> None:
    owner, true_wait = threading.get_ident(), threading.Condition.wait

    def end_wait(condition: Any, waiter: Any, timeout: float | None) -> bool:  # noqa: ANN401
        if timeout is None:  # such as the wait for a thread that starts
            assert waiter.acquire(timeout=_LIMIT_S), "a wait without end, and no job ends it"
            return True
        with suppress(ValueError):
            condition._waiters.remove(waiter)  # noqa: SLF001
        return bool(waiter.acquire(blocking=False))

    def wait(condition: Any, timeout: float | None = None) -> bool:  # noqa: ANN401  (its inside)
        if threading.get_ident() != owner:
            return true_wait(condition, timeout)
        until_s = math.inf if timeout is None else hand.now_s + max(0.0, timeout)
        waiter = threading.Lock()
        waiter.acquire()
        condition._waiters.append(waiter)  # noqa: SLF001  (`notify` releases it)
        saved = condition._release_save()  # noqa: SLF001
        try:
            while not waiter.acquire(blocking=False):
                if not hand._turn(until_s):  # noqa: SLF001
                    return end_wait(condition, waiter, timeout)
            return True
        finally:
            condition._acquire_restore(saved)  # noqa: SLF001

    def time_s() -> float:
        return hand.now_s if threading.get_ident() == owner else time.monotonic()

    patch.setattr(threading.Condition, "wait", wait)
    patch.setattr(threading, "_time", time_s)
