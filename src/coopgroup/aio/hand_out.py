"""The loop's side: hand records to the tasks that await them.

Theory of operation. The queue between the polling thread and the loop is the record buffer of the
consumer itself. A record leaves the buffer in the last step of an await. A cancellation comes only
before that step, so it loses no record. Positions follow from the records that still wait in the
buffer. So commits and revocations never include a record that no task received.

While records are there without a wait, the loop fetches them by itself, a small batch at a time,
and the polling thread only serves the group. Once librdkafka has no more, the polling thread waits
for the next record. Handing each batch from thread to thread costs more than the records: two
exchanges of the GIL, and records that have left the processor's cache. CPU time for each record of
100 bytes, in µs, on two busy cores:

| who fetches | `async for` | `getmany` |
|---|---:|---:|
| the loop | 0.81 | 0.59 |
| the loop, and a lock for each record of `async for` | 1.05 | 0.60 |
| the thread, batches of 300 records | 1.21 | 1.12 |
| the thread, batches of 2,000 records | 1.37 | 1.45 |

Rules of this file: a record leaves only while the lease holds and the group has no notice, as in
`poll`. Tasks that wait count as polling for `max.poll.interval.ms`. That ends when records are
there: a loop that is too busy to take them must not keep partitions for ever.

`LoopWork`: how fast the tasks of a loop process records while there are more.

The hand-out looks at the clock every few milliseconds. If records were waiting at one look, and no
task has waited for a record until the next look, the loop worked all the time in between. The
records that it took in this time count. A member that mostly waits is not measured: its rate would
show its waits.

The meter sees how fast records are taken. So it does not see work that the application passes on to
other tasks without awaiting them, or to threads. `coopgroup.processing` measures its handlers.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from attrs import define, field
from confluent_kafka import KafkaException, Message, TopicPartition

from coopgroup.aio.loop_port import LoopPort
from coopgroup.aio.records import ConsumerRecord, by_partition, record_of
from coopgroup.kafka.clock import now_s
from coopgroup.kafka.membership.driver import GroupDriver
from coopgroup.kafka.membership.work_meter import WorkMeter
from coopgroup.kafka.pump import ALL, Pump
from coopgroup.kafka.records.fetching import Fetching
from coopgroup.kafka.records.record_buffer import Partition, RecordBuffer


@define(eq=False)
class LoopWork:
    """Measures the work of one loop; only its thread calls.

    Attributes:
        taken: number of records that the tasks have taken.
    """

    meter: WorkMeter
    taken: int = field(default=0, init=False)
    # Time and `taken` of the last look; no time while the loop waits for records.
    _since_s: float | None = field(default=None, init=False)
    _taken_before: int = field(default=0, init=False)

    def look(self, now_s: float, *, has_more: bool) -> None:
        """Note that a task asks for records, some of which may be waiting."""
        count = self.taken - self._taken_before
        if self._since_s is not None:
            if not count:
                return
            self._add(count, now_s - self._since_s)
        elif not has_more:
            return
        self._since_s, self._taken_before = now_s, self.taken

    def wait(self, now_s: float) -> None:
        """Note that a task waits, because no record is ready."""
        if self._since_s is not None:
            self._add(self.taken - self._taken_before, now_s - self._since_s)
            self._since_s = None

    def _add(self, records: int, seconds: float) -> None:
        if records and not self.meter.is_elsewhere:
            self.meter.add(records, seconds)


CLOSED: Final = "Consumer closed"  # same text as in confluent_kafka

# Records that are ready need no wait. Without a pause now and then, a task that takes them would
# keep all other tasks of its loop from running, and nothing could cancel it.
_BREATH_S: Final = 0.002
# Batches that wait in the buffer. More of them would leave the processor's cache.
BATCHES: Final = 2


class ConsumerStoppedError(RuntimeError):
    """The consumer was closed, perhaps while a task waited for a record."""

    def __init__(self) -> None:
        super().__init__(CLOSED)


@define(eq=False)
class HandOut:
    """Gives the records of one consumer to its tasks; only the loop's thread calls, if not noted.

    Attributes:
        errors: exceptions for the next awaits; each is raised once.
        fatal: the group's permanent refusal, raised by every await; None without one.
        is_closed: whether the consumer hands out nothing more.
        fetch_lock: held by a thread that serves the group or fetches; the loop never waits for it.
        fetched_at_s: when the loop last fetched records; `-inf` if none were left.
        is_fetching_here: whether the loop may fetch. Otherwise a slow `oauth_cb` would block it.
        is_idle: whether the polling thread fetches nothing until it is asked.
        is_held_back: whether librdkafka is paused as a whole.
        breathe_at_s: when the loop gets its next turn; 0 to make it soon.
        uncounted: number of ready records that no task awaits and that do not limit the others.
        asked_at_s: when a task last asked for records of each partition.
        any_asked_at_s: when a task last asked for records of any partition.
        work: measures how fast the tasks process the records.
    """

    pump: Pump
    port: LoopPort
    errors: deque[BaseException] = field(factory=deque)
    is_fetching_here: bool = True
    driver: GroupDriver = field(init=False)
    fetching: Fetching = field(init=False)
    fatal: KafkaException | None = field(default=None, init=False)
    is_closed: bool = field(default=False, init=False)
    fetch_lock: threading.Lock = field(factory=threading.Lock, init=False)
    fetched_at_s: float = field(default=-math.inf, init=False)
    is_idle: bool = field(default=False, init=False)
    is_held_back: bool = field(default=False, init=False)
    breathe_at_s: float = field(default=0.0, init=False)
    uncounted: int = field(default=0, init=False)
    asked_at_s: dict[Partition, float] = field(factory=dict, init=False)
    any_asked_at_s: float = field(default=-math.inf, init=False)
    work: LoopWork = field(init=False)
    _buffer: RecordBuffer = field(init=False)
    # Each with the partitions whose records it awaits; no partitions for all.
    _waiters: dict[asyncio.Future[None], frozenset[Partition]] = field(factory=dict, init=False)
    _polling: int = field(default=0, init=False)  # number of awaits that count as polling
    # The loop to which `wake` is on its way.
    _told: asyncio.AbstractEventLoop | None = field(default=None, init=False)
    _lock: threading.Lock = field(
        factory=threading.Lock, init=False
    )  # of the time of the last poll

    def __attrs_post_init__(self) -> None:
        self.driver, self.fetching = self.pump.driver, self.pump.fetching
        self._buffer = self.fetching.record_buffer
        self.work = LoopWork(self.driver.meter)

    # --- hand out --------------------------------------------------------------------------------

    def records(self, owner: object) -> AsyncGenerator[ConsumerRecord]:
        """Yield records until the consumer is closed; keep the `owner` alive meanwhile.

        Raises:
            KafkaException: an error event, a record that cannot be decoded, or the group refused
                this member permanently.
            BaseException: an exception of a callback.
        """
        return self._records(owner) if self.pump.decoder is None else self._decoded_records(owner)

    async def _decoded_records(self, owner: object) -> AsyncGenerator[ConsumerRecord]:  # noqa: ARG002
        while True:
            try:
                record = await self.one(ALL)
            except RuntimeError:
                if self.is_closed:
                    return
                raise
            yield record

    async def _records(self, owner: object) -> AsyncGenerator[ConsumerRecord]:  # noqa: ARG002
        self.port.bind()
        driver, inbox, take = self.driver, self.driver.inbox, self._buffer.ready.popleft
        work = self.work
        while True:
            now = now_s()
            if now >= self.breathe_at_s:
                if self.is_closed:
                    return
                await self._breathe(ALL)
                continue
            # Check the lease first: the loss is queued before the lease is cleared.
            if now < driver.lease_until_s and not inbox.waiting:
                try:
                    message = take()
                except IndexError:
                    pass
                else:
                    driver.polled_at_s = now
                    work.taken += 1
                    if message.error() is not None:
                        raise KafkaException(message.error())
                    yield record_of((message,))
                    continue
            if self.is_closed:
                return
            if not self._fetch(ALL):
                await self._wait(None, ALL)

    async def one(self, partitions: frozenset[Partition]) -> ConsumerRecord:
        """Return the next record; without partitions, of any partition.

        Raises:
            RuntimeError: the consumer is closed.
        """
        while True:
            if now_s() >= self.breathe_at_s:
                await self._breathe(partitions)
            taken = self._take(partitions, 1)
            if taken:
                return record_of(taken)
            if not self._fetch(partitions):
                await self._wait(None, partitions)

    async def many(
        self, partitions: frozenset[Partition], count: int | None, limit_s: float
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Return waiting records by partition, or wait for the first ones.

        Raises:
            RuntimeError: the consumer is closed.
        """
        deadline_s = now_s() + limit_s
        has_waited = False
        while True:
            if now_s() >= self.breathe_at_s:
                await self._breathe(partitions)
            taken = self._take(partitions, len(self._buffer.ready) if count is None else count)
            if taken:
                return by_partition(taken)
            if self._fetch(partitions):
                continue
            left_s = deadline_s - now_s()
            if left_s <= 0 and has_waited:
                return {}
            await self._wait(max(0.0, left_s), partitions)
            has_waited = True

    def _take(self, partitions: frozenset[Partition], count: int) -> list[Message]:
        """Take records that may leave; an error event is raised if it is first.

        Raises:
            KafkaException: the first record is an error event, or cannot be decoded.
        """
        if self.is_closed:
            return []
        try:
            taken = self.pump.take(count, partitions)
        except KafkaException:
            self._note_taken(1)
            raise
        if taken:
            self._buffer.leaving = ()
            self._note_taken(len(taken))
        return taken

    def _note_taken(self, count: int) -> None:
        self.driver.polled_at_s = now_s()
        self.work.taken += count

    def _fetch(self, partitions: frozenset[Partition]) -> bool:
        """Fetch the records that are there; return whether the buffer got some."""
        if self.is_closed or not self.is_fetching_here or self.is_held_back:
            return False
        if not self.pump.may_leave():
            return False
        before = len(self._buffer.ready)
        if partitions and before >= BATCHES * self.fetching.ahead + self.uncounted:
            return False  # the polling thread decides which partitions to pause
        if not self.fetch_lock.acquire(blocking=False):
            return False  # the polling thread waits for records, or serves the group
        try:
            self.fetching.fetch(1, 0.0)
        finally:
            self.fetch_lock.release()
        # The records that were there are of other partitions.
        has_records = len(self._buffer.ready) > (before if partitions else 0)
        self.fetched_at_s = now_s() if has_records else -math.inf
        return has_records

    def _has_some(self, partitions: frozenset[Partition]) -> bool:
        """Return whether a record of the partitions may leave; for any thread."""
        if not self._buffer.ready or not self.pump.may_leave():
            return False
        return not partitions or self._buffer.has_ready(partitions)

    # --- wait ------------------------------------------------------------------------------------

    async def _breathe(self, partitions: frozenset[Partition]) -> None:
        """Let other tasks of the loop run, and see to what need not be seen to at each record."""
        self.port.bind()  # a task that never waits may be the first of a new loop
        self._raise_errors()
        self._note_asked(partitions)
        self.work.look(now_s(), has_more=bool(self._buffer.ready))
        # The loop gets the next records by itself, unless they do not come without the thread.
        needs_thread = self.is_held_back or not self.is_fetching_here
        if self.is_idle and needs_thread and 2 * len(self._buffer.ready) < self.fetching.ahead:
            self._ask_for_more()
        await asyncio.sleep(0)
        self.breathe_at_s = now_s() + _BREATH_S

    async def _wait(self, limit_s: float | None, partitions: frozenset[Partition]) -> None:
        """Wait until something has changed, for a limited time, or for ever.

        Raises:
            RuntimeError: the consumer is closed.
        """
        loop = self.port.bind()
        self._raise_errors()
        if self.is_closed:
            raise ConsumerStoppedError
        self.work.wait(now_s())
        waiter = loop.create_future()
        self._waiters[waiter] = partitions
        timer = None if limit_s is None else loop.call_later(limit_s, _end, waiter)
        try:
            with self.as_polling():
                if self.is_idle:
                    self._ask_for_more()
                # Records may have come before the polling thread saw this waiter.
                if self._has_some(partitions) or self.errors or self.is_closed:
                    await asyncio.sleep(0)
                else:
                    await waiter
        finally:
            del self._waiters[waiter]
            self._note_asked(partitions)
            if timer is not None:
                timer.cancel()

    def _note_asked(self, partitions: frozenset[Partition]) -> None:
        now = now_s()
        if not partitions:
            self.any_asked_at_s = now
        for one in partitions:
            self.asked_at_s[one] = now

    @contextmanager
    def as_polling(self) -> Iterator[None]:
        """Count the time as polling: the application is not stalled."""
        with self._lock:
            self._polling += 1
            self.driver.polled_at_s = math.inf
        try:
            yield
        finally:
            with self._lock:
                self._polling -= 1
                if not self._polling:
                    self.driver.polled_at_s = now_s()

    def _ask_for_more(self) -> None:
        self.is_idle = False
        self.driver.inbox.wake()

    def _raise_errors(self) -> None:
        if self.errors:
            raise self.errors.popleft()
        if self.fatal is not None:
            raise KafkaException(*self.fatal.args)

    def close(self) -> None:
        """Hand out nothing more, and end all awaits."""
        self.is_closed = True
        self.breathe_at_s = 0.0
        self.wake()

    # --- from the polling thread -----------------------------------------------------------------

    @property
    def is_awaited(self) -> bool:
        """Return whether a task waits in a call that counts as polling; for any thread."""
        return self._polling > 0 and self._told is None

    @property
    def has_waiters(self) -> bool:
        """Return whether a task waits for records; for any thread."""
        return bool(self._waiters)

    @property
    def awaited(self) -> frozenset[Partition] | None:
        """Return the partitions that tasks wait for; None if not only some; for any thread."""
        found = tuple(self._waiters.copy().values())
        return frozenset().union(*found) if found and all(found) else None

    def offer(self) -> None:
        """Wake the tasks that wait, if there is something for them; on the polling thread."""
        loop = self.port.loop
        if not self._waiters or self._told is loop:
            return
        is_urgent = bool(self.errors) or self.fatal is not None or self.is_closed
        if not is_urgent and not any(map(self._has_some, self._waiters.copy().values())):
            return
        with self._lock:
            # From now on it is the application's turn. A loop that is blocked counts as stalled.
            self.driver.polled_at_s = now_s()
        self._told = loop
        if not self.port.call(self.wake):
            self._told = None

    def note_awaiting(self) -> None:
        """Restore the time of the last poll after a call that set it; on the polling thread."""
        with self._lock:
            if self._polling and self._told is None:
                self.driver.polled_at_s = math.inf

    def fail(self, error: BaseException) -> None:
        """Raise an exception in the next await; for any thread."""
        self.errors.append(error)
        self.breathe_at_s = 0.0

    def wake(self) -> None:
        """Let the tasks that wait look again."""
        self._told = None
        for waiter in self._waiters:
            _end(waiter)


def _end(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def key_of(partition: TopicPartition) -> Partition:
    """Return (topic, number) of a partition.

    Raises:
        TypeError: the argument of the application is not a partition.
    """
    try:
        return partition.topic, partition.partition
    except AttributeError:
        name = type(partition).__name__
        raise TypeError(f"partition: got a {name}, expected a TopicPartition") from None


def keys_of(partitions: Iterable[TopicPartition]) -> frozenset[Partition]:
    """Return (topic, number) of each partition."""
    return frozenset(map(key_of, partitions))
