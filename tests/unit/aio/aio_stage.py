"""An `AsyncCooperativeConsumer` over stand-ins for librdkafka and for the group.

With a hand, all runs in virtual time and on one thread: the loop turns the polling while its tasks
wait. While a turn is blocked, in librdkafka or for a callback, the tasks go on.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from typing import Any

import pytest
from attrs import define, field
from confluent_kafka import Message, TopicPartition

from coopgroup.aio import AsyncCooperativeConsumer
from coopgroup.aio.polling import Polling
from coopgroup.core.member.effects import GrantResources
from coopgroup.core.member.events import CommitRequested
from coopgroup.core.model import ResourceSet
from coopgroup.kafka import clock
from coopgroup.kafka.callbacks.listener import Callbacks, GroupListener
from coopgroup.kafka.consumer import ConsumerParts
from coopgroup.kafka.pump import Pump
from coopgroup.kafka.records.committing import Committing
from coopgroup.kafka.records.fetching import Fetching
from coopgroup.kafka.records.offsets import OffsetStore
from tests.support.by_hand import Hand, by_hand
from tests.support.virtual_loop import block, run_virtual, time_passes
from tests.unit.kafka.fakes import FakeDriver, FakeLibrdkafka, record, starts

BOTH = ResourceSet({"t": [0, 1]})
ONE = ResourceSet({"t": [1]})
ZERO = ResourceSet({"t": [0]})
P0 = TopicPartition("t", 0)
P1 = TopicPartition("t", 1)


@define
class PollableLibrdkafka(FakeLibrdkafka):
    """Waits in `poll`, may be fed from another thread, and refuses two threads at a time.

    It returns no record of a paused partition.

    With a client of confluent_kafka 2.16, the second thread might wait for ever.

    Attributes:
        hand: its clock passes while `poll` waits; None for true threads.
    """

    hand: Hand | None = None
    lock: threading.RLock = field(factory=threading.RLock, init=False)
    fed: threading.Condition = field(init=False)
    user: threading.Lock = field(factory=threading.Lock, init=False)
    clashes: list[str] = field(factory=list, init=False)
    paused: set[int | None] = field(factory=set, init=False)
    aside: list[Message] = field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        self.fed = threading.Condition(self.lock)

    @contextmanager
    def used(self, call: str) -> Iterator[None]:
        """Note a call by a second thread."""
        is_free = self.user.acquire(blocking=False)
        if not is_free:
            self.clashes.append(call)
        try:
            yield
        finally:
            if is_free:
                self.user.release()

    def feed(self, messages: Iterable[Message]) -> None:
        with self.lock:
            FakeLibrdkafka.feed(self, messages)
            self.set_aside()
            self.fed.notify_all()

    def set_aside(self) -> None:
        if self.paused:
            self.aside += [one for one in self.queue if one.partition() in self.paused]
            self.queue = [one for one in self.queue if one.partition() not in self.paused]

    def consume(self, count: int, timeout_s: float) -> list[Message]:
        with self.used("consume"), self.lock:
            return FakeLibrdkafka.consume(self, count, timeout_s)

    def position(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        with self.used("position"):
            return FakeLibrdkafka.position(self, partitions)

    def pause(self, partitions: list[TopicPartition]) -> None:
        with self.used("pause"), self.lock:
            FakeLibrdkafka.pause(self, partitions)
            self.paused |= {one.partition for one in partitions}
            self.set_aside()

    def resume(self, partitions: list[TopicPartition]) -> None:
        with self.used("resume"), self.lock:
            FakeLibrdkafka.resume(self, partitions)
            self.paused -= {one.partition for one in partitions}
            self.queue = self.aside + self.queue
            self.aside = []
            self.set_aside()

    def poll(self, timeout_s: float) -> Message | None:
        with self.used("poll"):
            if self.hand is not None:
                block(self.hand, lambda: self.queue, timeout_s)
            with self.lock:
                if not self.queue and self.hand is None:
                    self.fed.wait(timeout_s)
                return next(iter(FakeLibrdkafka.consume(self, 1, timeout_s)), None)

    def seek(self, partition: TopicPartition) -> None:
        """Drop what was fetched before, as librdkafka does."""
        with self.used("seek"), self.lock:
            self.queue = [one for one in self.queue if one.partition() != partition.partition]
            self.aside = [one for one in self.aside if one.partition() != partition.partition]
            FakeLibrdkafka.seek(self, partition)

    def get_watermark_offsets(
        self,
        partition: TopicPartition,
        timeout: float = 0,
        cached: bool = False,  # noqa: FBT002  (as confluent_kafka has it)
    ) -> tuple[int, int]:
        with self.used("get_watermark_offsets"):
            return 0, self.ends.get((partition.topic, partition.partition), -1001)


@define(eq=False)
class FakeSubscription:
    """A group that assigns all partitions of the stage immediately."""

    stage: AioStage
    topics: list[str] = field(factory=list)
    warm: ResourceSet | None = None

    @property
    def is_empty(self) -> bool:
        return not self.topics and not self.stage.handed_over

    def enter(
        self, topics: list[str], callbacks: Callbacks, warm: ResourceSet | None = None
    ) -> None:
        self.topics, self.warm = topics, warm
        self.stage.driver.polled_at_s = self.stage.now_s()
        self.stage.listener.callbacks = callbacks
        self.stage.driver.inbox.put(GrantResources(resources=self.stage.resources))

    def leave(self, reason: str, *, for_good: bool) -> None:
        self.topics = []
        self.stage.listener.give_up()
        self.stage.driver.leave(reason, for_good=for_good)

    def hand_over(self) -> None:
        self.stage.handed_over = True


class BlockingEvent(threading.Event):
    """An event that a turn awaits, while the loop goes on."""

    def __init__(self, hand: Hand) -> None:
        super().__init__()
        self.hand = hand

    def wait(self, timeout: float | None = None) -> bool:
        block(self.hand, self.is_set, math.inf if timeout is None else timeout)
        return self.is_set()


@define(eq=False)
class AioStage:
    """The parts of a consumer, with what happens to them.

    Attributes:
        hand: turns the polling, on its clock.
        has_threads: whether the polling has a true thread, and the clock is the true one.
        resources: what the group assigns after `subscribe`.
        polling: the polling that the hand turns; None before the start and after the end.
        ended: the last steps of the parts, in order.
    """

    hand: Hand = field(factory=Hand)
    has_threads: bool = False
    resources: ResourceSet = BOTH
    polling: Polling | None = field(default=None, init=False)
    _due_s: float = field(default=0.0, init=False)
    driver: FakeDriver = field(factory=FakeDriver)
    librdkafka: PollableLibrdkafka = field(init=False)
    ended: list[str] = field(factory=list)
    written: list[Any] = field(factory=list)
    handed_over: bool = False
    on_start: Callable[[], object] = lambda: None
    fetching: Fetching = field(init=False)
    committing: Committing = field(init=False)
    listener: GroupListener = field(init=False)
    pump: Pump = field(init=False)
    subscription: FakeSubscription = field(init=False)

    def __attrs_post_init__(self) -> None:
        driver: Any = self.driver
        self.librdkafka = PollableLibrdkafka(hand=None if self.has_threads else self.hand)
        self.fetching = Fetching(self.librdkafka, starts())
        self.committing = Committing(
            driver=driver,
            store=OffsetStore(self.fetching, automatic=True),
            starts=self.fetching.starts,
            on_commit=None,
            interval_ms=60_000,
            write=self.written.append,
        )
        self.listener = GroupListener(
            consumer=None,
            driver=driver,
            fetching=self.fetching,
            committing=self.committing,
            write=self.written.append,
        )
        self.pump = Pump(driver, self.fetching, self.committing, self.listener)
        self.subscription = FakeSubscription(self)

    def now_s(self) -> float:
        """Return the time that the polling reads, too."""
        return clock.now_s() if self.has_threads else self.hand.now_s

    def start(self) -> None:
        self.on_start()

    def stop(self) -> None:
        self.ended.append("stop")

    def close(self) -> None:
        assert self.librdkafka.clashes == []
        self.ended.append("close")
        self.fetching.close()

    def feed(self, partition: int, *offsets: int) -> None:
        self.librdkafka.feed([record(partition, offset) for offset in offsets])

    @property
    def posted(self) -> list[Any]:
        """Return the events for the group, without requests to commit."""
        return [one for one in self.driver.posted if not isinstance(one, CommitRequested)]

    @property
    def committed(self) -> list[tuple[int, int]]:
        """Return (partition, offset) of all requested commits."""
        return [
            (one.partition, one.offset)
            for event in self.driver.posted
            if isinstance(event, CommitRequested)
            for one in event.offsets
        ]

    def consumer(self, *topics: str, **more: object) -> AsyncCooperativeConsumer:
        config = {"bootstrap.servers": "localhost:1", "group.id": "g", **more}
        return AsyncCooperativeConsumer(config, *topics)

    @asynccontextmanager
    async def joined(self, **callbacks: Any) -> AsyncIterator[AsyncCooperativeConsumer]:  # noqa: ANN401
        """Open a consumer with these arguments of `subscribe`, and let it get its partitions."""
        consumer = self.consumer()
        consumer.subscribe(["t"], **callbacks)
        async with consumer:
            await time_passes()
            yield consumer

    async def tell(self, *notices: Any) -> None:  # noqa: ANN401  (those of a group)
        """Let the application hear of notices, and go on."""
        for one in notices:
            self.driver.inbox.put(one)
        await time_passes()

    # --- by hand ---------------------------------------------------------------------------------

    def take(self, polling: Polling) -> None:
        """Turn a polling by hand, instead of its start."""
        self.polling, self._due_s = polling, self.hand.now_s
        polling.callbacks.nudged = BlockingEvent(self.hand)

    def turn(self) -> float:
        """Turn the polling if it is due; return the pause until it is, in seconds."""
        if self.polling is None:
            return math.inf
        if not self.driver.inbox.waiting and self._due_s > self.hand.now_s:
            return self._due_s - self.hand.now_s
        pause_s = self.polling.turn()
        if pause_s is None:
            self.polling = None
        else:
            self._due_s = self.hand.now_s + pause_s
        return 0.0

    def run(self, main: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine on a loop that turns the polling; with threads, on a usual loop."""
        if self.has_threads:
            asyncio.run(main)
        else:
            run_virtual(self.hand, main, self.turn)


@contextmanager
def staged(*, has_threads: bool = False) -> Iterator[AioStage]:
    with by_hand() if not has_threads else nullcontext(Hand()) as hand:
        stage = AioStage(hand, has_threads=has_threads)

        def start(polling: Polling) -> None:
            stage.take(polling)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ConsumerParts, "build", lambda *_: stage)
            if not has_threads:
                patch.setattr(Polling, "start", start)
            yield stage
