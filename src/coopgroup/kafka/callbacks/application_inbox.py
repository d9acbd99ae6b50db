"""Notices of the group to the application, kept until the application polls.

Grants, revocations and losses arrive on the group's thread. The application's thread handles them
in the order of their arrival. A loss voids all notices that were queued before it, except those of
warm-ups: their state is local.

`GroupErrors` reports errors of the group's own connections to the application's `error_cb`.
librdkafka is not a member of the group, so it does not see these errors. They are reported with
librdkafka's codes: a coordinator that does not answer is `_TRANSPORT`, a refused login is
`_AUTHENTICATION`. Refusals that belong to a rebalance are not errors: the member handles them.
Other refusals are reported when the member has retried them for some time (`RequestRetried`).
`error_cb` runs on the application's thread, in `poll`, as with librdkafka.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from attrs import Factory, define, field
from confluent_kafka import KafkaError

from coopgroup.core.member import ErrorCode
from coopgroup.core.member.effects import (
    BeginWarmups,
    CancelWarmups,
    FailMember,
    LoseResources,
)
from coopgroup.core.telemetry.causes import Cause
from coopgroup.kafka.clock import now_s
from coopgroup.kafka.exceptions import OF_LIBRDKAFKA, kafka_error
from coopgroup.kafka.records.starting_offsets import StartingOffsets
from coopgroup.telemetry import Record, RequestRefused, RequestRetried

if TYPE_CHECKING:
    from coopgroup.kafka.membership.ports import Notice


@define(eq=False)
class ApplicationInbox:
    """Notices and finished calls for the application's thread.

    Attributes:
        waiting: whether the inbox holds anything; the hot path of `poll` reads it without the lock.
        starts: receives each notice first, to request offsets before the application polls; None if
            the application has no offsets.
    """

    waiting: bool = False
    starts: StartingOffsets | None = None
    _notices: deque[Notice] = field(factory=deque, init=False)
    _calls: deque[Callable[[], None]] = field(factory=deque, init=False)
    _stalled_at_s: float | None = field(default=None, init=False)
    # Entered instead of the condition, whose `__enter__` is Python code: a signal's exception could
    # end it with the lock held.
    _lock: threading.RLock = field(factory=threading.RLock, init=False)
    _changed: threading.Condition = field(
        default=Factory(lambda self: threading.Condition(self._lock), takes_self=True), init=False
    )

    def put(self, notice: Notice) -> None:
        """Add a notice."""
        try:
            if self.starts is not None:
                self.starts.hear(notice)
        finally:
            self._add(notice)

    def _add(self, notice: Notice) -> None:
        with self._lock:
            if isinstance(notice, LoseResources):
                self.keep(FailMember, BeginWarmups, CancelWarmups)
                if notice.cause == Cause.NOT_POLLED:
                    self._stalled_at_s = now_s()
            self._notices.append(notice)
            self.wake()

    def clear(self) -> None:
        """Drop all notices but errors; finished calls stay."""
        if self.starts is not None:
            self.starts.forget_all()
        with self._lock:
            self.keep(FailMember)
            self._stalled_at_s = None

    def take_stall(self) -> float | None:
        """Return, only once, when a stall of the application ended the membership; else None."""
        if self._stalled_at_s is None:  # no lock for each call of an idle consumer
            return None
        with self._lock:
            stalled_at_s, self._stalled_at_s = self._stalled_at_s, None
            return stalled_at_s

    def call_soon(self, call: Callable[[], None]) -> None:
        """Run a callback on the application's thread."""
        with self._lock:
            self._calls.append(call)
            self.wake()

    def wake(self) -> None:
        """Wake the application's thread without a notice."""
        with self._lock:
            self.waiting = True
            self._changed.notify_all()

    def first(self) -> Notice | None:
        """Return the oldest notice, which stays until `remove`."""
        with self._lock:
            return self._notices[0] if self._notices else None

    @property
    def has_loss(self) -> bool:
        """Whether the membership was lost, and the application has not served that; any thread."""
        with self._lock:
            return any(isinstance(one, LoseResources) for one in self._notices)

    def remove(self, notice: Notice) -> None:
        """Remove the oldest notice; do nothing if a loss has voided it meanwhile."""
        with self._lock:
            if self._notices and self._notices[0] is notice:
                self._notices.popleft()

    def take_call(self) -> Callable[[], None] | None:
        """Take the oldest callback; if nothing is left, set `waiting` to False."""
        with self._lock:
            if self._calls:
                return self._calls.popleft()
            self.waiting = bool(self._notices)
            return None

    def pause_s(self) -> float:
        """Request due offsets, and return the seconds until the next call; for any thread."""
        return math.inf if self.starts is None else self.starts.pause_s()

    def wait(self, timeout_s: float) -> None:
        """Wait until the inbox holds something, or the time is over."""
        with self._lock:
            if not self.waiting:
                self._changed.wait(timeout_s)

    def keep(self, *kinds: type) -> None:
        """Drop all notices of other kinds."""
        with self._lock:
            self._notices = deque(one for one in self._notices if isinstance(one, kinds))


_CODES: Final = {ErrorCode(code).name: code for code in OF_LIBRDKAFKA}
# librdkafka suppresses a repeated error for the same time.
_AGAIN_S: Final = 30.0


@define(eq=False)
class GroupErrors:
    """Reports the errors of one consumer's group."""

    error_cb: Callable[[KafkaError], Any]
    inbox: ApplicationInbox
    _told_at_s: dict[str, float] = field(factory=dict, init=False)

    def hear(self, record: Record) -> None:
        """Report a request that fails, on the group's thread; ignore all other records."""
        match record:
            case RequestRefused():
                code, words = _CODES.get(record.error), f"{record.error} ({record.action})"
            case RequestRetried(is_over=False):
                code, words = record.code, f"{record.error} for {record.for_ms / 1000:.0f} s"
                words = f"{words}: {record.cause}" if record.cause else words
            case _:
                return
        now = now_s()
        if code is None or now < self._told_at_s.get(record.error, -math.inf) + _AGAIN_S:
            return
        self._told_at_s[record.error] = now
        words = f"GroupCoordinator: {record.request} failed: {words}"
        error_cb, error = self.error_cb, kafka_error(code, words)
        self.inbox.call_soon(lambda: error_cb(error))
