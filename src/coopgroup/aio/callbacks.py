"""Run the application's callbacks on its loop, as functions or as coroutines.

Theory of operation. The listener calls `assign`, `revoke` and `lose` on the polling thread. They
start the application's callback on the loop and return, so the thread goes on serving. A new
partition is held back until its `on_assign` has ended. A revoked partition is put off
(`revoke_later`) until its `on_revoke` has ended. So a slow coroutine delays only its own
partitions.

Two calls wait on the polling thread: a revocation by `unsubscribe` or `close`, which cannot be put
off, and the loss of all partitions. The first has the time of any stop. A member must not rejoin
before `on_lost` has ended, or while its application is stalled: it would get partitions, and lose
them again.

Rules of this file: callbacks for the same partition run one after the other. There are two
exceptions. `on_lost` does not wait, because it must stop the work of the others. No callback waits
for `on_warmup`, which may take hours, except a later `on_warmup`. A callback whose loop was closed
has ended.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import threading
import weakref
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, TypeAlias

from attrs import define, field
from confluent_kafka import TopicPartition

from coopgroup.aio.hand_out import HandOut, key_of, keys_of
from coopgroup.aio.loop_port import LoopPort
from coopgroup.core.model import ResourceSet
from coopgroup.kafka.callbacks.listener import Callbacks, GroupListener, as_resources
from coopgroup.kafka.clock import now_s
from coopgroup.kafka.records.record_buffer import Partition

AsyncCallback: TypeAlias = Callable[[Any, list[TopicPartition]], Awaitable[object] | object]

# How often a waiting thread looks whether the loop was closed.
_LOOK_S: Final = 0.1
_CANCELLED: Final = "the task of on_warmup was cancelled"


@define(eq=False)
class _Run:
    """One call of a callback."""

    name: str
    partitions: list[TopicPartition]
    on_done: Callable[[], None]
    on_error: Callable[[BaseException], None]
    is_urgent: bool
    loop: asyncio.AbstractEventLoop | None
    keys: frozenset[Partition] = field(init=False)
    began_s: float = field(factory=lambda: now_s(), init=False)  # noqa: PLW0108 -- by its name
    task: asyncio.Task[None] | None = field(default=None, init=False)
    has_begun: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self.keys = keys_of(self.partitions)

    @property
    def is_warmup(self) -> bool:
        return self.name == "on_warmup"

    def waits_for(self, other: _Run) -> bool:
        """Return whether an earlier callback of the same partitions must have ended."""
        return not self.is_urgent and (self.is_warmup or not other.is_warmup)

    def leave_out(self, cancelled: frozenset[Partition]) -> None:
        """Leave out partitions, if the callback has not begun."""
        if not self.has_begun:
            self.partitions = [one for one in self.partitions if key_of(one) not in cancelled]


@define(eq=False)
class GivenCallbacks:
    """The callbacks passed to `subscribe`, and the consumer that they get."""

    consumer: weakref.ref[Any]
    callbacks: Callbacks = field(factory=Callbacks)
    interceptor: Callbacks | None = None
    __weakref__: Any = field(init=False, eq=False)

    def named(self, name: str) -> AsyncCallback | None:
        """Return a callback by its name; that of `coopgroup.processing` while it runs."""
        own: AsyncCallback | None = getattr(self.interceptor, name, None)
        return own or getattr(self.callbacks, name)


@define(eq=False)
class LoopCallbacks:
    """The callbacks of one consumer.

    Attributes:
        given: refers to the callbacks, which the consumer keeps. A callback may be a method of the
            object that owns the consumer. The polling thread must keep neither of them alive.
        nudged: set by any event that may end a wait of the polling thread.
        is_dropped: whether the application has dropped the consumer: no callback runs any more.
        tasks: tasks that run a callback now.
    """

    given: weakref.ref[GivenCallbacks]
    port: LoopPort
    hand_out: HandOut
    listener: GroupListener
    nudged: threading.Event = field(factory=threading.Event, init=False)
    is_dropped: bool = field(default=False, init=False)
    is_closing: bool = field(default=False, init=False)
    tasks: set[asyncio.Task[Any]] = field(factory=set, init=False)
    _runs: dict[_Run, None] = field(factory=dict, init=False)

    def for_listener(self) -> Callbacks:
        """Return the functions for the listener."""
        given = self.given()
        if given is None or given.callbacks.on_warmup is None:
            return Callbacks(self.assign, self.revoke, self.lose)
        return Callbacks(self.assign, self.revoke, self.lose, self.warm_up, self.cancel_warmups)

    # --- the polling thread ----------------------------------------------------------------------

    def assign(self, _consumer: object, partitions: list[TopicPartition]) -> None:
        """Start `on_assign`, and fetch the partitions when it has ended."""
        if not self._has("on_assign"):
            return
        held = self.listener.fetching.hold(partitions)
        inbox = self.listener.driver.inbox
        release = self.listener.release
        self._start("on_assign", partitions, lambda: inbox.call_soon(lambda: release(held)))

    def revoke(self, _consumer: object, partitions: list[TopicPartition]) -> None:
        """Start `on_revoke`, and give the partitions up when it has ended."""
        if not self._has("on_revoke"):
            return
        later = self.listener.revoke_later(partitions)
        if later is not None:
            self._start("on_revoke", partitions, lambda: self.listener.finish_revoke(later))
        elif not self._run_now("on_revoke", partitions):
            if self._is_lost:  # revocations wait: they would delay the end of this stop
                self.listener.serve_last()
            if late := as_resources(partitions) & self.listener.owned:
                self.listener.lose_overdue(late, now_s() - self._limit_s)

    def lose(self, _consumer: object, partitions: list[TopicPartition]) -> None:
        """Start `on_lost`; if all partitions are lost, wait until the member may rejoin."""
        lost = keys_of(partitions)
        is_everything = not self.listener.is_overdue and lost.issuperset(self.listener.owned)
        if self._has("on_lost") or self._has("on_revoke"):
            name = "on_lost" if self._has("on_lost") else "on_revoke"
            if is_everything:
                self._run_now(name, partitions, is_urgent=True)
            else:
                self._start(name, partitions, _nothing, is_urgent=True)
        if is_everything:
            self._wait_until_awake()

    def warm_up(self, _consumer: object, partitions: list[TopicPartition]) -> None:
        """Start `on_warmup`; if it fails or is cancelled, these warm-ups have failed."""
        resources = as_resources(partitions)
        on_error = partial(self._fail_warmups, resources)
        self._start("on_warmup", partitions, _nothing, on_error=on_error)

    def _fail_warmups(self, resources: ResourceSet, error: BaseException) -> None:
        # `asyncio.run` cancels what still follows a changelog after the consumer was closed.
        if not self.is_closing and not self.is_dropped:
            self.listener.fail_warmups(resources, error)

    def cancel_warmups(self, _consumer: object, partitions: list[TopicPartition]) -> None:
        """Start `on_warmup_cancelled`."""
        if self._has("on_warmup_cancelled"):
            self._start("on_warmup_cancelled", partitions, _nothing)

    def wait_for_stops(self) -> None:
        """Wait until each `on_revoke` that runs has ended, before the group is left.

        Otherwise the offsets of its partitions would be committed before their state is written.
        The member stays in the group meanwhile, so the partitions have no other owner. A stop that
        takes too long is therefore lost, as at any other time. After a loss of the membership,
        nothing is committed, and `on_lost` must not wait.
        """
        self._wait_until(
            lambda: (
                self._is_lost or all(one.began_s < now_s() - self._limit_s for one in self._stops)
            )
        )
        if self._is_lost:
            return
        late = ResourceSet.from_pairs(key for one in self._stops for key in one.keys)
        if late := late & self.listener.stopping:
            self.listener.lose_overdue(late)

    @property
    def _stops(self) -> list[_Run]:
        return [one for one in tuple(self._runs) if one.name == "on_revoke"]

    @property
    def _limit_s(self) -> float:
        return self.listener.driver.settings.max_poll_interval_ms / 1000

    def _has(self, name: str) -> bool:
        given = self.given()
        return given is not None and given.named(name) is not None

    def end_orphans(self) -> None:
        """End the callbacks whose loop was closed; nothing else would end them."""
        for run in tuple(self._runs):
            if run.loop is None or run.loop.is_closed():
                self._abandon(run)

    def _run_now(
        self, name: str, partitions: list[TopicPartition], *, is_urgent: bool = False
    ) -> bool:
        """Run a callback, at most for the limit of a stop; return whether it has ended.

        A stop does not begin after a loss. It may wait for an earlier callback until then.
        """
        ended: list[bool] = []
        run = self._start(name, partitions, lambda: ended.append(True), is_urgent=is_urgent)
        until_s = math.inf if is_urgent else now_s() + self._limit_s
        self._wait_until(lambda: bool(ended) or now_s() >= until_s or self._is_void(run))
        return bool(ended) or self.is_dropped

    def _is_void(self, run: _Run) -> bool:
        """Return whether a callback must not begin, because its partitions are lost.

        `lose` leaves them out soon. Warm-ups go on, because their state is local.
        """
        is_of_owned = run.name in {"on_assign", "on_revoke"} and not run.is_urgent
        waits = is_of_owned and bool(run.partitions) and not run.has_begun
        return waits and self._is_lost and not self.is_dropped

    @property
    def _is_lost(self) -> bool:
        return self.listener.driver.inbox.has_loss

    def _wait_until_awake(self) -> None:
        """Wait until the application awaits records again, if it has not for too long."""
        driver = self.listener.driver
        self._wait_until(
            lambda: (
                self.is_closing
                or self.hand_out.is_awaited
                or now_s() - driver.polled_at_s < self._limit_s
            )
        )

    def _wait_until(self, is_over: Callable[[], bool]) -> None:
        while not is_over() and not self.is_dropped:
            self.nudged.wait(_LOOK_S)
            self.nudged.clear()
            self.end_orphans()

    def _start(
        self,
        name: str,
        partitions: list[TopicPartition],
        on_done: Callable[[], None],
        *,
        is_urgent: bool = False,
        on_error: Callable[[BaseException], None] | None = None,
    ) -> _Run:
        on_error = on_error or self.hand_out.fail
        run = _Run(name, partitions, on_done, on_error, is_urgent, self.port.loop)
        self._runs[run] = None
        if not self.port.call(self._enter, run):
            self._abandon(run)
        return run

    def _abandon(self, run: _Run) -> None:
        """End a callback that cannot end by itself; the state of a warm-up is incomplete then."""
        self._finish(run, RuntimeError("its event loop was closed") if run.is_warmup else None)

    def _finish(self, run: _Run, error: BaseException | None) -> None:
        """End a callback, once; from either thread."""
        if self._runs.pop(run, run) is run:
            return
        if error is not None:
            run.on_error(error)
        run.on_done()
        self.nudged.set()

    # --- the loop --------------------------------------------------------------------------------

    def _enter(self, run: _Run) -> None:
        earlier = self._earlier(run)
        for other in earlier:
            self._leave_out(run, other)
        if earlier or self._is_void(run):
            # In a task of its own also if it waits for none of them: they begin first.
            self._begin_task(run, self._after(run, [one for one in earlier if run.waits_for(one)]))
            return
        try:
            result = self._call(run)
        except Exception as error:  # noqa: BLE001 -- the next await raises it
            self._finish(run, error)
        except BaseException:
            self._finish(run, None)
            raise
        else:
            if inspect.isawaitable(result):
                self._begin_task(run, _await(result))
            else:
                self._finish(run, None)

    def _leave_out(self, run: _Run, other: _Run) -> None:
        """Leave out callbacks that must not begin: cancelled warm-ups, and work on lost partitions.

        If `on_assign` has not begun, the application has nothing to lose.
        """
        if other.is_warmup:
            if run.name == "on_warmup_cancelled":
                other.leave_out(run.keys)
        elif run.is_urgent and not other.has_begun:
            other.leave_out(run.keys)
            if other.name == "on_assign":
                run.leave_out(other.keys)

    def _call(self, run: _Run) -> object:
        given = self.given()
        consumer = None if given is None else given.consumer()
        callback = None if given is None else given.named(run.name)
        run.has_begun = True
        if consumer is None or callback is None or not run.partitions:
            return None
        return callback(consumer, run.partitions)

    def _earlier(self, run: _Run) -> list[_Run]:
        """Return the earlier callbacks of the same partitions that have not ended."""
        found = []
        for other in tuple(self._runs):
            if other is run:
                break
            if other.task is not None and other.keys & run.keys:
                found.append(other)
        return found

    def _begin_task(self, run: _Run, work: Any) -> None:  # noqa: ANN401  (a coroutine)
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        run.task = task
        self.tasks.add(task)
        task.add_done_callback(lambda _: self._end_task(run, task))

    async def _after(self, run: _Run, earlier: list[_Run]) -> None:
        tasks = [one.task for one in earlier if one.task is not None]
        if tasks:
            await asyncio.wait(tasks)
        while self._is_void(run):  # noqa: ASYNC110 -- the polling thread serves the loss
            await asyncio.sleep(_LOOK_S)
        result = self._call(run)
        if inspect.isawaitable(result):
            await result

    def _end_task(self, run: _Run, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if not task.cancelled():
            self._finish(run, task.exception())
        else:
            self._finish(run, asyncio.CancelledError(_CANCELLED) if run.is_warmup else None)


@define(eq=False)
class ToldCallbacks:
    """Runs callbacks of the configuration on the loop: nobody waits for them, as for `stats_cb`."""

    port: LoopPort
    errors: deque[BaseException]
    _tasks: set[asyncio.Task[Any]] = field(factory=set, init=False)

    def wrap(self, callback: Callable[..., object]) -> Callable[..., None]:
        """Return a function that calls the callback soon; without a loop it does nothing."""

        def call(*arguments: Any) -> None:  # noqa: ANN401  (those of the callback)
            self.port.call(self._call, callback, arguments)

        return call

    def _call(self, callback: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        try:
            result = callback(*arguments)
        except Exception as error:  # noqa: BLE001 -- the next await raises it
            self.errors.append(error)
            return
        if inspect.isawaitable(result):
            task = asyncio.get_running_loop().create_task(_await(result))
            self._tasks.add(task)
            task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.errors.append(error)


async def _await(result: Awaitable[object]) -> None:
    await result


def _nothing() -> None:
    """Do nothing when a callback has ended."""
