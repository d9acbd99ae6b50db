"""The swarm with `process` on an event loop, above the true callbacks of an asyncio consumer.

    run = draw_tasked(seed)
    played = play(run)          # of the module `play`, as any other run

All is as in `looped`, except that the application calls `process` (`processing`). Half of the
applications end `process` before they close the consumer. Other applications close it before
`process` has ended.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, cast

from attrs import define, field

from coopgroup.aio.hand_out import ConsumerStoppedError
from coopgroup.aio.records import ConsumerRecord, record_of
from coopgroup.processing import tasks
from coopgroup.processing.attachment import as_partitions
from coopgroup.processing.tasks import TaskProcessing
from tests.swarm.looped import LoopedApplication, LoopedSimulation
from tests.swarm.processing import (
    HANDLERS,
    LOOK_MS,
    RETRY,
    ProcessingApplication,
    ProcessingSimulation,
    draw_processing,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka import TopicPartition

    from coopgroup.kafka.callbacks.listener import Callbacks
    from coopgroup.processing.attempts import Leaving
    from tests.swarm.runs import SwarmRun

TASKED: Final = "tasked"
"""What `SwarmRun.theirs` says of a group of asyncio consumers whose records are processed."""
_CANCELS: Final = 4  # how often tasks are cancelled at the end


def draw_tasked(seed: int) -> SwarmRun:
    """Draw a run of a group whose records are processed on event loops."""
    return draw_processing(seed, TASKED)


@define(eq=False)
class _Consumer:
    """The consumer as `process` knows it."""

    application: TaskedApplication
    _started: Any
    _given: Any

    @property
    def _is_closed(self) -> bool:
        return self.application.closing or not self.application.owner.alive

    async def getmany(
        self,
        *,
        timeout: float,  # noqa: ASYNC109 - as the consumer's
        max_records: int,
    ) -> dict[int, list[ConsumerRecord]]:
        of = self.application
        until_ms = of.owner.world.now_ms + 1_000 * timeout
        while True:
            if self._is_closed:
                raise ConsumerStoppedError
            if of.errors:
                raise of.errors.popleft()
            # No record leaves before the notices have been carried out.
            found = [] if of.port.inbox.waiting else of.fetching.take(max_records)
            if found or of.owner.world.now_ms >= until_ms:
                return {0: [record_of((one,)) for one in found]}
            await of.let_pass(LOOK_MS)

    def seek(self, place: TopicPartition, offset: int) -> None:
        self.application.fetching.seek(place, offset)


@define(eq=False)
class _Processing(TaskProcessing):
    """`process` on the loop of the simulation."""

    application: TaskedApplication = field(kw_only=True)

    async def _on_revoke(self, _: object, partitions: list[TopicPartition]) -> None:
        with self.application.told_by_task("on_revoke", partitions):
            await super()._on_revoke(_, partitions)

    async def _give_up(self, leaving: list[Leaving]) -> None:
        try:
            await super()._give_up(leaving)
        finally:
            self.application.oracle.stops_end(one.partition for one in leaving)

    async def _on_lost(self, _: object, partitions: list[TopicPartition]) -> None:
        with self.application.told_by_task("on_lost", partitions):
            await super()._on_lost(_, partitions)

    async def _wind_down(self, workers: Any, *, is_cancelled: bool) -> None:  # noqa: ANN401 - tasks
        self.application.winds_down()
        await super()._wind_down(workers, is_cancelled=is_cancelled)


@define(kw_only=True, eq=False)
class TaskedApplication(ProcessingApplication, LoopedApplication):
    """The application of one process, which calls `process` in a task.

    Attributes:
        errors: of callbacks; the next await of records raises them.
        closes_first: whether it closes its consumer while `process` runs.
        is_plain: whether its handler is a plain function.
    """

    group: TaskedSimulation
    errors: deque[BaseException] = field(factory=deque)
    closes_first: bool = field(init=False)
    is_plain: bool = field(init=False)
    _is_ending: bool = False
    _callers: set[asyncio.Task[Any] | None] = field(factory=set)  # they run callbacks of `process`

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        dice = self.process.world.dice("tasks")
        self.closes_first = bool(dice.getrandbits(1))
        self.is_plain = dice.random() < 0.2

    def new_callbacks(self) -> Callbacks:
        self.hears_losses = True  # also between two calls of `process`
        return super().new_callbacks()

    def start(self) -> None:
        super().start()
        self.group.loop.soon(self._begin)

    def _begin(self) -> None:
        main = asyncio.get_running_loop().create_task(self._main())
        main.add_done_callback(self._report)

    def _report(self, main: asyncio.Task[None]) -> None:
        error = None if main.cancelled() else main.exception()
        if error is not None:
            self.object_to(f"ends with {error!r}")

    async def _main(self) -> None:
        polling = SimpleNamespace(
            parts=self.parts,
            call=self.port.inbox.call_soon,
            resume=lambda keys, by: self.fetching.resume(as_partitions(keys), by),
            hand_out=SimpleNamespace(as_polling=nullcontext),
        )
        consumer = cast("Any", _Consumer(self, polling, self.given))
        while not self.is_over():
            scheduler, timing = self.new_life()
            handle = cast("Any", self._handle_now if self.is_plain else self._handle)
            handle = partial(handle, self._lives)
            with suppress(ValueError):  # raised by a callback
                await _Processing(
                    consumer, handle, RETRY, scheduler, timing, HANDLERS, application=self
                ).run()
            await self.let_pass(1)
        if not self.closing:
            super().close()

    def is_over(self) -> bool:
        return self._is_ending or not self.owner.alive or super().is_over()

    def close(self) -> None:
        self._is_ending = True
        if self.closes_first:
            super().close()

    def _fail(self, error: BaseException) -> None:
        super()._fail(error)
        self.errors.append(error)

    @contextmanager
    def told_by_task(self, name: str, partitions: list[TopicPartition]) -> Iterator[None]:
        """Tell the oracle of a callback of `process`, which runs in this task."""
        caller = asyncio.current_task()
        self._callers.add(caller)
        try:
            with self.told(name, partitions):
                yield
        finally:
            self._callers.discard(caller)

    async def _awaited(self, name: str, _: object, partitions: list[TopicPartition]) -> None:
        if asyncio.current_task() not in self._callers:
            await super()._awaited(name, _, partitions)
            return
        self.hears_end(partitions)
        await self.let_pass(1)
        if self.happens("raises"):
            raise ValueError("no")

    async def _handle(self, life: int, record: ConsumerRecord) -> None:
        with self.handling(life, cast("Any", record.message)) as for_ms:
            await self.let_pass(for_ms)

    def _handle_now(self, life: int, record: ConsumerRecord) -> None:
        with self.handling(life, cast("Any", record.message)):
            pass


@define(kw_only=True, eq=False)
class TaskedSimulation(ProcessingSimulation, LoopedSimulation):
    """A group of such applications."""

    application_class = TaskedApplication
    modules = (*LoopedSimulation.modules, tasks)

    def end(self) -> None:
        for _ in range(_CANCELS):  # a task that is cancelled still waits for others
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.loop.turn()
        super().end()
