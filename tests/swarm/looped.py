"""The swarm with the true callbacks of an asyncio consumer, above the true listener.

    run = draw_looped(seed)
    played = play(run)          # of the module `play`, as any other run

All is as in `polled`, except that callbacks are coroutines on an event loop. The loop is a true
one, and its time is the simulation's.
"""

from __future__ import annotations

import asyncio
import math
import weakref
from asyncio.events import _set_running_loop as set_running_loop  # documented, for event loops
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

import attrs
from attrs import define, field

from coopgroup.aio import callbacks as aio_callbacks
from coopgroup.aio.callbacks import GivenCallbacks, LoopCallbacks
from coopgroup.core.model import ResourceSet
from coopgroup.kafka.callbacks.listener import Callbacks, as_resources
from tests.swarm.polled import PolledApplication, PolledSimulation, draw_true

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import TopicPartition

    from coopgroup.simulator.world import World
    from tests.swarm.ports import TrueApplication
    from tests.swarm.runs import SwarmRun

LOOPED: Final = "looped"
"""What `SwarmRun.theirs` says of a group of consumers with an event loop."""
_LOOK_S: Final = 0.005
_LOOK_MS: Final = 2


def draw_looped(seed: int) -> SwarmRun:
    """Draw a run of a group of asyncio consumers."""
    return draw_true(seed, LOOPED)


class WorldLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is the simulation's; the simulation turns it."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def time(self) -> float:
        """Return the time of the simulation, in seconds."""
        return self._world.now_ms / 1_000

    def soon(self, call: Callable[..., object], *arguments: Any) -> bool:  # noqa: ANN401
        """Call on the loop soon, as a `LoopPort` does."""
        self.call_soon(call, *arguments)
        self._world.later(0, self.turn)
        return True

    def turn(self) -> None:
        """Run what is ready, and return at the next timer."""
        if self.is_closed():
            return
        set_running_loop(self)
        try:
            while self._ready or self._next_s() <= self.time():  # type: ignore[attr-defined]
                self._run_once()  # type: ignore[attr-defined]
        finally:
            set_running_loop(None)
        next_s = self._next_s()
        if next_s < math.inf:
            self._world.at(max(self._world.now_ms + 1, math.ceil(1_000 * next_s)), self.turn)

    def _next_s(self) -> float:
        """Return the time of the next timer.

        A cancelled timer does not count: with no other one, the loop would wait for ever.
        """
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        return min((one.when() for one in timers if not one.cancelled()), default=math.inf)


@define(eq=False)
class _Nudged:
    """Wakes the polling thread, in virtual time."""

    sleep: Callable[[int], None]
    is_set: bool = False

    def set(self) -> None:
        self.is_set = True

    def clear(self) -> None:
        self.is_set = False

    def wait(self, _: float) -> None:
        if not self.is_set:
            self.sleep(_LOOK_MS)


@define(kw_only=True, eq=False)
class LoopedApplication(PolledApplication):
    """The application of one process, with coroutines."""

    is_serial = False
    group: LoopedSimulation
    on_loop: LoopCallbacks = field(init=False)
    given: GivenCallbacks = field(init=False)

    def new_callbacks(self) -> Callbacks:
        plain, coroutines = self.callbacks_of(self._called), self.callbacks_of(self._awaited)
        warm = {name: plain[name] for name in plain if "warmup" in name}
        self.given = GivenCallbacks(
            weakref.ref(self), callbacks=Callbacks(**{**coroutines, **warm})
        )
        loop = self.group.loop
        self.listener.is_polled = False
        self.on_loop = LoopCallbacks(
            weakref.ref(self.given),
            cast("Any", SimpleNamespace(loop=loop, call=loop.soon)),
            cast("Any", SimpleNamespace(fail=self._fail, is_awaited=True)),
            self.listener,
        )
        self.on_loop.nudged = cast("Any", _Nudged(self.sleep))
        return attrs.evolve(self.on_loop.for_listener(), on_revoke=self._revoke)

    def _revoke(self, consumer: object, partitions: list[TopicPartition]) -> None:
        self.oracle.stop_begins(as_resources(partitions))
        self.on_loop.revoke(consumer, partitions)

    def _fail(self, error: BaseException) -> None:
        if not isinstance(error, ValueError):
            raise error

    def serve(self) -> None:
        self.on_loop.end_orphans()
        super().serve()

    def close(self) -> None:
        self.on_loop.is_closing = True
        super().close()

    def give_up(self) -> None:
        self.oracle.closes()
        self.on_loop.wait_for_stops()
        super().give_up()

    async def _awaited(self, name: str, _: object, partitions: list[TopicPartition]) -> None:
        if not self.owner.alive:
            return
        resources = as_resources(partitions)
        is_loss = bool(resources & self.oracle.lost)
        call = self.oracle.called(name, resources)
        self._refresh()
        try:
            if name == "on_assign":
                await self.let_pass(self.restore_ms(resources))
            elif name == "on_revoke" and not is_loss:
                await self._write_state(resources)
            else:
                await self.let_pass(1)
            if self.happens("leaves"):
                self._leave_inside()
            if self.happens("raises"):
                raise ValueError("no")
        finally:
            self.oracle.returned(call)

    async def _write_state(self, resources: ResourceSet) -> None:
        if self.hangs(resources):
            await self.let_pass(self.group.hang_ms_max)
        times = self.costs.to_stop(resources)
        await self.let_pass(max((stop_ms for stop_ms, _ in times), default=0))

    async def let_pass(self, for_ms: int) -> None:
        """Wait; during a pause of the process, until its end."""
        await asyncio.sleep(max(1, for_ms) / 1_000)
        while self.owner.alive and self.owner.paused:  # noqa: ASYNC110 - in virtual time
            await asyncio.sleep(_LOOK_S)

    def _leave_inside(self) -> None:
        """Close the consumer, or unsubscribe; both happen after the callback."""
        if self.closing:
            return
        if self.process.world.dice("leaves").getrandbits(1):
            self.port.inbox.call_soon(self.unsubscribe)
        else:
            self.group.come_back(self.owner)
            self.close()


@define(kw_only=True, eq=False)
class LoopedSimulation(PolledSimulation):
    """A group of such applications, on one loop."""

    application_class: ClassVar[type[TrueApplication]] = LoopedApplication
    modules = (*PolledSimulation.modules, aio_callbacks)
    loop: WorldLoop = field(init=False)

    @property
    def hang_ms_max(self) -> int:
        return 3 * self.config.rebalance_timeout_ms if self.faults.stuck else 0

    def prepare(self, run: SwarmRun) -> None:
        """Prepare a run."""
        super().prepare(run)
        self.loop = WorldLoop(self.world)

    def end(self) -> None:
        super().end()
        for task in asyncio.all_tasks(self.loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001
        self.loop.close()
