"""A consumer whose records are processed in threads or in tasks, and the story of a test.

A story is a generator. It begins, and goes on at each `yield`, when nothing else can happen; a
number that it yields is a time that passes. A record that the test holds is in progress.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias

import pytest
from confluent_kafka import TopicPartition

from coopgroup.processing import Limits, Stop, process
from coopgroup.processing.running import Timing
from coopgroup.processing.scheduler import Scheduler
from coopgroup.processing.tasks import TaskProcessing
from coopgroup.processing.threads import ThreadProcessing
from coopgroup.worker import Job
from tests.support.by_hand import Hand, by_hand
from tests.support.fake_records import FakeAsyncConsumer, FakeConsumer, FakeRecord
from tests.support.virtual_loop import run_virtual, time_passes

WORKER = "coopgroup-worker"
SOON_S = 0.2  # longer than the waits of the tasks
Place = tuple[int, int]
Story: TypeAlias = Iterator[Any]


class Group:
    """A consumer, a handler whose records can be held, and the story of the test.

    `began` has the records that were handled, and those in progress.
    """

    def __init__(self, hand: Hand, consumer: FakeConsumer) -> None:
        self.hand, self.consumer = hand, consumer
        self.handled: list[Place] = []
        self.handler: Callable[[FakeRecord], object] = self.handle

    def handle(self, message: FakeRecord) -> None:
        self.handled.append((message.partition(), message.offset()))


class ThreadGroup(Group):
    """A held record has a job that began in the scheduler and was not run yet."""

    def __init__(self, hand: Hand, *records: FakeRecord, **options: Any) -> None:  # noqa: ANN401
        super().__init__(hand, FakeConsumer(deque(records)))
        self.consumer.idle = self._idle
        self.stop = threading.Event()
        self._handled = 0
        self._held: set[Place] = set()
        self.options = {"workers": 4, "stop": self.stop, "stop_timeout_ms": 5_000, **options}
        self._story: Story = iter(())
        hand.is_held = lambda job: _place(job) in self._held

    def play(self, story: Story | None = None, run: Callable[[], None] | None = None) -> None:
        consumer: Any = self.consumer
        handler: Any = self.handler
        self._story = iter((None,)) if story is None else story
        if run is None:
            process(consumer, handler, **self.options)
        else:
            run()

    def _idle(self, timeout_s: float) -> None:
        handled, self._handled = self._handled, len(self.handled)
        if self.hand.run_one(WORKER) or handled != self._handled:
            return
        try:
            self.hand.advance(next(self._story) or 0.0)
        except StopIteration:
            self.stop.set()
            self.hand.advance(max(timeout_s, 0.001))

    @property
    def began(self) -> set[Place]:
        return {*self.handled, *map(_place, self.hand.jobs(WORKER))}

    def hold(self, *places: Place) -> None:
        self._held.update(places)

    def release(self) -> None:
        self._held.clear()

    def revoke(self, *numbers: int) -> None:
        self.consumer.revoke(*numbers)

    def lose(self, *numbers: int) -> None:
        self.consumer.lose(*numbers)

    def pause(self, *partitions: TopicPartition) -> None:
        self.consumer.pause(partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        self.consumer.resume(partitions)


def _place(job: Job) -> Place:
    call: Any = job.call
    work = call.args[0]
    return work.tenure.partition[1], work.offset


class TaskGroup(Group):
    """Processing on an event loop in virtual time.

    Attributes:
        cancelled: held records whose handler was cancelled.
        running: the task of the processing.
        revocation: the last revocation.
    """

    consumer: FakeAsyncConsumer

    def __init__(self, hand: Hand, *records: FakeRecord, **options: Any) -> None:  # noqa: ANN401
        super().__init__(hand, FakeAsyncConsumer(deque(records)))
        self.stop = asyncio.Event()
        self.cancelled: list[Place] = []
        self.running: asyncio.Task[None]
        self.revocation: asyncio.Task[None]
        self._began: set[Place] = set()
        self._held: dict[Place, asyncio.Event] = {}
        self._tasks: list[asyncio.Task[None]] = []
        consumer: Any = self.consumer
        self.processing = TaskProcessing(
            consumer,
            self._handle,
            options.get("on_error", Stop()),
            Scheduler(options.get("order", "partition"), options.get("limits", Limits())),
            Timing(self.stop, 5_000, hands_over=options.get("hands_over", False)),
            options.get("workers", 4),
        )

    async def _handle(self, record: Any) -> None:  # noqa: ANN401
        place = (record.message.partition(), record.message.offset())
        self._began.add(place)
        if place in self._held:
            try:
                await self._held[place].wait()
            except asyncio.CancelledError:
                self.cancelled.append(place)
                raise
        result: Any = self.handler(record.message)
        if result is not None:
            await result

    def play(self, story: Story | None = None) -> None:
        run_virtual(self.hand, self._play(iter(()) if story is None else story))

    async def _play(self, story: Story) -> None:
        self.running = asyncio.create_task(self.processing.run())
        await time_passes(SOON_S)
        for pause_s in story:
            await time_passes(pause_s or SOON_S)
        self.stop.set()
        await self.running

    @property
    def began(self) -> set[Place]:
        return self._began

    def hold(self, *places: Place) -> None:
        self._held |= {one: asyncio.Event() for one in places}

    def release(self, *places: Place) -> None:
        for one in places or tuple(self._held):
            self._held.pop(one).set()

    def revoke(self, *numbers: int) -> None:
        self.revocation = asyncio.create_task(self.consumer.revoke_now(*numbers))

    def lose(self, *numbers: int) -> None:
        self._tasks.append(asyncio.create_task(self.consumer.lose_now(*numbers)))

    def pause(self, *partitions: TopicPartition) -> None:
        self.consumer.pause(*partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        self.consumer.resume(*partitions)


Make: TypeAlias = Callable[..., Any]


@contextmanager
def made_in(kind: type[Group], *, has_own_jobs: bool = True) -> Generator[Make]:
    """Return a maker of groups, in which each record may have a job of its own."""

    def work_one(self: Any, work: Any) -> None:  # noqa: ANN401
        following = None if work is None else self._handle(work)
        if following is not None:
            self._worker.submit(partial(self._work, following))

    with by_hand(waits=kind is ThreadGroup) as hand, pytest.MonkeyPatch.context() as patch:
        if has_own_jobs:
            patch.setattr(ThreadProcessing, "_work", work_one)
        yield partial(kind, hand)


def records(number: int, count: int, key: bytes | None = b"k") -> list[FakeRecord]:
    return [FakeRecord(number=number, at=at, its_key=key) for at in range(count)]


def failing(*errors: BaseException) -> Callable[[FakeRecord], None]:
    """Return a handler that raises these errors, each once, and then does nothing."""
    left = list(errors)

    def handle(_: FakeRecord) -> None:
        if left:
            raise left.pop(0)

    return handle
