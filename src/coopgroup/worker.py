"""`Worker`: the only place of coopgroup that starts a thread.

A worker runs jobs beside its caller: now, or after a pause. It starts daemon threads when jobs
need them, at most `threads_max`, and idle threads end. A hanging job therefore never keeps the
interpreter from exiting.

Rules of this file: `submit` never waits, and may run in a signal handler or in a finalizer, so the
lock is reentrant. After a fork the child has none of the threads. Its workers forget the parent's
jobs, and start threads of their own.
"""

from __future__ import annotations

import heapq
import math
import os
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Final

from attrs import Factory, define, field

from coopgroup.errors import ConfigurationError

__all__ = ["NORMAL", "URGENT", "Job", "Worker", "require_threads"]

URGENT: Final = 0
"""Jobs that get a thread of their own if all threads are busy."""
NORMAL: Final = 1
_IDLE_S: Final = 5.0


def require_threads() -> None:
    """Refuse to begin a membership whose threads would be greenlets.

    They would run only while the application waits in Python. librdkafka waits in C, so no
    heartbeat would be sent during `poll`: the membership would end with every session, and records
    would be handed out again and again.

    Raises:
        ConfigurationError: gevent or eventlet has replaced threads.
    """
    gevent = sys.modules.get("gevent.monkey")
    eventlet = sys.modules.get("eventlet.patcher")
    found = ""
    if gevent is not None and gevent.is_module_patched("threading"):
        found = "gevent"
    elif eventlet is not None and eventlet.is_monkey_patched("thread"):
        found = "eventlet"
    if found:
        raise ConfigurationError(
            "threads",
            f"greenlets of {found}",
            "threads of the system, which a membership needs while librdkafka waits: run it in a "
            "process that is not patched, as workers of the kinds 'gthread' and 'prefork' are",
        )


@define(eq=False)
class Job:
    """A submitted call.

    Attributes:
        call: must not raise; an exception ends its thread, and Python prints it.
    """

    call: Callable[[], None]
    is_cancelled: bool = False

    def cancel(self) -> None:
        """Do not begin the call; without effect if it has begun."""
        self.is_cancelled = True


@define(eq=False, weakref_slot=True)
class Worker:
    """Runs jobs on daemon threads: urgent ones first, then in the order of `submit`.

    Attributes:
        name: name of the threads.
        threads_max: maximum number of concurrent jobs, without urgent ones.
        idle_s: an idle thread ends after this pause, in seconds.
    """

    name: str
    threads_max: int = 1
    idle_s: float = _IDLE_S
    _ready: list[tuple[int, int, Job]] = field(factory=list, init=False)
    _later: list[tuple[float, int, int, Job]] = field(factory=list, init=False)
    _number: int = field(default=0, init=False)
    _threads: set[threading.Thread] = field(factory=set, init=False)
    _idle: int = field(default=0, init=False)
    # Jobs under way, without urgent ones.
    _normal: int = field(default=0, init=False)
    _closed: bool = field(default=False, init=False)
    # Entered instead of the condition, whose `__enter__` is Python code: a signal's exception could
    # end it with the lock held.
    _lock: threading.RLock = field(factory=threading.RLock, init=False)
    _changed: threading.Condition = field(
        default=Factory(lambda self: threading.Condition(self._lock), takes_self=True), init=False
    )

    def __attrs_post_init__(self) -> None:
        _workers.add(self)

    @property
    def is_own_thread(self) -> bool:
        """Return whether the caller runs in a job of this worker."""
        return threading.current_thread() in self._threads

    def submit(
        self, call: Callable[[], None], *, after_s: float = 0.0, urgency: int = NORMAL
    ) -> Job:
        """Run a call on a thread.

        Args:
            call: must not raise.
            after_s: pause before the call, in seconds. `close` drops calls that still pause.
            urgency: a waiting call with a smaller number goes first.

        Returns:
            The job. It is cancelled already if the worker was closed.

        Raises:
            RuntimeError: no thread is available, and no thread of this worker could take the call.
        """
        job = Job(call)
        with self._lock:
            if self._closed:
                job.cancel()
                return job
            self._number += 1
            if after_s > 0:
                due_s = monotonic() + after_s
                heapq.heappush(self._later, (due_s, self._number, urgency, job))
            else:
                heapq.heappush(self._ready, (urgency, self._number, job))
            try:
                self._provide_thread()
            except RuntimeError:
                if not self._threads:
                    job.cancel()
                    raise
        return job

    def close(self, timeout_s: float) -> bool:
        """Make all waiting calls, drop the pausing ones, and end the threads.

        Returns:
            Whether all threads ended in time. From a job of this worker, it does not wait.
        """
        deadline_s = monotonic() + timeout_s
        with self._lock:
            self._closed = True
            self._later.clear()
            self._changed.notify_all()
            threads = () if self.is_own_thread else tuple(self._threads)
        for thread in threads:
            thread.join(max(0.0, deadline_s - monotonic()))
        return not any(one.is_alive() for one in threads)

    def _provide_thread(self) -> None:
        """Wake or start a thread for the next job; one thread waits for the pausing jobs.

        Raises:
            RuntimeError: the system has no thread left.
        """
        room = self.threads_max - self._normal
        urgent = sum(one[0] == URGENT for one in self._ready)
        has_later = room > 0 or any(one[2] == URGENT for one in self._later)
        wanted = urgent + min(len(self._ready) - urgent, room) + (bool(self._later) and has_later)
        if self._idle >= wanted:
            self._changed.notify()
            return
        thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._threads.add(thread)
        try:
            thread.start()
        except BaseException:
            if not thread.is_alive():  # a signal's exception may come after the start
                self._threads.discard(thread)
            raise

    def _run(self) -> None:
        is_normal = False
        try:
            while (taken := self._next()) is not None:
                urgency, job = taken
                is_normal = urgency > URGENT
                job.call()
                with self._lock:
                    self._normal -= is_normal
                    is_normal = False
                del job, taken  # an idle thread must not keep the objects of its last call
        finally:
            with self._lock:
                self._normal -= is_normal
                self._threads.discard(threading.current_thread())

    def _next(self) -> tuple[int, Job] | None:
        """Wait for the next job; None ends the thread."""
        with self._lock:
            while True:
                pause_s = self._move_due()
                if self._ready and (self._ready[0][0] == URGENT or self._normal < self.threads_max):
                    urgency, _, job = heapq.heappop(self._ready)
                    if job.is_cancelled:
                        continue
                    self._normal += urgency > URGENT
                    with suppress(RuntimeError):  # this thread looks again after its job
                        self._provide_thread()
                    return urgency, job
                if self._closed:
                    return None
                self._idle += 1
                try:
                    was_told = self._changed.wait(min(pause_s, self.idle_s))
                finally:
                    self._idle -= 1
                if not was_told and not self._ready and (self._idle or not self._later):
                    return None

    def _move_due(self) -> float:
        """Make due jobs ready; return the pause until the next one, in seconds."""
        now_s = monotonic()
        while self._later:
            due_s, _, urgency, job = self._later[0]
            if due_s > now_s and not job.is_cancelled:
                return due_s - now_s
            heapq.heappop(self._later)
            self._number += 1
            heapq.heappush(self._ready, (urgency, self._number, job))
        return math.inf

    def forget_parent(self) -> None:
        """Begin anew in a forked child."""
        self._ready, self._later, self._threads = [], [], set()
        self._idle = self._normal = 0
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)


_workers: Final[weakref.WeakSet[Worker]] = weakref.WeakSet()


def _forget_parent() -> None:
    for worker in tuple(_workers):
        worker.forget_parent()


os.register_at_fork(after_in_child=_forget_parent)
