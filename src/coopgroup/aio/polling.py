"""The polling thread: it does for an event loop what an application's thread does in `poll`.

Theory of operation. The thread serves the notices of the group, begins the auto-commits, and
fetches records into the buffer, from which the loop takes them (`hand_out`). The loop gets one call
for each batch, and only if a task waits for it.

Rules of this file: a call of librdkafka's consumer needs `fetch_lock`, because a second thread in
the same client may wait for ever (`records.fetching`). The buffer is bounded. While it is full, the
thread continues to serve the group. If it stays full, librdkafka fetches nothing more, so that its
callbacks (such as `stats_cb`) can still be served. No command of the loop waits for this thread.

`Unawaited` are partitions that no task awaits, while tasks await records of other partitions. Their
records fill the buffer, and the awaited records come behind them. Without a limit the buffer
would grow; with a plain limit the awaited records would never come. So librdkafka is paused for
these partitions only, and their records no longer count.

librdkafka needs up to 1 s to continue a partition. So a task that is only busy between two awaits
must not cause a pause: a partition stays awaited for `_KEPT_S` after the await, while the buffer
may grow to `_GROWN` batches. A paused partition continues when most of its records were taken.
"""

from __future__ import annotations

import atexit
import math
import os
import weakref
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Final

from attrs import define, field
from confluent_kafka import KafkaError, KafkaException, TopicPartition

# Imported here, because the polling thread subscribes, and must not import (`GroupDriver.listen`).
import coopgroup.kafka.membership.bell
import coopgroup.kafka.rpc.channel
import coopgroup.kafka.rpc.requests  # noqa: F401
from coopgroup.aio.callbacks import LoopCallbacks
from coopgroup.aio.hand_out import BATCHES, HandOut, keys_of
from coopgroup.kafka.clock import now_s
from coopgroup.kafka.consumer import ConsumerParts
from coopgroup.kafka.records.fetching import Fetching
from coopgroup.kafka.records.pace import AWAY_S, QUIET_S, Pace
from coopgroup.kafka.records.partitions import to_partitions
from coopgroup.kafka.records.record_buffer import Partition, Pauser
from coopgroup.worker import Worker

_KEPT_S: Final = 1.0
_GROWN: Final = 10  # batches


@define(eq=False)
class Unawaited:
    """Pauses partitions that no task awaits; only the polling thread calls, with `fetch_lock`.

    Attributes:
        paused: partitions that are paused in librdkafka.
    """

    fetching: Fetching
    hand_out: HandOut
    paused: frozenset[Partition] = field(default=frozenset(), init=False)

    def count(self) -> int:
        """Return the number of ready records that count, and continue partitions that have few."""
        buffer = self.fetching.record_buffer
        if not self.paused:
            self.hand_out.uncounted = 0
            return len(buffer.ready)
        counts = buffer.ready_counts()
        fetched = self.fetching.fetched
        if not self.hand_out.is_held_back:  # otherwise all partitions are paused
            few = {one for one in self.paused if counts[one] <= self.fetching.ahead}
            go_on = [TopicPartition(*one) for one in sorted(few) if one in fetched]
            if few:
                self._pause_only(self.paused - few)
            if go_on:
                self.fetching.consumer.resume(go_on)
        self.hand_out.uncounted = sum(counts[one] for one in self.paused)
        return len(buffer.ready) - self.hand_out.uncounted

    def make_room(self, now_s: float) -> bool:
        """Pause partitions that no task awaits; return whether more records may be fetched."""
        awaited = self.hand_out.awaited
        if awaited is None:
            return False
        ahead = self.fetching.ahead
        counts = self.fetching.record_buffer.ready_counts()
        if not counts.keys().isdisjoint(awaited):
            return False  # the tasks that wait have records, and have not run yet
        is_grown = sum(counts[one] for one in counts.keys() - self.paused) >= _GROWN * ahead
        idle = {
            one
            for one in self.fetching.fetched
            if counts[one] > (0 if is_grown else ahead)
            and one not in awaited
            and one not in self.paused
            and (is_grown or not self._was_asked(one, now_s))
        }
        if idle:
            self.fetching.consumer.pause([TopicPartition(*one) for one in sorted(idle)])
            self._pause_only(self.paused | idle)
        self.hand_out.uncounted = sum(counts[one] for one in self.paused)
        return True

    def give_up(self, partitions: Iterable[Partition]) -> frozenset[Partition]:
        """Forget partitions that the application has paused; return those that were paused here."""
        found = self.paused.intersection(partitions) if self.paused else self.paused
        if found:
            self._pause_only(self.paused - found)
        return found

    def _was_asked(self, partition: Partition, now_s: float) -> bool:
        hand_out = self.hand_out
        of_it_s = hand_out.asked_at_s.get(partition, -math.inf)
        return now_s - max(of_it_s, hand_out.any_asked_at_s) < _KEPT_S

    def _pause_only(self, partitions: frozenset[Partition]) -> None:
        self.paused = self.fetching.held_back = partitions


# Records of a batch. `getmany` makes an object for each record, beside librdkafka's. After 700 new
# objects CPython searches for garbage. For larger batches that cost 40 % of the CPU time.
_AHEAD_MAX: Final = 300
# While the loop fetches by itself, the thread leaves it alone for this time.
_LOOP_FETCHES_S: Final = 0.02
# Paused records that wait in the buffer, per partition. Beyond that, librdkafka is paused too. It
# is slow to go on (up to 1 s), so a short pause should not reach it.
_PAUSED_MAX: Final = 1_000
# How long the buffer is full until librdkafka is paused.
_FULL_S: Final = 1.0
_JOIN_S: Final = 2.0
# How old a log end offset may be.
_ENDS_S: Final = 0.5
_running: Final[weakref.WeakSet[Polling]] = weakref.WeakSet()
# A forked child has no such threads, but perhaps a lock that a thread held during the fork.
os.register_at_fork(after_in_child=_running.clear)


@atexit.register
def _stop_all() -> None:
    """End the threads of consumers that were not closed: the interpreter would kill them."""
    for polling in tuple(_running):
        polling.drop()
    for polling in tuple(_running):
        polling.join()


@define(eq=False)
class Polling:
    """The polling thread of one consumer.

    Attributes:
        on_end: called on the thread when it ends, with the exception of the close or None.
        ends: log end offsets of the last fetches.
        are_ends_wanted: whether the application has asked for one.
    """

    parts: ConsumerParts
    hand_out: HandOut
    callbacks: LoopCallbacks
    on_end: Callable[[BaseException | None], None]
    ends: dict[Partition, int] = field(factory=dict, init=False)
    are_ends_wanted: bool = field(default=False, init=False)
    _ends_at_s: float = field(default=0.0, init=False)
    _worker: Worker = field(factory=lambda: Worker("coopgroup-aio"), init=False)
    _is_over: bool = field(default=False, init=False)
    _paused: set[Partition] = field(factory=set, init=False)  # paused in librdkafka by this file
    _full_since_s: float | None = field(default=None, init=False)
    _unawaited: Unawaited = field(init=False)
    _home_pid: int = field(factory=os.getpid, init=False)

    def __attrs_post_init__(self) -> None:
        self.parts.fetching.record_buffer.is_shared = True
        self.parts.fetching.paused_there = self._paused
        self.parts.fetching.ahead_max = _AHEAD_MAX
        self.parts.listener.is_polled = False
        # Short slices, always: a call of the loop cannot wake the thread in librdkafka.
        self.parts.pump.pace = Pace()
        self._unawaited = Unawaited(self.parts.fetching, self.hand_out)

    # --- from any thread -------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread."""
        _running.add(self)
        self._worker.submit(self._run)

    def close(self) -> None:
        """Let the thread give up all partitions, leave the group and end."""
        self._is_over = self.callbacks.is_closing = True
        self.callbacks.nudged.set()
        self.parts.driver.inbox.wake()

    def drop(self) -> None:
        """Let the thread end without callbacks and commits: the application is gone.

        Garbage is collected at any moment, on any thread. So this call takes only reentrant locks.
        In a forked child, which may have a lock that was held during the fork, it takes none.
        """
        if os.getpid() != self._home_pid:
            return
        self._is_over = self.callbacks.is_dropped = True
        self.parts.driver.inbox.wake()

    def join(self) -> None:
        """Wait until the thread has ended, for a bounded time."""
        self._worker.close(_JOIN_S)

    def call(self, command: Callable[[], None]) -> None:
        """Run a command on the thread; no record leaves before. Its exception goes to an await."""

        def run() -> None:
            try:
                command()
            except Exception as error:  # noqa: BLE001 -- the next await raises it
                self.hand_out.fail(error)

        self.parts.driver.inbox.call_soon(run)

    def resume(self, partitions: Iterable[Partition], by: Pauser = "application") -> None:
        """Let records of paused partitions leave again; on the loop."""
        keys = [one for one in partitions if one not in self._stopping]
        self.parts.fetching.record_buffer.resume(keys, by)
        if not self._paused.isdisjoint(keys):
            self.call(lambda: self._wake_librdkafka(keys))
        self.hand_out.wake()

    @property
    def _stopping(self) -> frozenset[Partition]:
        return keys_of(to_partitions(self.parts.listener.stopping))

    # --- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        while (pause_s := self.turn()) is not None:
            if pause_s:
                self.parts.driver.inbox.wait(pause_s)
        self._worker.close(0.0)

    def turn(self) -> float | None:
        """Serve the group once, and fetch once; the last turn closes the consumer.

        Returns:
            How long to wait for the group, in seconds; None after the last turn.
        """
        try:
            if not self._is_over:
                return self._work()
            with self.hand_out.fetch_lock:
                failure = self._close()
        except BaseException as error:  # noqa: BLE001 -- nobody else would hear of it
            failure = error
        self.hand_out.is_closed = True
        self.hand_out.breathe_at_s = 0.0
        self.hand_out.offer()
        _running.discard(self)
        self.on_end(failure)
        return None

    def _work(self) -> float:
        pause_s = 0.0
        try:
            with self.hand_out.fetch_lock:
                self._serve()
                self._read_ends()
                pause_s = self._fetch()
        except KafkaException as error:
            pause_s = self._hear(error)
        except Exception as error:  # noqa: BLE001 -- a dead thread would be a silent zombie
            self.hand_out.fail(error)
        self.hand_out.note_awaiting()
        self.hand_out.offer()
        return pause_s

    def _hear(self, error: KafkaException) -> float:
        """Pass an exception on to the awaits; return how long to wait for the group."""
        cause = error.args[0] if error.args else None
        if isinstance(cause, KafkaError) and cause.fatal():
            self.hand_out.fatal = error
            return QUIET_S
        self.hand_out.fail(error)
        return 0.0

    def _serve(self) -> None:
        parts = self.parts
        self.callbacks.end_orphans()
        parts.driver.inbox.take_stall()  # `on_lost` reports it
        parts.pump.serve()
        self.hand_out.fatal = None
        self.hand_out.offer()

    def _fetch(self) -> float:
        """Fetch records if there is room; return how long to wait for the group instead."""
        parts, fetching = self.parts, self.parts.fetching
        is_quiet = parts.driver.is_quiet and not fetching.is_about_to_begin
        now, buffer = now_s(), fetching.record_buffer
        wait_s = parts.pump.pace.slice_s(now, is_quiet=is_quiet)
        taken_over = self._unawaited.give_up(buffer.paused)
        self._paused |= taken_over
        self._wake_librdkafka(taken_over)  # if the loop has resumed them meanwhile
        self._pause_full(buffer.paused)
        if now >= parts.driver.lease_until_s:
            return wait_s
        is_full = self._unawaited.count() >= BATCHES * fetching.ahead
        if now - self.hand_out.fetched_at_s < _LOOP_FETCHES_S:
            self.hand_out.is_idle = True
            # The loop may have begun to wait before it could see this.
            if not self.hand_out.has_waiters:
                return wait_s
        if is_full and not self._unawaited.make_room(now):
            return self._hold_back(wait_s, now)
        self._full_since_s = None
        if self.hand_out.is_held_back:
            self._release_all()
        if not fetching.fetched:
            # librdkafka has no record, and does not wake up for a command.
            fetching.fetch(1, 0.0)
            return min(AWAY_S, max(0.0, parts.committing.due_at_s - now))
        fetching.fetch(1, wait_s)
        if len(buffer.ready) == 1:
            fetching.fetch(1, 0.0)  # librdkafka wakes up for the first record of many
        return 0.0

    def _read_ends(self) -> None:
        """Read the log end offsets for `highwater`, if the application asks for them."""
        now = now_s()
        if not self.are_ends_wanted or now < self._ends_at_s:
            return
        self._ends_at_s = now + _ENDS_S
        fetching = self.parts.fetching
        ask = fetching.consumer.get_watermark_offsets
        self.ends = {
            (topic, number): ask(TopicPartition(topic, number), cached=True)[1]
            for topic, number in fetching.fetched
        }

    # --- back-pressure ---------------------------------------------------------------------------

    def _hold_back(self, wait_s: float, now: float) -> float:
        """Let the buffer be full; return how long to wait for room."""
        fetching = self.parts.fetching
        if self._full_since_s is None:
            self._full_since_s = now
        if self.hand_out.is_held_back:
            fetching.fetch(1, 0.0)  # serves the callbacks; no record comes
        elif now - self._full_since_s >= _FULL_S:
            fetching.consumer.pause(to_partitions(fetching.fetched))
            fetching.held_back = frozenset(fetching.fetched)
            self.hand_out.is_held_back = True
        self.hand_out.is_idle = True
        # The loop may have made room before it could see this.
        has_room = self._unawaited.count() < fetching.ahead // 2
        return 0.0 if has_room else wait_s

    def _release_all(self) -> None:
        self.hand_out.is_held_back = False
        fetching = self.parts.fetching
        kept = fetching.record_buffer.paused & (self._paused | self._stopping)
        kept |= self._unawaited.paused
        fetching.held_back = self._unawaited.paused
        go_on = [TopicPartition(*one) for one in fetching.fetched if one not in kept]
        fetching.consumer.resume(go_on)

    def _pause_full(self, paused: frozenset[Partition]) -> None:
        """Pause librdkafka for partitions whose paused records have become many."""
        self._paused &= paused
        buffer, fetching = self.parts.fetching.record_buffer, self.parts.fetching
        for one in paused - self._paused:
            if (
                buffer.waiting_of(one) >= min(_PAUSED_MAX, fetching.ahead)
                and one in fetching.fetched
            ):
                self._paused.add(one)
                fetching.consumer.pause([TopicPartition(*one)])
                if one not in buffer.paused:  # the loop has resumed it meanwhile
                    self._wake_librdkafka([one])

    def _wake_librdkafka(self, partitions: Iterable[Partition]) -> None:
        fetching = self.parts.fetching
        for one in partitions:
            if one in self._paused and one not in fetching.record_buffer.paused:
                self._paused.discard(one)
                if one in fetching.fetched:
                    fetching.consumer.resume([TopicPartition(*one)])

    # --- the end ---------------------------------------------------------------------------------

    def leave(self, reason: str, *, for_good: bool) -> None:
        """Give up all partitions and leave the group; on the thread."""
        self.callbacks.wait_for_stops()
        self.parts.subscription.leave(reason, for_good=for_good)

    def _close(self) -> BaseException | None:
        parts = self.parts
        if self.callbacks.is_dropped:
            parts.close()
            return None
        try:
            with ExitStack() as last_first:
                last_first.callback(parts.close)
                last_first.callback(parts.listener.serve_calls)
                last_first.callback(parts.stop)
                self.leave("consumer closed", for_good=False)
        except BaseException as error:  # noqa: BLE001 -- `close` raises it
            return error
        return None
