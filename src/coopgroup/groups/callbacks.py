"""The application's callbacks for named resources, and the threads on which they run."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias, TypeVar

import attrs
from attrs import define, field, frozen

from coopgroup.core.model import Resource
from coopgroup.groups.catalogue import GroupResource
from coopgroup.kafka.clock import now_s
from coopgroup.worker import Worker

T = TypeVar("T")
ResourceCallback: TypeAlias = "Callable[[GroupResource], object]"


@frozen(kw_only=True)
class WorkFailure:
    """A failure, for the application's `on_error`.

    Attributes:
        resource: the resource; None if the membership itself has ended.
        action: the callback that raised: "start", "stop", "lost", "change", "warm" or "cool";
            "membership".
        attempts: number of consecutive failures; the callback is tried again after each, except
            "warm", "cool", and "start" after a `Decline` or a `StartFailed`.
    """

    resource: Resource | None
    action: str
    error: BaseException
    attempts: int


@frozen(kw_only=True)
class Callbacks:
    """The application's callbacks; `lost` is `stop` if the application gave none."""

    start: ResourceCallback
    stop: ResourceCallback
    lost: ResourceCallback
    on_error: Callable[[WorkFailure], object] | None
    change: ResourceCallback | None = None
    warm: ResourceCallback | None = None
    cool: ResourceCallback | None = None

    def check(self) -> None:
        """Refuse what cannot be called.

        Raises:
            TypeError: the message names the callback.
        """
        for one in attrs.fields(type(self)):
            callback = getattr(self, one.name)
            is_optional = one.name not in {"start", "stop"}
            if not callable(callback) and not (callback is None and is_optional):
                name = "on_change" if one.name == "change" else one.name
                raise TypeError(f"{name} expects a callable")


def failure_of(callback: Callable[[T], object], given: T) -> BaseException | None:
    """Call a callback, and return the exception that it raised; None without one."""
    try:
        callback(given)
    except BaseException as error:  # noqa: BLE001 -- the application's own; the caller reports it
        return error
    return None


# Time after which calls that wait for a free thread are worth a warning.
_NO_THREAD_WARN_S: Final = 10.0
_NO_THREAD_PAUSE_S: Final = 1.0
_DROPPED_PAUSE_S: Final = 60.0  # between two warnings


@define(eq=False)
class Calls:
    """Gives calls to a worker, and knows since when they wait.

    A worker raises if the system has no thread left. Such a call waits here for the next try.

    Attributes:
        waiting_max: how many calls may wait; further ones are dropped and counted.
        again_at_s: when `try_again` is due; infinite if the system had a thread for each call.
    """

    worker: Worker
    waiting_max: float = math.inf
    again_at_s: float = field(default=math.inf, init=False)
    _waiting: int = field(default=0, init=False)
    _refused: deque[tuple[int, Callable[[], None]]] = field(factory=deque, init=False)
    # Time when a thread last took a call, or when the first waiting call arrived.
    _moved_on_s: float = field(default=0.0, init=False)
    # Value of `_moved_on_s` at the last warning.
    _warned_since_s: float = field(default=math.inf, init=False)
    # Number of dropped calls, and the number in the last warning.
    _dropped: int = field(default=0, init=False)
    _dropped_told: int = field(default=0, init=False)
    _dropped_quiet_until_s: float = field(default=-math.inf, init=False)
    _lock: threading.RLock = field(factory=threading.RLock, init=False)

    def submit(self, urgency: int, call: Callable[[], None]) -> bool:
        """Run a call on a thread; a waiting call with a smaller number goes first.

        Returns:
            False if the call was dropped.
        """
        with self._lock:
            if self._waiting >= self.waiting_max:
                self._dropped += 1
                return False
            if not self._waiting:
                self._moved_on_s = now_s()
            self._waiting += 1
            self._refused.append((urgency, call))
            self.try_again()
            return True

    def try_again(self) -> None:
        """Submit the calls for which the system had no thread."""
        with self._lock:
            self.again_at_s = math.inf
            while self._refused:
                urgency, call = self._refused.popleft()
                try:
                    self.worker.submit(partial(self._take, call), urgency=urgency)
                except RuntimeError:
                    self._refused.appendleft((urgency, call))
                    self.again_at_s = now_s() + _NO_THREAD_PAUSE_S
                    return

    def _take(self, call: Callable[[], None]) -> None:
        with self._lock:
            self._waiting -= 1
            self._moved_on_s = now_s()
        call()

    @property
    def due_at_s(self) -> float:
        """Return when `take_long` has a result next; infinite if no call waits."""
        with self._lock:
            if not self._waiting or self._moved_on_s == self._warned_since_s:
                return math.inf
            return self._moved_on_s + _NO_THREAD_WARN_S

    def take_long(self, now: float) -> bool:
        """Return, once for each such wait, whether calls wait long without a free thread."""
        with self._lock:
            is_long = now >= self.due_at_s
            if is_long:
                self._warned_since_s = self._moved_on_s
            return is_long

    @property
    def dropped_due_at_s(self) -> float:
        """Return when `take_dropped` has a result next; infinite if it has told all drops."""
        is_told = self._dropped == self._dropped_told
        return math.inf if is_told else self._dropped_quiet_until_s

    def take_dropped(self, now: float) -> int:
        """Return how many calls were dropped since the start, at most once a minute; else 0."""
        with self._lock:
            if now < self.dropped_due_at_s:
                return 0
            self._dropped_told, self._dropped_quiet_until_s = self._dropped, now + _DROPPED_PAUSE_S
            return self._dropped

    def take_left_out(self) -> int:
        """Count the waiting calls as dropped, and return all drops if some were not told."""
        with self._lock:
            self._dropped += self._waiting
            return 0 if self._dropped == self._dropped_told else self._dropped
