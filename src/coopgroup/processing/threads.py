"""Handle records in worker threads, while the calling thread goes on polling.

Each record that may begin is handled by a job of the `Worker`, which goes on with the next record
while there is one. No job waits: a pause before another attempt is a later job. `attempts` decides
what follows each attempt.

Three rules. The calling thread alone touches the consumer. Jobs touch only the machine of attempts,
under its lock. No lock is held while a handler or a callback of the application runs.
"""

from __future__ import annotations

import inspect
import math
import threading
from collections.abc import Callable, Sequence
from functools import partial

from attrs import define, field
from confluent_kafka import KafkaException, Message, TopicPartition

from coopgroup.kafka.clock import now_s
from coopgroup.kafka.consumer import CooperativeConsumer
from coopgroup.processing.attachment import HARMLESS_ERRORS, Attachment, partitions_of
from coopgroup.processing.attempts import Attempts, Event, Leaving
from coopgroup.processing.failures import OnError
from coopgroup.processing.running import Timing
from coopgroup.processing.scheduler import RecordInFlight, Scheduler
from coopgroup.worker import Worker

# Maximum wait in `poll`. It is short while something else may become due: a partition that is given
# up, or one that was paused and has room again.
_WAIT_S = 0.1
_WAIT_BUSY_S = 0.005
# Maximum wait for the broker's answer to a dead letter in one call of the producer.
_WAIT_SENT_S = 0.05
_BATCH = 500


@define(eq=False)
class ThreadProcessing:
    """One run of `process` with worker threads."""

    consumer: CooperativeConsumer
    handle: Callable[[Message], object]
    on_error: OnError
    scheduler: Scheduler
    timing: Timing
    workers: int
    _attachment: Attachment = field(init=False)
    _attempts: Attempts = field(init=False)
    _changed: threading.Condition = field(factory=threading.Condition, init=False)
    _stop_by_s: float | None = field(default=None, init=False)
    _worker: Worker = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._worker = Worker("coopgroup-worker", self.workers)
        self._attachment = Attachment.of_threads(self.consumer)
        self._attempts = self._attachment.attempts(
            self.scheduler, self.on_error, self.workers, now_s
        )

    def run(self) -> None:
        """Process until `stop` is set, the consumer is closed, or a record cannot be handled.

        Raises:
            ProcessingError: a record could not be handled.
            KafkaException: the group refused this member permanently, or a partition failed.
            Exception: raised by a callback.
        """
        self._attachment.attach(self._on_revoke, self._on_lost, self.scheduler.oldest)
        is_complete = False
        try:
            self._poll_until_over()
            is_complete = True
        except Exception:
            is_complete = True
            raise
        finally:
            self._wind_down(is_complete=is_complete)
        self._attempts.raise_failure()

    # --- the polling thread ----------------------------------------------------------------------

    def _poll_until_over(self) -> None:
        try:
            while not self._is_over():
                self._tend()
                self._receive()
        except RuntimeError:
            if not self._attachment.is_closed():
                raise

    def _is_over(self) -> bool:
        if self._attempts.failure is not None:
            return True
        if not (self.timing.is_stopped and self.timing.hands_over):
            return self.timing.is_stopped
        if self._stop_by_s is None:
            self._stop_by_s = now_s() + self.timing.stop_timeout_s
            self.consumer.hand_over()
        return not self.consumer.assignment() or now_s() >= self._stop_by_s

    def _receive(self) -> None:
        with self._changed:
            room = self.scheduler.room
            if not room:
                self._changed.wait(_WAIT_BUSY_S)
        if not room:
            self._add(self.consumer.consume(0, 0))  # callbacks only
            return
        is_busy = self._attempts.leaving or self.scheduler.paused or self._stop_by_s is not None
        message = self.consumer.poll(_WAIT_BUSY_S if is_busy else _WAIT_S)
        if message is not None:
            # This record is noted before the next call, in which a callback may raise.
            self._add([message])
            with self._changed:
                room = self.scheduler.room  # the size of records is known now
            self._add(self.consumer.consume(min(room, _BATCH), 0))

    def _add(self, messages: Sequence[Message]) -> None:
        records, failure = [], None
        for message in messages:
            error = message.error()
            if error is None:
                records.append(message)
            elif error.code() not in HARMLESS_ERRORS:
                failure = error
        if records:
            with self._changed:
                self.scheduler.add(records)
                self._begin_ready()
        if failure is not None:
            raise KafkaException(failure)

    def _tend(self) -> None:
        """Store offsets, pause and resume partitions, give up those whose records have ended."""
        with self._changed:
            offsets = self.scheduler.take_offsets()
            pauses = self.scheduler.take_pauses()
        self._attachment.tend(offsets, *pauses)
        self._give_up_ended(now_s())

    # --- partitions go ---------------------------------------------------------------------------

    def _on_revoke(self, consumer: CooperativeConsumer, partitions: list[TopicPartition]) -> None:
        until_s = now_s() + self.timing.stop_timeout_s
        with self._changed:
            leaving = self._attempts.revoke(partitions_of(partitions), until_s)
            ended = self._attempts.ended(leaving, -math.inf)
            self._begin_ready()
        busy = [one for one in leaving if one not in ended]
        for one in busy:
            one.put_off = consumer.revoke_later([TopicPartition(*one.partition)])
        if any(one.put_off is None for one in busy):  # the consumer is closing, and cannot wait
            with self._changed:
                self._changed.wait_for(
                    lambda: self._attempts.ended(leaving, -math.inf) == leaving,
                    max(0.0, until_s - now_s()),
                )
            ended = leaving
        self._give_up(ended)

    def _give_up_ended(self, now: float) -> None:
        with self._changed:
            ended = self._attempts.ended(self._attempts.leaving, now)
        if ended:
            self._give_up(ended)

    def _give_up(self, leaving: Sequence[Leaving]) -> None:
        with self._changed:
            left = self._attempts.give_up(leaving)
        self._attachment.give_up(left)
        try:
            self._attachment.call(self._attachment.on_revoke, left.partitions)
        finally:
            for one in self._attempts.leave(leaving):
                if one.put_off is not None:
                    self.consumer.finish_revoke(one.put_off)

    def _on_lost(self, _: CooperativeConsumer, partitions: list[TopicPartition]) -> None:
        named = partitions_of(partitions)
        with self._changed:
            begun = self._attempts.lose(named)
            self._begin_ready()
        for work in begun:
            self._attachment.warn("record_lost_while_handled", work)
        self._attachment.call(self._attachment.on_lost, named)

    # --- the end ---------------------------------------------------------------------------------

    def _wind_down(self, *, is_complete: bool) -> None:
        """End the records in flight within their time, and leave the consumer as it was."""
        until_s = self._stop_by_s or now_s() + self.timing.stop_timeout_s
        try:
            with self._changed:
                self._attempts.close()
                self._begin_ready()
            self._serve_until_ended(until_s)
        finally:
            with self._changed:
                left = self._attempts.give_up_all()
            self._worker.close(0.0)
            self._attachment.give_up(left)
            self._attachment.detach(self.scheduler.unhandled(), is_complete=is_complete)

    def _serve_until_ended(self, until_s: float) -> None:
        """Wait for the workers; the group's rounds go on meanwhile, also if callbacks raise."""
        failures: list[Exception] = []
        while now_s() < until_s:
            with self._changed:
                if not self.scheduler.in_flight:
                    break
                self._changed.wait(_WAIT_BUSY_S)
            try:
                if not self._attachment.is_closed():
                    self._tend()
                    self.consumer.consume(0, 0)
            except Exception as error:  # noqa: BLE001  (raised below; the records go on)
                failures.append(error)
        try:
            self._give_up_ended(math.inf)
        except Exception as error:  # noqa: BLE001  (so that the first error is raised)
            failures.append(error)
        if failures:
            raise failures[0]

    # --- the jobs --------------------------------------------------------------------------------

    def _begin_ready(self) -> None:
        while (work := self._attempts.take()) is not None:
            try:
                self._worker.submit(partial(self._work, work))
            except RuntimeError:  # the system has no thread left
                self._attempts.report(work, "gone")
                raise

    def _end_pause(self, work: RecordInFlight) -> None:
        with self._changed:
            self._attempts.end_pause(work)
            following = self._attempts.take()
        self._work(following)

    def _work(self, work: RecordInFlight | None) -> None:
        while work is not None:
            work = self._handle(work)

    def _handle(self, work: RecordInFlight) -> RecordInFlight | None:
        """Make one step with a record; return the record of the next step for this job."""
        event = "gone" if work.tenure.is_lost else self._step(work)
        with self._changed:
            self._attempts.report(work, event)
            if work.state == "pausing":
                self._worker.submit(partial(self._end_pause, work), after_s=work.pause_s)
            following = self._attempts.take()
            self._begin_ready()
            if work.tenure.is_ending or not self.scheduler.room:
                self._changed.notify_all()
        if event == "stop":
            self._attachment.wake()
        return following

    def _step(self, work: RecordInFlight) -> Event:
        try:
            try:
                if work.letter is None:
                    with self._attachment.decoding(work.message):
                        _refuse_coroutine(self.handle(work.message))
                else:
                    for producer in self._attachment.delivery(work, now_s):
                        producer.poll(_WAIT_SENT_S)
            except Exception as error:  # noqa: BLE001  (on_error decides)
                return self._attempts.fail(work, error)
            return self._attempts.succeed(work)
        except BaseException as error:  # noqa: BLE001  (such as sys.exit in a handler)
            return self._attempts.stop(work, error)


def _refuse_coroutine(result: object) -> None:
    """Refuse a coroutine, which would be counted as handled and never run.

    Raises:
        TypeError: the handler returned one, as a lambda may.
    """
    if inspect.iscoroutine(result):
        result.close()
        raise TypeError("handle returned a coroutine: coroutines need an AsyncCooperativeConsumer")
