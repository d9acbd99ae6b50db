"""The parts of a consumer that serve notices and hand out records; the calls are recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import define, field
from confluent_kafka import KafkaError, Message, TopicPartition

from coopgroup.core.member.effects import GrantResources
from coopgroup.core.member.events import CommitRequested, Offset
from coopgroup.core.model import ResourceSet
from coopgroup.kafka.callbacks.listener import Callbacks, GroupListener
from coopgroup.kafka.consumer import Delivery
from coopgroup.kafka.membership.ports import Notice
from coopgroup.kafka.membership.work_meter import WorkMeter
from coopgroup.kafka.pump import Pump
from coopgroup.kafka.records.committing import Committing
from coopgroup.kafka.records.decoding import Decoder
from coopgroup.kafka.records.fetching import Fetching
from coopgroup.kafka.records.offsets import OffsetStore
from coopgroup.telemetry import ResourcesStopped, StopReason
from tests.unit.kafka.fakes import FakeCoordinator, FakeDriver, FakeLibrdkafka, record, starts

BOTH = ResourceSet({"t": [0, 1]})
ONE = ResourceSet({"t": [1]})
ZERO = ResourceSet({"t": [0]})
CONSUMER = object()


@define
class Stage:
    """The parts of a consumer for the application's thread, with a record of their actions."""

    librdkafka: FakeLibrdkafka = field(factory=FakeLibrdkafka)
    driver: FakeDriver = field(factory=FakeDriver)
    coordinator: FakeCoordinator = field(factory=FakeCoordinator)
    written: list[Any] = field(factory=list)
    heard: list[tuple[str, list[int]]] = field(factory=list)
    committed: list[tuple[Any, list[tuple[int, int]]]] = field(factory=list)
    fetching: Fetching = field(init=False)
    committing: Committing = field(init=False)
    listener: GroupListener = field(init=False)
    meter: WorkMeter = field(factory=WorkMeter)
    delivery: Delivery = field(init=False)

    def __attrs_post_init__(self) -> None:
        driver: Any = self.driver
        self.fetching = Fetching(self.librdkafka, starts(self.coordinator))
        self.committing = Committing(
            driver=driver,
            store=OffsetStore(self.fetching, automatic=True),
            starts=self.fetching.starts,
            on_commit=self._on_commit,
            interval_ms=1_000,
            write=self.written.append,
        )
        self.listener = GroupListener(
            consumer=CONSUMER,
            driver=driver,
            fetching=self.fetching,
            committing=self.committing,
            write=self.written.append,
        )
        self.listener.callbacks = Callbacks(
            self.hearing("assign"), self.hearing("revoke"), self.hearing("lost")
        )
        pump = Pump(driver, self.fetching, self.committing, self.listener)
        self.delivery = Delivery(pump, self.meter)

    def hearing(self, name: str, error: Exception | None = None) -> Callable[..., None]:
        """Return a callback that records its call, and raises if told to."""

        def callback(consumer: object, partitions: list[TopicPartition]) -> None:
            assert consumer is CONSUMER
            self.heard.append((name, [one.partition for one in partitions]))
            if error is not None:
                raise error

        return callback

    def interrupted(self, name: str, *notices: Notice, leaves: bool) -> Callable[..., None]:
        """Return a callback during whose first call notices come, and which may leave the group."""
        hear = self.hearing(name)

        def callback(consumer: object, partitions: list[TopicPartition]) -> None:
            is_first = not self.heard
            hear(consumer, partitions)
            if is_first:
                for notice in notices:
                    self.driver.inbox.put(notice)
                if leaves:
                    self.listener.give_up()

        return callback

    def tell(self, *notices: Notice) -> None:
        """Let the group tell something, and the application serve it."""
        for notice in notices:
            self.driver.inbox.put(notice)
        self.listener.serve()

    def hold(self, resources: ResourceSet) -> None:
        """Grant partitions, and hand out one record of each."""
        self.tell(GrantResources(resources=resources))
        self.librdkafka.feed(record(partition, 10) for _, partition in resources)
        self.fetching.fetch(10, 0)
        self.fetching.record_buffer.take(10)
        for notes in (self.librdkafka.calls, self.written, self.heard):
            notes.clear()

    def stops(self) -> list[tuple[ResourceSet, StopReason]]:
        written = [one for one in self.written if isinstance(one, ResourcesStopped)]
        return [(one.resources, one.reason) for one in written]

    def commits(self) -> list[tuple[Offset, ...]]:
        return [one.offsets for one in self.driver.posted if isinstance(one, CommitRequested)]

    def _on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        places = [(one.partition, one.offset) for one in partitions]
        self.committed.append((None if error is None else error.name(), places))


def owning(*log: Message) -> Stage:
    """Return a consumer that owns both partitions and has handed out nothing."""
    stage = Stage(FakeLibrdkafka(log=list(log)))
    stage.tell(GrantResources(resources=BOTH))
    for notes in (stage.librdkafka.calls, stage.written, stage.heard):
        notes.clear()
    return stage


def holding(resources: ResourceSet = BOTH) -> Stage:
    stage = Stage()
    stage.hold(resources)
    return stage


def delivery_of(stage: Stage, decoder: Decoder) -> Delivery:
    stage.delivery.pump.decoder = decoder
    return stage.delivery


def revoked(stage: Stage) -> list[Any]:
    """Return the posted events without the commits."""
    return [one for one in stage.driver.posted if not isinstance(one, CommitRequested)]
