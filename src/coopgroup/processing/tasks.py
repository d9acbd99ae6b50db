"""Handle records in tasks of an event loop, as many side by side as wanted.

Two rules. Everything here runs on the loop's thread, so the scheduler needs no lock. A number of
tasks is made once and takes the records in turns: a task for each record costs too much.
`attempts` decides what follows each attempt.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from time import monotonic

from attrs import define, field
from confluent_kafka import KafkaException, TopicPartition

from coopgroup.aio.consumer import AsyncCooperativeConsumer
from coopgroup.aio.records import ConsumerRecord, record_of
from coopgroup.processing.attachment import HARMLESS_ERRORS, Attachment, partitions_of
from coopgroup.processing.attempts import Attempts, Event, Leaving
from coopgroup.processing.failures import OnError
from coopgroup.processing.running import Timing
from coopgroup.processing.scheduler import RecordInFlight, Scheduler

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
    _attempts: Attempts = field(init=False)
    _idle: deque[asyncio.Future[None]] = field(factory=deque, init=False)
    _progress: set[asyncio.Future[None]] = field(factory=set, init=False)
    _running: dict[RecordInFlight, asyncio.Task[None]] = field(factory=dict, init=False)
    _cancelled: set[RecordInFlight] = field(factory=set, init=False)
    _is_closing: bool = field(default=False, init=False)
    _handing_over: asyncio.Task[bool] | None = field(default=None, init=False)
    _stop_by_s: float | None = field(default=None, init=False)
    _breathe_at_s: float = field(default=0.0, init=False)

    def __attrs_post_init__(self) -> None:
        self._attachment = Attachment.of_tasks(self.consumer)
        self._attempts = self._attachment.attempts(
            self.scheduler, self.on_error, self.concurrency, _time_s
        )

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
        self._attempts.raise_failure()

    # --- records come in -------------------------------------------------------------------------

    async def _feed(self) -> None:
        try:
            while not self._is_over():
                self._attachment.tend(self.scheduler.take_offsets(), *self.scheduler.take_pauses())
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
        if self._attempts.failure is not None:
            return True
        if not (self.timing.is_stopped and self.timing.hands_over):
            return self.timing.is_stopped
        if self._handing_over is None:
            self._stop_by_s = _time_s() + self.timing.stop_timeout_s
            hand_over = self.consumer.hand_over(timeout=self.timing.stop_timeout_s)
            self._handing_over = asyncio.create_task(hand_over)
        return self._handing_over.done()

    def _wake_workers(self) -> None:
        for _ in range(min(len(self._idle), self._attempts.ready)):
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
        until_s = _time_s() + self.timing.stop_timeout_s
        leaving = self._attempts.revoke(partitions_of(partitions), until_s)
        self._wake_workers()
        failures = []
        while leaving:
            ended = self._attempts.ended(leaving, _time_s())
            if not ended:
                await self._wait_for_progress(until_s - _time_s())
                continue
            leaving = [one for one in leaving if one not in ended]
            try:
                await self._give_up(ended)
            except Exception as error:  # noqa: BLE001  (raised below; the records go on)
                failures.append(error)
        if failures:
            raise failures[0]

    async def _give_up(self, leaving: list[Leaving]) -> None:
        left = self._attempts.give_up(leaving)
        self._attachment.give_up(left)
        for work in left.late:
            self._cancel(work)
        try:
            await _result(self._attachment.call(self._attachment.on_revoke, left.partitions))
        finally:
            self._attachment.finish_revoke(one.partition for one in self._attempts.leave(leaving))

    async def _on_lost(self, _: object, partitions: list[TopicPartition]) -> None:
        named = partitions_of(partitions)
        for work in self._attempts.lose(named):
            self._attachment.warn("record_lost_while_handled", work)
            self._cancel(work)
        self._report_progress()
        await _result(self._attachment.call(self._attachment.on_lost, named))

    def _cancel(self, work: RecordInFlight) -> None:
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
        self._attempts.close()
        self._wake_workers()
        if self._handing_over is not None:
            self._handing_over.cancel()
        until_s = self._stop_by_s or _time_s() + self.timing.stop_timeout_s
        if is_cancelled:
            until_s = 0.0
        try:
            while self.scheduler.in_flight and _time_s() < until_s:
                await self._wait_for_progress(until_s - _time_s())
        finally:
            self._attempts.drop_waiting()
            for work in tuple(self._running):
                if not is_cancelled:
                    self._attachment.warn("handler_takes_too_long", work)
                self._cancel(work)
            for waiting in self._idle:
                _end(waiting)
            self._idle.clear()
            await self._ended(workers)
            self._attachment.store(self.scheduler.take_offsets())
            self._attachment.detach(self.scheduler.unhandled(), is_complete=True)

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
            work = self._attempts.take()
            if work is None:
                if self._is_closing:
                    return
                await self._wait_for_work()
                continue
            self._running[work] = task
            event: Event = "gone"
            try:
                if not work.tenure.is_lost:
                    event = await self._step(work)
            except asyncio.CancelledError:
                if work not in self._cancelled:
                    raise
            finally:
                if work in self._cancelled:  # the worker itself goes on
                    self._cancelled.discard(work)
                    task.uncancel()
                del self._running[work]
                self._attempts.report(work, event)
                if work.state == "pausing":
                    asyncio.get_running_loop().call_later(work.pause_s, self._end_pause, work)
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

    async def _step(self, work: RecordInFlight) -> Event:
        try:
            try:
                if work.letter is None:
                    await self._call(work)
                else:
                    for producer in self._attachment.delivery(work, _time_s):
                        await asyncio.sleep(_WAIT_BUSY_S)
                        producer.poll(0)
            except Exception as error:  # noqa: BLE001  (on_error decides)
                return self._attempts.fail(work, error)
            return self._attempts.succeed(work)
        except (asyncio.CancelledError, KeyboardInterrupt, SystemExit):
            raise  # of this worker, or of the process
        except BaseException as error:  # noqa: BLE001  (otherwise the worker would be gone)
            return self._attempts.stop(work, error)

    async def _call(self, work: RecordInFlight) -> None:
        task = asyncio.current_task()
        assert task is not None
        requests = task.cancelling()
        try:
            with self._attachment.decoding(work.message):
                await _result(self.handle(record_of((work.message,))))
        except asyncio.CancelledError as error:
            if task.cancelling() > requests:
                raise
            # Only something that the handler awaited was cancelled, such as a shared future.
            raise RuntimeError("an await of the handler was cancelled") from error

    def _end_pause(self, work: RecordInFlight) -> None:
        self._attempts.end_pause(work)
        self._wake_workers()


def _time_s() -> float:
    return asyncio.get_running_loop().time()


def _end(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def _result(result: object) -> None:
    if inspect.isawaitable(result):
        await result
