"""Run calls that may block on a thread beside the loop: name look-ups, OAuth callbacks, Kerberos.

The loop of the connections sends the heartbeats. If it waited for a name server or a token service,
the member would lose its session. Python cannot end a thread, so a call that never returns keeps
its thread. This file limits the number of such threads, even if a connection is retried often.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from attrs import Factory, define, field
from kafka.future import Future
from kafka.net.selector import NetworkSelector

from coopgroup.kafka.clock import now_s
from coopgroup.worker import Worker

_FOREVER_S: Final = float("inf")
OnDone: TypeAlias = Callable[[Any, BaseException | None], None]


class StillBusyError(OSError):
    """An earlier call has not returned yet, and its result cannot be shared."""


@define(eq=False, kw_only=True)
class Aside:
    """Runs calls of one kind on separate threads, a bounded number at a time.

    Attributes:
        patience_s: a further thread is started only if the last call is older than this.
    """

    name: str
    threads_max: int = 1
    patience_s: float = _FOREVER_S
    _worker: Worker = field(
        default=Factory(lambda self: Worker(self.name, self.threads_max, 0.0), takes_self=True),
        init=False,
    )
    _lock: threading.Lock = field(factory=threading.Lock, init=False)
    # Start times of the calls under way.
    _began: list[float] = field(factory=list, init=False)
    # Keyed by waiter, so that an abandoned attempt is not kept here forever.
    _waiting: dict[object, OnDone] = field(factory=dict, init=False)

    def share(self, waiter: object, call: Callable[[], object], on_done: OnDone) -> None:
        """Request the result of a call; all waiters that ask while it runs get the same result.

        Args:
            waiter: identifies the caller. Its earlier request is forgotten if it still waits.
            call: may block. It is not made if a call is under way already.
            on_done: gets the result and None, or None and the exception, on the thread.
        """
        with self._lock:
            self._waiting[waiter] = on_done
            if self._is_full():
                return
            began = self._begin()

        def run() -> None:
            result, error = _outcome(call)
            with self._lock:
                self._began.remove(began)
                waiting, self._waiting = self._waiting, {}
            for tell in waiting.values():
                tell(result, error)

        self._start(run, began)

    def alone(self, call: Callable[[], object], on_done: OnDone) -> None:
        """Make a call whose result is for one caller only."""
        with self._lock:
            is_full = self._is_full()
            began = 0.0 if is_full else self._begin()
        if is_full:
            on_done(None, StillBusyError(f"an earlier call of {self.name} has not returned yet"))
            return

        def run() -> None:
            result, error = _outcome(call)
            with self._lock:
                self._began.remove(began)
            on_done(result, error)

        self._start(run, began)

    def _is_full(self) -> bool:
        if not self._began:
            return False
        is_recent = now_s() - self._began[-1] < self.patience_s
        return is_recent or len(self._began) >= self.threads_max

    def _begin(self) -> float:
        began = now_s()
        self._began.append(began)
        return began

    def _start(self, run: Callable[[], None], began: float) -> None:
        try:
            self._worker.submit(run)
        except RuntimeError:  # the system has no thread left; the next try may get a thread
            with self._lock:
                self._began.remove(began)
            raise


async def outcome_of(net: NetworkSelector, ask: Callable[[OnDone], None]) -> Any:  # noqa: ANN401
    """Wait on the loop for another thread's result, and return or raise it."""
    found = Future()

    def on_done(result: object, error: BaseException | None) -> None:
        def tell() -> None:
            if error is None:
                found.success(result)
            else:
                found.failure(error)

        try:
            net.call_soon_threadsafe(tell)
        except RuntimeError:  # the loop is closed, so no caller waits
            return

    ask(on_done)
    return await found


def _outcome(call: Callable[[], object]) -> tuple[object, BaseException | None]:
    try:
        return call(), None
    except Exception as error:  # noqa: BLE001 -- the waiting caller gets it
        return None, error
