"""Handle records in tasks of an event loop, as many side by side as wanted.

Two rules. Everything here runs on the loop's thread, so the scheduler needs no lock. A number of
tasks is made once and takes the records in turns: a task for each record costs too much.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import nullcontext, suppress
from time import monotonic
from typing import Any

from attrs import define, field
from confluent_kafka import KafkaException, TopicPartition

from coopgroup.aio.consumer import AsyncCooperativeConsumer
from coopgroup.aio.records import ConsumerRecord, record_of
from coopgroup.errors import ProcessingError
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

_WAIT_S = 0.1
_WAIT_BUSY_S = 0.005
_BATCH = 500
# A handler that never waits would keep all other tasks of the loop from running.
_BREATH_S = 0.002


@define(eq=False)
class TaskProcessing:
    """One run of `process` on an event loop."""

    consumer: AsyncCooperativeConsumer
    handle: Callable[[ConsumerRecord], object]
    on_error: OnError
    scheduler: Scheduler
    timing: Timing
    concurrency: int
    _attachment: Attachment = field(init=False)
    _rate: HandlerWork = field(init=False)
    _idle: deque[asyncio.Future[None]] = field(factory=deque, init=False)
    _progress: set[asyncio.Future[None]] = field(factory=set, init=False)
    _running: dict[Work, asyncio.Task[None]] = field(factory=dict, init=False)
    _retrying: dict[Work, asyncio.Event] = field(factory=dict, init=False)
    _cancelled: set[Work] = field(factory=set, init=False)
    # The revocation in progress of each partition; a loss ends it.
    _revoking: dict[Partition, object] = field(factory=dict, init=False)
    _failure: tuple[Work, BaseException] | None = field(default=None, init=False)
    _is_closing: bool = field(default=False, init=False)
    _handing_over: asyncio.Task[bool] | None = field(default=None, init=False)
    _stop_by_s: float | None = field(default=None, init=False)
    _breathe_at_s: float = field(default=0.0, init=False)

    def __attrs_post_init__(self) -> None:
        self._attachment = Attachment.of_tasks(self.consumer)
        self._rate = HandlerWork(self._attachment.meter, self.scheduler, self.concurrency)

    async def run(self) -> None:
        """Process until `stop` is set, the consumer is closed, or a record cannot be handled.

        A cancellation cancels the handlers. Their records are handled again after a restart.

        Raises:
            ProcessingError: a record could not be handled.
            KafkaException: the group refused this member permanently, or a partition failed.
            Exception: raised by a callback.
        """
        self._attachment.attach(self._on_revoke, self._on_lost, self.scheduler.oldest)
        workers = [asyncio.create_task(self._work()) for _ in range(self.concurrency)]
        is_cancelled = False
        try:
            await self._feed()
        except asyncio.CancelledError:
            is_cancelled = True
            raise
        finally:
            await self._wind_down(workers, is_cancelled=is_cancelled)
        if self._failure is not None:
            work, error = self._failure
            raise ProcessingError(*work.tenure.partition, work.offset, repr(error)) from error

    # --- records come in -------------------------------------------------------------------------

    async def _feed(self) -> None:
        try:
            while not self._is_over():
                self._tend()
                room = self.scheduler.room
                if room:
                    await self._receive(min(room, _BATCH))
                else:
                    await self._wait_for_progress(_WAIT_S)
        except RuntimeError:
            if not self._attachment.is_closed():
                raise

    async def _receive(self, count: int) -> None:
        is_busy = self.scheduler.paused or self._stop_by_s is not None
        wait_s = _WAIT_BUSY_S if is_busy else _WAIT_S
        try:
            found = await self.consumer.getmany(timeout=wait_s, max_records=count)
        except KafkaException as error:
            if error.args[0].code() in HARMLESS_ERRORS:
                return
            raise
        for records in found.values():
            self.scheduler.add(record.message for record in records)
        self._wake_workers()

    def _is_over(self) -> bool:
        if self._failure is not None:
            return True
        stop = self.timing.stop
        if stop is None or not stop.is_set():
            return False
        if not self.timing.hands_over:
            return True
        if self._handing_over is None:
            self._stop_by_s = _time_s() + self.timing.stop_timeout_s
            hand_over = self.consumer.hand_over(timeout=self.timing.stop_timeout_s)
            self._handing_over = asyncio.create_task(hand_over)
        return self._handing_over.done()

    def _tend(self) -> None:
        """Store offsets, pause and resume partitions."""
        self._attachment.store(self.scheduler.take_offsets())
        pause, resume = self.scheduler.take_pauses()
        if pause:
            self._attachment.pause(pause)
        if resume:
            self._attachment.resume(resume)

    def _wake_workers(self) -> None:
        for _ in range(min(len(self._idle), self.scheduler.ready)):
            _end(self._idle.popleft())

    async def _wait_for_progress(self, limit_s: float) -> None:
        """Wait until a record has ended; this counts as polling, because the loop is alive."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._progress.add(future)
        try:
            with self._attachment.as_polling(), suppress(TimeoutError):
                async with asyncio.timeout(limit_s):
                    await future
        finally:
            self._progress.discard(future)

    # --- partitions go ---------------------------------------------------------------------------

    async def _on_revoke(self, _: object, partitions: list[TopicPartition]) -> None:
        """Give each partition up as soon as its records have ended."""
        named, revocation = partitions_of(partitions), object()
        self._revoking |= dict.fromkeys(named, revocation)
        busy = self.scheduler.end(named)
        for work, woken in self._retrying.items():
            if work.tenure.is_ending:
                woken.set()
        until_s = _time_s() + self.timing.stop_timeout_s
        done, failures = [one for one in named if one not in busy], []
        while True:
            try:
                await self._give_up(done, revocation)
            except Exception as error:  # noqa: BLE001  (raised below; the records go on)
                failures.append(error)
            if not busy:
                break
            left_s = until_s - _time_s()
            if left_s > 0 and not any(map(self.scheduler.is_drained, busy)):
                await self._wait_for_progress(left_s)
            is_over = _time_s() >= until_s
            done = [one for one in busy if is_over or self.scheduler.is_drained(one)]
            busy = [one for one in busy if one not in done]
        if failures:
            raise failures[0]

    async def _give_up(self, partitions: list[Partition], revocation: object) -> None:
        def still_ours() -> list[Partition]:
            return [one for one in partitions if self._revoking.get(one) is revocation]

        partitions = still_ours()
        if not partitions:
            return
        self._attachment.store(self.scheduler.take_offsets())
        for one in partitions:
            for work in self.scheduler.stop_waiting(one):
                self._warn("handler_takes_too_long", work)
                self._cancel(work)
            self.scheduler.forget(one)
        try:
            await _result(self._attachment.call(self._attachment.on_revoke, partitions))
        finally:
            self._attachment.finish_revoke(still_ours())
            for one in still_ours():
                del self._revoking[one]

    async def _on_lost(self, _: object, partitions: list[TopicPartition]) -> None:
        named = partitions_of(partitions)
        for one in named:
            self._revoking.pop(one, None)
        for work in self.scheduler.lose(named):
            self._warn("record_lost_while_handled", work)
            self._cancel(work)
        self._report_progress()
        await _result(self._attachment.call(self._attachment.on_lost, named))

    def _cancel(self, work: Work) -> None:
        task = self._running.get(work)
        if task is not None:
            self._cancelled.add(work)
            task.cancel()

    # --- the end ---------------------------------------------------------------------------------

    async def _wind_down(
        self, workers: Iterable[asyncio.Task[None]], *, is_cancelled: bool
    ) -> None:
        """End the records in flight within their time, and leave the consumer as it was."""
        self._is_closing = True
        self.scheduler.close()
        for woken in self._retrying.values():
            woken.set()
        if self._handing_over is not None:
            self._handing_over.cancel()
        until_s = self._stop_by_s or _time_s() + self.timing.stop_timeout_s
        if is_cancelled:
            until_s = 0.0
        try:
            while self.scheduler.in_flight and _time_s() < until_s:
                await self._wait_for_progress(until_s - _time_s())
        finally:
            self.scheduler.drop_waiting()
            for work in tuple(self._running):
                if not is_cancelled:
                    self._warn("handler_takes_too_long", work)
                self._cancel(work)
            for waiting in self._idle:
                _end(waiting)
            self._idle.clear()
            await self._ended(workers)
            self._attachment.store(self.scheduler.take_offsets())
            self._attachment.detach(self.scheduler.unhandled(), is_complete=True)
            if not self._attachment.is_closed():
                self._attachment.resume_all()

    async def _ended(self, workers: Iterable[asyncio.Task[None]]) -> None:
        """Wait until all workers have ended, even if this task is cancelled meanwhile."""
        cancelled: asyncio.CancelledError | None = None
        waiting = set(workers)
        while waiting:
            try:
                _, waiting = await asyncio.wait(waiting)
            except asyncio.CancelledError as error:
                cancelled = error
                for work in tuple(self._running):
                    self._cancel(work)
        if cancelled is not None:
            raise cancelled

    # --- the workers -----------------------------------------------------------------------------

    async def _work(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        while True:
            work = self.scheduler.take()
            if work is None:
                if self._is_closing:
                    return
                await self._wait_for_work()
                continue
            self._running[work] = task
            is_handled = False
            try:
                is_handled = await self._try(work)
            except asyncio.CancelledError:
                if work not in self._cancelled:
                    raise
            finally:
                if work in self._cancelled:  # the worker itself goes on
                    self._cancelled.discard(work)
                    task.uncancel()
                del self._running[work]
                self._rate.note_end(_time_s())
                (self.scheduler.finish if is_handled else self.scheduler.abandon)(work)
                if self._failure is not None:  # before a later record of the same lane can begin
                    self.scheduler.close()
                self._report_progress()
            if monotonic() >= self._breathe_at_s:
                await asyncio.sleep(0)
                self._breathe_at_s = monotonic() + _BREATH_S

    async def _wait_for_work(self) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._idle.append(future)
        await future

    def _report_progress(self) -> None:
        for future in self._progress:
            _end(future)
        self._wake_workers()

    async def _try(self, work: Work) -> bool:
        """Handle a record; return whether its offset may be passed."""
        record = record_of((work.message,))
        attempt, is_last = 0, False
        while True:
            attempt += 1
            try:
                await self._call(record)
            except Exception as error:  # noqa: BLE001  (on_error decides)
                failure = Failure(message=work.message, error=error, attempt=attempt)
            except (asyncio.CancelledError, KeyboardInterrupt, SystemExit):
                raise  # of this worker, or of the process
            except BaseException as error:  # noqa: BLE001  (otherwise the worker would be gone)
                return self._fail(work, error)
            else:
                return True
            try:
                outcome = decide(self.on_error, failure)
                if not isinstance(outcome, Retry):
                    return await self._settle(work, outcome, failure)
            except Exception as error:  # noqa: BLE001  (of on_error, or of the dead letter)
                return self._fail(work, error)
            if is_last:
                return False
            is_last = await self._pause(work, outcome.pause_ms(attempt) / 1000)

    async def _call(self, record: ConsumerRecord) -> None:
        task = asyncio.current_task()
        assert task is not None
        requests = task.cancelling()
        try:
            decoder = self._attachment.decoder
            with nullcontext() if decoder is None else decoder.decoding(record.message):
                await _result(self.handle(record))
        except asyncio.CancelledError as error:
            if task.cancelling() > requests:
                raise
            # Only something that the handler awaited was cancelled, such as a shared future.
            raise RuntimeError("an await of the handler was cancelled") from error

    async def _settle(self, work: Work, outcome: Outcome, failure: Failure) -> bool:
        match outcome:
            case Skip():
                self._warn("record_skipped", work, error=repr(failure.error))
            case DeadLetter():
                delivery = dead_letters.send(outcome, failure, self._attachment.group_id)
                until_s = _time_s() + outcome.timeout_ms / 1000
                while not delivery.is_done and _time_s() < until_s:
                    await asyncio.sleep(_WAIT_BUSY_S)
                    outcome.producer.poll(0)
                    delivery.begin()
                delivery.check(outcome.topic)
                self._warn("record_dead_lettered", work, error=repr(failure.error))
            case Stop():
                return self._fail(work, failure.error)
        return True

    async def _pause(self, work: Work, pause_s: float) -> bool:
        """Wait before another attempt; return whether it is the last one.

        If the partition is given up meanwhile, the pause ends and one attempt follows. Otherwise
        the next owner would repeat the later records that have been handled already.
        """
        woken = self._retrying[work] = asyncio.Event()
        if work.tenure.is_ending or self._is_closing:
            woken.set()
        try:
            async with asyncio.timeout(pause_s):
                await woken.wait()
        except TimeoutError:
            return False
        finally:
            del self._retrying[work]
        return True

    def _fail(self, work: Work, error: BaseException) -> bool:
        if self._failure is None:
            self._failure = (work, error)
        return False

    def _warn(self, event: str, work: Work, **fields: Any) -> None:  # noqa: ANN401
        topic, number = work.tenure.partition
        self._attachment.warn(event, topic=topic, partition=number, offset=work.offset, **fields)


def _time_s() -> float:
    return asyncio.get_running_loop().time()


def _end(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def _result(result: object) -> None:
    if inspect.isawaitable(result):
        await result
