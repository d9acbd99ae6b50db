"""The attempts at a record, and the end of a partition's work: one machine for threads and tasks.

This file is pure, as the scheduler below it: no thread, no event loop, no clock. The caller makes
sure that only one thread at a time is in here. A host takes a record, makes one step with it, and
reports the event by which the step ended. A step is a call of the handler, or the sending of a dead
letter. `NEXT` has the state that follows.

A record that waits for another attempt still counts as in progress. So it finds a free handler when
its pause ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal, TypeAlias

from attrs import define, field, frozen

from coopgroup.errors import ProcessingError
from coopgroup.processing.error_text import error_text
from coopgroup.processing.failures import DeadLetter, Failure, OnError, Retry, Skip, Stop, decide
from coopgroup.processing.scheduler import Partition, RecordInFlight, Scheduler, State, StoredOffset

Event: TypeAlias = Literal[
    "done",  # the record need not be handled again
    "retry",
    "send",  # a dead letter
    "stop",  # processing stops
    "due",  # the pause is over
    "leave",  # the partition is given up, or processing stops
    "gone",  # the partition is lost, or the time to handle the record is over
]
"""The end of a step, or of a pause. Strings, because members of an `Enum` cost 1 µs a record."""

_ENDS: Final[dict[Event, State]] = {"done": "handled", "stop": "abandoned", "gone": "abandoned"}
NEXT: Final[dict[State, dict[Event, State]]] = {
    "trying": {**_ENDS, "retry": "pausing", "send": "sending"},
    # A revoked partition has one more attempt without a pause. Otherwise the next owner would
    # repeat the later records that have been handled already.
    "pausing": {"due": "trying", "leave": "last", "gone": "abandoned"},
    "last": {**_ENDS, "retry": "abandoned", "send": "sending"},
    "sending": _ENDS,
}
"""The state of a record after an event. "handled" and "abandoned" are final."""


@define(eq=False)
class Leaving:
    """A partition that is given up as soon as its records have ended.

    Attributes:
        partition: topic and number.
        until_s: time at which the partition is given up in any case.
        put_off: the consumer's token for this revocation, if the revocation is put off.
    """

    partition: Partition
    until_s: float
    put_off: Any = None


@frozen
class Left:
    """The remaining work for partitions that are given up.

    Attributes:
        partitions: the partitions, without those that were lost meanwhile.
        offsets: offsets to store first.
        late: records whose handlers take too long.
    """

    partitions: list[Partition]
    offsets: list[StoredOffset]
    late: list[RecordInFlight]


@define(eq=False)
class Attempts:
    """The records in progress of one run of `process`.

    Attributes:
        on_error: decides about a record whose handler raised an exception.
        workers: maximum number of records in progress.
        warn: logs a warning about a record.
        note_end: called before the scheduler hears that a record has ended.
        failure: the first record that stopped processing, and its error.
    """

    scheduler: Scheduler
    on_error: OnError
    workers: int
    warn: Callable[..., None]
    note_end: Callable[[], None]
    failure: tuple[RecordInFlight, BaseException] | None = field(default=None, init=False)
    _pausing: list[RecordInFlight] = field(factory=list, init=False)
    # Records whose next step may begin.
    _due: deque[RecordInFlight] = field(factory=deque, init=False)
    _leaving: dict[Partition, Leaving] = field(factory=dict, init=False)
    _is_over: bool = field(default=False, init=False)

    # --- steps -----------------------------------------------------------------------------------

    @property
    def ready(self) -> int:
        """Return the number of records whose next step could begin now."""
        free = self.workers - self.scheduler.in_progress
        return len(self._due) + min(free, self.scheduler.ready)

    def take(self) -> RecordInFlight | None:
        """Return a record whose next step begins; None if no record is ready, or no worker free."""
        if self._due:
            return self._due.popleft()
        return self.scheduler.take() if self.scheduler.in_progress < self.workers else None

    def succeed(self, work: RecordInFlight) -> Event:
        """Return the event of a step that succeeded."""
        if work.letter is not None:
            self._warn("record_dead_lettered", work)
        return "done"

    def fail(self, work: RecordInFlight, error: Exception) -> Event:
        """Return the event of a step that failed; the caller holds no lock, as this may block.

        Raises:
            BaseException: raised by `on_error`; report it to `stop`.
        """
        work.error = error
        if work.letter is not None:
            return "stop"
        failure = Failure(message=work.message, error=error, attempt=work.attempt)
        match decide(self.on_error, failure):
            case Retry() as retry:
                work.pause_s = retry.pause_ms(work.attempt) / 1000
                return "retry"
            case Skip():
                self._warn("record_skipped", work)
                return "done"
            case DeadLetter() as letter:
                work.letter = letter, failure
                return "send"
            case Stop():
                return "stop"

    def stop(self, work: RecordInFlight, error: BaseException) -> Event:
        """Return the event of a step that ends processing, whatever `on_error` says."""
        work.error = error
        return "stop"

    def _warn(self, event: str, work: RecordInFlight) -> None:
        assert work.error is not None
        self.warn(event, work, error=error_text(work.error))

    def report(self, work: RecordInFlight, event: Event) -> None:
        """Take a record one step on; if its state is "pausing" then, `end_pause` follows."""
        if self._is_over and event in {"retry", "send"}:
            event = "gone"
        work.state = NEXT[work.state][event]
        match work.state:
            case "handled":
                self.note_end()
                self.scheduler.finish(work)
            case "abandoned":
                self.note_end()
                self.scheduler.abandon(work)
            case "pausing":
                work.attempt += 1
                self._pausing.append(work)
                self._end_pauses()
            case _:
                self._due.append(work)
        if event == "stop" and self.failure is None:
            assert work.error is not None
            self.failure = work, work.error
            self.close()  # before a later record of the same lane can begin

    def end_pause(self, work: RecordInFlight) -> None:
        """Let the next attempt at a record begin, unless its pause has ended already."""
        if work.state == "pausing":
            self._pausing.remove(work)
            self.report(work, "due")

    def _end_pauses(self) -> None:
        """End the pauses of records whose partitions are given up or lost."""
        for work in [one for one in self._pausing if one.tenure.is_ending or one.tenure.is_lost]:
            self._pausing.remove(work)
            self.report(work, "gone" if work.tenure.is_lost else "leave")

    def raise_failure(self) -> None:
        """Raise the error that stopped processing.

        Raises:
            ProcessingError: a record could not be handled.
        """
        if self.failure is not None:
            work, error = self.failure
            raise ProcessingError(*work.tenure.partition, work.offset, error_text(error)) from error

    # --- partitions go ---------------------------------------------------------------------------

    @property
    def leaving(self) -> list[Leaving]:
        """Return the partitions that are being given up."""
        return list(self._leaving.values())

    def revoke(self, partitions: Iterable[Partition], until_s: float) -> list[Leaving]:
        """Begin to give partitions up; until a time their records may end."""
        leaving = {one: Leaving(one, until_s) for one in partitions}
        self._leaving |= leaving
        self.scheduler.end(leaving)
        self._end_pauses()
        return list(leaving.values())

    def ended(self, leaving: Iterable[Leaving], now_s: float) -> list[Leaving]:
        """Return the partitions whose records have ended, or had their time, or are lost."""
        return [
            one
            for one in leaving
            if now_s >= one.until_s
            or not self._is_leaving(one)
            or self.scheduler.is_drained(one.partition)
        ]

    def _is_leaving(self, one: Leaving) -> bool:
        return self._leaving.get(one.partition) is one

    def give_up(self, leaving: Iterable[Leaving]) -> Left:
        """Give up partitions that are not lost; `on_revoke` and then `leave` follow."""
        left = self._left([one.partition for one in leaving if self._is_leaving(one)])
        for partition in left.partitions:
            self.scheduler.forget(partition)
        return left

    def leave(self, leaving: Iterable[Leaving]) -> list[Leaving]:
        """Forget partitions that were given up; return those that were not lost meanwhile."""
        left = [one for one in leaving if self._is_leaving(one)]
        for one in left:
            del self._leaving[one.partition]
        return left

    def give_up_all(self) -> Left:
        """Give up all records that are still in progress; their partitions stay."""
        return self._left(self.scheduler.partitions)

    def _left(self, partitions: list[Partition]) -> Left:
        offsets = self.scheduler.take_offsets()
        late = [work for one in partitions for work in self.scheduler.stop_waiting(one)]
        return Left(partitions, offsets, late)

    def lose(self, partitions: Sequence[Partition]) -> list[RecordInFlight]:
        """Give up partitions that are lost; return their records in progress."""
        for partition in partitions:
            self._leaving.pop(partition, None)
        begun = self.scheduler.lose(partitions)
        self._end_pauses()
        return begun

    def close(self) -> None:
        """Begin no further record; records that wait have their last attempt now."""
        self.scheduler.close()
        self._end_pauses()

    def drop_waiting(self) -> None:
        """Begin no further step, after `close`: the time to handle records is over."""
        self._is_over = True
        self.scheduler.drop_waiting()
        while self._due:
            self.report(self._due.popleft(), "gone")
