"""Handle records in worker threads, while the calling thread goes on polling.

Each record that the scheduler lets begin is handled by a job of the `Worker`, which goes on with
the next record while there is one. No job waits: a pause before another attempt is a later job.
Such a record still counts as in progress.

Three rules. The calling thread alone touches the consumer. Jobs touch only the scheduler, under
its lock. No lock is held while a handler or a callback of the application runs.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

from attrs import define, field
from confluent_kafka import KafkaException, Message, TopicPartition

from coopgroup.errors import ProcessingError
from coopgroup.kafka.callbacks.listener import PutOff
from coopgroup.kafka.clock import now_s
from coopgroup.kafka.consumer import CooperativeConsumer
from coopgroup.processing import dead_letters
from coopgroup.processing.attachment import HARMLESS_ERRORS, Attachment, HandlerWork, partitions_of
from coopgroup.processing.failures import (
    DeadLetter,
    Failure,
    OnError,
    Outcome,
    Retry,
    Skip,
    Stop,
    decide,
)
from coopgroup.processing.running import Timing
from coopgroup.processing.scheduler import Partition, Scheduler, Work
from coopgroup.worker import Job, Worker

# Maximum wait in `poll`. It is short while something else may become due: a partition that is given
# up, or one that was paused and has room again.
_WAIT_S = 0.1
_WAIT_BUSY_S = 0.005
_BATCH = 500


@define(eq=False)
class _Ending:
    """A partition that is being given up, and what it waits for."""

    put_off: PutOff
    until_s: float


@define(eq=False)
class _Pause:
    """The wait before another attempt at a record."""

    attempt: int
    job: Job


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
    _rate: HandlerWork = field(init=False)
    _changed: threading.Condition = field(factory=threading.Condition, init=False)
    _ending: dict[Partition, _Ending] = field(factory=dict, init=False)
    _pauses: dict[Work, _Pause] = field(factory=dict, init=False)
    _failure: tuple[Work, BaseException] | None = field(default=None, init=False)
    _stop_by_s: float | None = field(default=None, init=False)
    _worker: Worker = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._worker = Worker("coopgroup-worker", self.workers)
        self._attachment = Attachment.of_threads(self.consumer)
        self._rate = HandlerWork(self._attachment.meter, self.scheduler, self.workers)

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
        if self._failure is not None:
            work, error = self._failure
            raise ProcessingError(*work.tenure.partition, work.offset, repr(error)) from error

    # --- the polling thread ----------------------------------------------------------------------

    def _poll_until_over(self) -> None:
        try:
            while not self._is_over():
                self._tend()
                self._receive()
        except RuntimeError:
            if not self._is_consumer_closed():
                raise

    def _is_consumer_closed(self) -> bool:
        try:
            self.consumer.assignment()
        except RuntimeError:
            return True
        return False

    def _is_over(self) -> bool:
        if self._failure is not None:
            return True
        stop = self.timing.stop
        if stop is None or not stop.is_set():
            return False
        if not self.timing.hands_over:
            return True
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
        is_busy = self._ending or self.scheduler.paused or self._stop_by_s is not None
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
            pause, resume = self.scheduler.take_pauses()
        self._attachment.store(offsets)
        if pause:
            self._attachment.pause(pause)
        if resume:
            self._attachment.resume(resume)
        if self._ending:
            self._give_up_ended()

    def _give_up_ended(self, *, is_over: bool = False) -> None:
        now = now_s()
        with self._changed:
            done = [
                one
                for one, ending in self._ending.items()
                if is_over or now >= ending.until_s or self.scheduler.is_drained(one)
            ]
        if not done:
            return
        self._store_last(done)
        put_offs = [self._ending.pop(one).put_off for one in done]
        try:
            self._attachment.call(self._attachment.on_revoke, done)
        finally:
            for put_off in put_offs:
                self.consumer.finish_revoke(put_off)

    def _store_last(self, partitions: Sequence[Partition]) -> None:
        """Store the offsets of partitions that are given up, and forget their records."""
        with self._changed:
            offsets = self.scheduler.take_offsets()
            late = [work for one in partitions for work in self.scheduler.stop_waiting(one)]
            for one in partitions:
                self.scheduler.forget(one)
            self._end_pauses()
        self._attachment.store(offsets)
        for work in late:
            self._warn("handler_takes_too_long", work.message)

    def _on_revoke(self, consumer: CooperativeConsumer, partitions: list[TopicPartition]) -> None:
        named = partitions_of(partitions)
        with self._changed:
            busy = self.scheduler.end(named)
            self._end_pauses()
        until_s = now_s() + self.timing.stop_timeout_s
        for one in busy:
            put_off = consumer.revoke_later([TopicPartition(*one)])
            if put_off is None:  # the consumer is being closed, and cannot wait
                self._wait_for(busy, until_s)
                busy = []
                break
            self._ending[one] = _Ending(put_off, until_s)
        ended = [one for one in named if one not in busy]
        self._store_last(ended)
        self._attachment.call(self._attachment.on_revoke, ended)

    def _on_lost(self, _: CooperativeConsumer, partitions: list[TopicPartition]) -> None:
        named = partitions_of(partitions)
        with self._changed:
            begun = self.scheduler.lose(named)
            self._end_pauses()
        for work in begun:
            self._warn("record_lost_while_handled", work.message)
        for one in named:
            self._ending.pop(one, None)
        self._attachment.call(self._attachment.on_lost, named)

    def _wait_for(self, partitions: Sequence[Partition], until_s: float) -> None:
        def are_drained() -> bool:
            return all(map(self.scheduler.is_drained, partitions))

        with self._changed:
            self._changed.wait_for(are_drained, max(0.0, until_s - now_s()))

    def _wind_down(self, *, is_complete: bool) -> None:
        """End the records in flight within their time, and leave the consumer as it was."""
        with self._changed:
            self.scheduler.close()
            self._end_pauses()
        until_s = self._stop_by_s or now_s() + self.timing.stop_timeout_s
        try:
            self._serve_until_ended(until_s)
            self._give_up_ended(is_over=True)
        finally:
            with self._changed:
                offsets = self.scheduler.take_offsets()
                unhandled = self.scheduler.unhandled()
                late = [
                    work
                    for one in self.scheduler.partitions
                    for work in self.scheduler.stop_waiting(one)
                ]
                self._end_pauses()
            self._worker.close(0.0)
            self._attachment.store(offsets)
            for work in late:
                self._warn("handler_takes_too_long", work.message)
            self._attachment.detach(unhandled, is_complete=is_complete)
            if not self._is_consumer_closed():
                self._attachment.resume_all()

    def _serve_until_ended(self, until_s: float) -> None:
        """Wait for the workers; the group's rounds go on meanwhile."""
        while now_s() < until_s:
            with self._changed:
                if not self.scheduler.in_flight:
                    return
                self._changed.wait(_WAIT_BUSY_S)
            if not self._is_consumer_closed():
                self._tend()
                self.consumer.consume(0, 0)

    # --- the jobs --------------------------------------------------------------------------------

    def _begin_ready(self) -> None:
        while (work := self._take()) is not None:
            try:
                self._worker.submit(partial(self._work, work))
            except RuntimeError:  # the system has no thread left
                self.scheduler.abandon(work)
                raise

    def _take(self) -> Work | None:
        return self.scheduler.take() if self.scheduler.in_progress < self.workers else None

    def _work(self, work: Work, attempt: int = 1, *, is_last: bool = False) -> None:
        following = self._handle(work, attempt, is_last=is_last)
        while following is not None:
            following = self._handle(following, 1, is_last=False)

    def _handle(self, work: Work, attempt: int, *, is_last: bool) -> Work | None:
        """Handle a record; return the next one for this job."""
        is_handled = self._try(work, attempt, is_last=is_last)
        if is_handled is None:
            return None
        with self._changed:
            self._rate.note_end(now_s())
            (self.scheduler.finish if is_handled else self.scheduler.abandon)(work)
            if self._failure is not None:  # before a later record of the same lane can begin
                self.scheduler.close()
            following = self._take()
            self._begin_ready()
            if work.tenure.is_ending or not self.scheduler.room:
                self._changed.notify_all()
            return following

    def _try(self, work: Work, attempt: int, *, is_last: bool) -> bool | None:
        """Handle a record; return whether its offset may be passed, None if a pause begins."""
        while not work.tenure.is_lost:
            outcome = self._attempt(work, attempt)
            if isinstance(outcome, bool):
                return outcome
            if is_last:
                return False
            pause_s = outcome.pause_ms(attempt) / 1000
            attempt += 1
            if self._pause(work, attempt, pause_s):
                return None
            is_last = True
        return False

    def _attempt(self, work: Work, attempt: int) -> bool | Retry:
        """Handle a record; return whether its offset may be passed, or how it is tried again."""
        try:
            self._call(work.message)
        except Exception as error:  # noqa: BLE001  (on_error decides)
            failure = Failure(message=work.message, error=error, attempt=attempt)
        except BaseException as error:  # noqa: BLE001  (such as sys.exit in a handler)
            return self._fail(work, error)
        else:
            return True
        try:
            outcome = decide(self.on_error, failure)
            return outcome if isinstance(outcome, Retry) else self._settle(work, outcome, failure)
        except BaseException as error:  # noqa: BLE001  (of on_error, or of the dead letter)
            return self._fail(work, error)

    def _pause(self, work: Work, attempt: int, pause_s: float) -> bool:
        """Make another attempt later; return False if the last one is due now.

        If the partition is given up, one attempt follows without a pause. Otherwise the next owner
        would repeat the later records that have been handled already.
        """
        with self._changed:
            if work.tenure.is_ending or work.tenure.is_lost:
                return False
            job = self._worker.submit(partial(self._resume, work), after_s=pause_s)
            self._pauses[work] = _Pause(attempt, job)
            return True

    def _resume(self, work: Work) -> None:
        with self._changed:
            pause = self._pauses.pop(work, None)
        if pause is not None:
            self._work(work, attempt=pause.attempt)

    def _end_pauses(self) -> None:
        """Make the last attempts at records whose partitions are given up."""
        over = [one for one in self._pauses if one.tenure.is_ending or one.tenure.is_lost]
        for work in over:
            pause = self._pauses.pop(work)
            pause.job.cancel()
            self._worker.submit(partial(self._work, work, attempt=pause.attempt, is_last=True))

    def _call(self, message: Message) -> None:
        decoder = self._attachment.decoder
        with nullcontext() if decoder is None else decoder.decoding(message):
            _refuse_coroutine(self.handle(message))

    def _settle(self, work: Work, outcome: Outcome, failure: Failure) -> bool:
        message = failure.message
        match outcome:
            case Skip():
                self._warn("record_skipped", message, error=repr(failure.error))
                return True
            case DeadLetter():
                delivery = dead_letters.send(outcome, failure, self._attachment.group_id)
                until_s = now_s() + outcome.timeout_ms / 1000
                while not delivery.is_done and now_s() < until_s:
                    outcome.producer.poll(0.05)
                    delivery.begin()
                delivery.check(outcome.topic)
                self._warn("record_dead_lettered", message, error=repr(failure.error))
                return True
            case Stop():
                return self._fail(work, failure.error)

    def _fail(self, work: Work, error: BaseException) -> bool:
        with self._changed:
            if self._failure is None:
                self._failure = (work, error)
            self._changed.notify_all()
        self._attachment.wake()
        return False

    def _warn(self, event: str, message: Message, **fields: Any) -> None:  # noqa: ANN401
        self._attachment.warn(
            event,
            topic=message.topic(),
            partition=message.partition(),
            offset=message.offset(),
            **fields,
        )


def _refuse_coroutine(result: object) -> None:
    """Refuse a coroutine, which would be counted as handled and never run.

    Raises:
        TypeError: the handler returned one, as a lambda may.
    """
    if inspect.iscoroutine(result):
        result.close()
        raise TypeError("handle returned a coroutine: coroutines need an AsyncCooperativeConsumer")
