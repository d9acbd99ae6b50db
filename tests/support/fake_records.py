"""Records, a consumer and a producer for tests of processing, without a broker."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

from attrs import define, field, frozen
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.kafka.membership.work_meter import WorkMeter
from coopgroup.kafka.records.record_buffer import RecordBuffer


@frozen(kw_only=True)
class FakeRecord:
    """Has the methods of `confluent_kafka.Message` that processing calls.

    It is also the record of itself (`ConsumerRecord`).
    """

    number: int = 0
    at: int
    its_key: bytes | None = b"k"
    of: str = "t"
    its_value: bytes = b"12345"
    its_headers: Any = (("h", b"1"),)

    def topic(self) -> str:
        return self.of

    def partition(self) -> int:
        return self.number

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes | None:
        return self.its_key

    def value(self) -> bytes:
        return self.its_value

    def headers(self) -> Any:  # noqa: ANN401
        return self.its_headers

    def timestamp(self) -> tuple[int, int]:
        return (1, 1_000)

    def leader_epoch(self) -> int:
        return 7

    def error(self) -> None:
        return None


@define(eq=False)
class FakeProducer:
    """Answers at the next `poll` to the batch of all records since the last one.

    Attributes:
        error: the answer to a batch that is larger than `bytes_max`.
        is_full: its queue has no room until the next `poll`.
        bytes_max: largest batch that is taken.
        is_local: the producer refuses a record that is larger, before its batch is made.
    """

    error: KafkaError | None = None
    is_full: bool = False
    bytes_max: int = 0
    is_local: bool = False
    sent: list[dict[str, Any]] = field(factory=list, init=False)
    waiting: list[tuple[Callable[..., None], int]] = field(factory=list, init=False)

    def produce(self, topic: str, **arguments: Any) -> None:  # noqa: ANN401
        if self.is_full:
            raise BufferError("Local: Queue full")
        on_delivery = arguments.pop("on_delivery")
        size = _size_of(arguments)
        if self.is_local and self.error is not None and size > self.bytes_max:
            raise KafkaException(self.error)
        self.waiting.append((on_delivery, size))
        self.sent.append({"topic": topic, **arguments})

    def poll(self, _: float) -> None:
        self.is_full = False
        batch, self.waiting = self.waiting, []
        error = self.error if sum(size for _, size in batch) > self.bytes_max else None
        for on_delivery, _ in batch:
            on_delivery(error, None)


def _size_of(arguments: dict[str, Any]) -> int:
    values = (value for _, value in arguments["headers"])
    return sum(len(one or b"") for one in (arguments["key"], arguments["value"], *values))


OWNED = ResourceSet.from_pairs(("t", number) for number in range(3))


@define(eq=False)
class FakeConsumer:
    """Hands out given records, and has the parts of a consumer that processing uses.

    Attributes:
        script: what each `poll` finds: a record, or a call to make, such as a revocation.
        stored: the last stored offset of each partition.
        given_up: partitions that were given up, each with its stored offset at that moment.
        seeks: calls of `seek`.
        buffer: knows which partitions are paused, and by whom.
        warned: names of the logged warnings.
        committed: offsets of `commit_due`.
        idle: called by a `poll` that finds nothing, with its time-out in seconds.
    """

    script: deque[Any] = field(factory=deque)
    stored: dict[tuple[str, int], int] = field(factory=dict, init=False)
    given_up: dict[tuple[str, int], int | None] = field(factory=dict, init=False)
    seeks: list[tuple[str, int, int]] = field(factory=list, init=False)
    buffer: RecordBuffer = field(factory=RecordBuffer, init=False)
    warned: list[str] = field(factory=list, init=False)
    is_closed: bool = field(default=False, init=False)
    is_closing: bool = field(default=False, init=False)
    owned: ResourceSet = field(default=OWNED, init=False)
    stopping: ResourceSet = field(default=EMPTY, init=False)
    interceptor: Any = field(default=None, init=False)
    callbacks: Any = field(init=False)
    _parts: Any = field(init=False)
    automatic: bool = field(default=True, init=False)
    stored_only: ResourceSet = field(default=EMPTY, init=False)
    committed: dict[tuple[str, int], int] = field(factory=dict, init=False)
    interval_ms: int | None = field(default=5_000, init=False)
    idle: Callable[[float], object] = field(default=lambda _: None, init=False)
    handed_over: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self.callbacks = SimpleNamespace(on_revoke=None, on_lost=None)
        self._parts = SimpleNamespace(
            listener=self,
            committing=self,
            fetching=SimpleNamespace(
                record_buffer=self.buffer,
                pause=lambda partitions, _, by: self.buffer.pause(map(_key, partitions), by),
                resume=lambda partitions, by: self.buffer.resume(map(_key, partitions), by),
            ),
            decoder=None,
            subscription=SimpleNamespace(is_empty=False),
            work=SimpleNamespace(oldest=None),
            driver=SimpleNamespace(
                meter=WorkMeter(),
                settings=SimpleNamespace(member=SimpleNamespace(group_id="g")),
                inbox=SimpleNamespace(wake=lambda: None),
                sink=SimpleNamespace(warn=lambda event, **_: self.warned.append(event)),
            ),
        )

    # --- what processing finds in the parts ------------------------------------------------------

    @property
    def _closed(self) -> bool:
        return self.is_closed

    @property
    def store(self) -> Any:  # noqa: ANN401
        return _FakeStore(self)

    def commit_due(self, owned: ResourceSet) -> None:
        assert not self.automatic, "positions pass records that were not handled"
        self.committed |= {one: at for one, at in self.stored.items() if one in owned}

    # --- the consumer ----------------------------------------------------------------------------

    def poll(self, timeout: float) -> FakeRecord | None:
        self.check_open()
        if not self.script:
            self.idle(timeout)
            return None
        step = self.script.popleft()
        if callable(step):
            step()
            return None
        return step if self._is_wanted(step) else None

    def consume(self, count: int, _: float) -> list[FakeRecord]:
        self.check_open()
        if not count:
            self.idle(0.0)
        taken: list[FakeRecord] = []
        while len(taken) < count and self.script and not callable(self.script[0]):
            step = self.script.popleft()
            if self._is_wanted(step):
                taken.append(step)
        return taken

    def _is_wanted(self, record: FakeRecord) -> bool:
        return (record.topic(), record.partition()) in self.owned

    def owned_of(self, keys: Iterable[tuple[str, int]]) -> Iterator[tuple[str, int]]:
        return (one for one in keys if one in self.owned)

    def check_open(self) -> None:
        if self.is_closed:
            raise RuntimeError("Consumer closed")

    def assignment(self) -> list[TopicPartition]:
        self.check_open()
        return [TopicPartition(*one) for one in self.owned]

    def hand_over(self) -> None:
        self.handed_over = True
        self.script.append(lambda: self.revoke(*self.owned.to_dict()["t"]))

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        self.buffer.pause(map(_key, partitions))

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        self.buffer.resume(map(_key, partitions))

    @property
    def paused(self) -> frozenset[tuple[str, int]]:
        return self.buffer.paused

    def seek(self, partition: TopicPartition) -> None:
        self.seeks.append((partition.topic, partition.partition, partition.offset))

    def revoke_later(self, partitions: list[TopicPartition]) -> object:
        if self.is_closing:
            return None
        later = ResourceSet.from_pairs((one.topic, one.partition) for one in partitions)
        self.stopping |= later
        return later

    def finish_revoke(self, stopped: ResourceSet) -> None:
        self._drop(stopped & self.stopping)

    # --- what the group does ---------------------------------------------------------------------

    def revoke(self, *numbers: int) -> None:
        gone = ResourceSet.from_pairs(("t", number) for number in numbers) & self.owned
        self.interceptor.on_revoke(self, [TopicPartition(*one) for one in gone])
        self._drop(gone - self.stopping)

    def lose(self, *numbers: int) -> None:
        gone = ResourceSet.from_pairs(("t", number) for number in numbers) & self.owned
        self.interceptor.on_lost(self, [TopicPartition(*one) for one in gone])
        self.buffer.drop(gone)
        self.owned -= gone
        self.stopping -= gone

    def _drop(self, gone: ResourceSet) -> None:
        self.given_up.update((one, self.stored.get(one)) for one in gone)
        self.buffer.drop(gone)
        self.owned -= gone
        self.stopping -= gone


class FakeAsyncConsumer(FakeConsumer):
    """The same for an event loop; `revoke` and `lose` are coroutines."""

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        hand_out = SimpleNamespace(as_polling=nullcontext)
        self.call_later: Callable[[Callable[[], None]], None] = lambda call: call()
        self._started = SimpleNamespace(
            parts=self._parts,
            call=lambda call: self.call_later(call),  # noqa: PLW0108 - a test may replace it
            hand_out=hand_out,
            resume=self.buffer.resume,
        )
        self._given = self
        self._waiting: asyncio.Event = asyncio.Event()

    @property
    def _is_closed(self) -> bool:
        return self.is_closed

    async def getmany(self, *, timeout: float, max_records: int) -> dict[int, list[Any]]:  # noqa: ASYNC109
        self.check_open()
        if not self.script:
            await asyncio.sleep(timeout)
            return {}
        return {0: [_Wrapped(one) for one in self.consume(max_records, 0)]}

    async def hand_over(self, timeout: float) -> bool:  # type: ignore[override]  # noqa: ASYNC109
        self.handed_over = True
        await self.revoke_now(*self.owned.to_dict()["t"])
        return True

    def pause(self, *partitions: TopicPartition) -> None:  # type: ignore[override]
        super().pause(partitions)

    def resume(self, *partitions: TopicPartition) -> None:  # type: ignore[override]
        super().resume(partitions)

    def seek(self, partition: TopicPartition, offset: int) -> None:  # type: ignore[override]
        self.seeks.append((partition.topic, partition.partition, offset))

    def finish_revoke(self, stopped: Any) -> None:  # noqa: ANN401
        named = ((one.topic, one.partition) for one in stopped)
        self._drop(ResourceSet.from_pairs(named) & self.stopping)

    async def revoke_now(self, *numbers: int) -> None:
        gone = ResourceSet.from_pairs(("t", number) for number in numbers) & self.owned
        self.stopping |= gone
        await self.interceptor.on_revoke(self, [TopicPartition(*one) for one in gone])
        self._drop(gone & self.stopping)

    async def lose_now(self, *numbers: int) -> None:
        gone = ResourceSet.from_pairs(("t", number) for number in numbers) & self.owned
        await self.interceptor.on_lost(self, [TopicPartition(*one) for one in gone])
        self.owned -= gone


def _key(partition: TopicPartition) -> tuple[str, int]:
    return partition.topic, partition.partition


@frozen
class _Wrapped:
    message: FakeRecord


@define(eq=False)
class _FakeStore:
    consumer: FakeConsumer

    @property
    def automatic(self) -> bool:
        return self.consumer.automatic

    @automatic.setter
    def automatic(self, value: bool) -> None:
        self.consumer.automatic = value

    @property
    def stored_only(self) -> ResourceSet:
        return self.consumer.stored_only

    @stored_only.setter
    def stored_only(self, value: ResourceSet) -> None:
        self.consumer.stored_only = value

    def due(self, _: ResourceSet) -> tuple[()]:
        return ()

    def store(self, offsets: Sequence[Any]) -> None:
        for one in offsets:
            self.consumer.stored[one.topic, one.partition] = one.offset
