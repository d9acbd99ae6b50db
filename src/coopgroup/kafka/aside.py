"""Calls that may block, on a thread beside the loop: name look-ups, OAuth callbacks, Kerberos.

The loop of the connections sends the heartbeats. A call that waits there for a name server or a
token service would cost the session. Python cannot end a thread, so a call that never returns
keeps its thread: this file limits how many there are, however often a connection is tried again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from attrs import define, field

__all__ = ["Aside", "OnDone", "StillBusyError"]

_FOREVER_S: Final = float("inf")
OnDone: TypeAlias = Callable[[Any, BaseException | None], None]


class StillBusyError(OSError):
    """An earlier call has not returned yet, and this one cannot share its result."""


@define(eq=False, kw_only=True)
class Aside:
    """Makes calls of one kind on threads of their own, a bounded number at a time.

    Attributes:
        name: of the threads.
        threads_max: how many calls may be under way.
        patience_s: a further thread is started only if the last call is older than this.
    """

    name: str
    threads_max: int = 1
    patience_s: float = _FOREVER_S
    _lock: threading.Lock = field(factory=threading.Lock, init=False)
    # When the calls under way began.
    _began: list[float] = field(factory=list, init=False)
    # By who waits: an attempt that was given up must not be kept here for ever.
    _waiting: dict[object, OnDone] = field(factory=dict, init=False)

    def share(self, waiter: object, call: Callable[[], object], on_done: OnDone) -> None:
        """Ask for the result of a call; everybody who asks while it runs gets the same result.

        Args:
            waiter: who asks. Its earlier question, if that still waits, is forgotten.
            call: what may block. It is not made if a call is under way already.
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
        """Make a call whose result is for one caller only.

        Args:
            call: what may block.
            on_done: as for `share`; gets `StillBusyError` at once if too many calls are under way.
        """
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
        is_recent = time.monotonic() - self._began[-1] < self.patience_s
        return is_recent or len(self._began) >= self.threads_max

    def _begin(self) -> float:
        began = time.monotonic()
        self._began.append(began)
        return began

    def _start(self, run: Callable[[], None], began: float) -> None:
        try:
            threading.Thread(target=run, name=self.name, daemon=True).start()
        except RuntimeError:  # the system has no thread left: the next try may find one
            with self._lock:
                self._began.remove(began)
            raise


def _outcome(call: Callable[[], object]) -> tuple[object, BaseException | None]:
    try:
        return call(), None
    except Exception as error:  # noqa: BLE001 -- told to who waits
        return None, error
