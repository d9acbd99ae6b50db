"""Members that are threads of this process: consumers with confluent_kafka's methods."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from attrs import define, field, frozen
from confluent_kafka import KafkaError, KafkaException
from kafka import ConsumerRebalanceListener, KafkaConsumer

from coopgroup.errors import CoopgroupError
from tests.support.ledger import Ledger
from tests.support.waiting import WAIT_S_MAX, wait_for

_FATAL = KafkaError._FATAL  # noqa: SLF001 - confluent_kafka documents its codes by these names


@define(eq=False)
class PolledMember:
    """A consumer with confluent_kafka's methods, polled on its own thread."""

    name: str
    ledger: Ledger
    consumer: Any
    topics: list[str]
    calls: queue.SimpleQueue[Callable[[], object]] = field(factory=queue.SimpleQueue)
    _leaves: threading.Event = field(factory=threading.Event)
    _thread: threading.Thread = field(init=False)

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()

    def subscribe(self, topics: list[str]) -> None:
        self.consumer.subscribe(
            topics, on_assign=self._taken, on_revoke=self._given, on_lost=self._lost
        )

    def stop(self) -> None:
        self._leaves.set()
        self._thread.join(WAIT_S_MAX)
        assert not self._thread.is_alive(), f"{self.name} does not close"

    def _run(self) -> None:
        try:
            self.subscribe(self.topics)
            while not self._leaves.is_set():
                if not self.calls.empty():
                    self.calls.get()()
                for message in self.consumer.consume(200, 0.02):
                    error = message.error()
                    if error is not None and error.code() == _FATAL:
                        self.ledger.failed[self.name] = "fatal"
                    if error is None and message.topic() == self.topics[0]:
                        offset = message.offset()
                        records = range(offset, offset + 1)
                        at_s = time.monotonic()
                        self.ledger.hand(self.name, message.partition(), records, at_s)
        except (KafkaException, CoopgroupError) as error:
            self.ledger.failed[self.name] = str(error)
        finally:
            ended_s = time.monotonic()
            self.consumer.close()
            self.ledger.give_rest(self.name, ended_s)  # kafka-python closes without callbacks
            self.ledger.stopped.add(self.name)

    def _mine(self, partitions: list[Any]) -> list[int]:
        """Return the partitions of the first topic, which the ledger covers."""
        return [one.partition for one in partitions if one.topic == self.topics[0]]

    def _taken(self, _: object, partitions: list[Any]) -> None:
        self.ledger.take(self.name, self._mine(partitions), time.monotonic())

    def _given(self, _: object, partitions: list[Any]) -> None:
        self.ledger.give(self.name, self._mine(partitions), time.monotonic())

    def _lost(self, _: object, partitions: list[Any]) -> None:
        lost = self._mine(partitions)
        self.ledger.give(self.name, lost, time.monotonic(), lost=True)


@frozen
class _Record:
    """A record of kafka-python with confluent_kafka's methods."""

    record: Any

    def topic(self) -> str:
        return str(self.record.topic)

    def partition(self) -> int:
        return int(self.record.partition)

    def offset(self) -> int:
        return int(self.record.offset)

    def error(self) -> None:
        """Return None: errors are raised."""


class KafkaPythonConsumer(ConsumerRebalanceListener):
    """A consumer of kafka-python with confluent_kafka's methods."""

    def __init__(self, assignor: type, settings: Mapping[str, Any]) -> None:
        self._consumer = KafkaConsumer(partition_assignment_strategy=[assignor], **settings)
        self._callbacks: dict[str, Any] = {}

    def subscribe(self, topics: list[str], **callbacks: Any) -> None:  # noqa: ANN401
        self._callbacks = callbacks
        # kafka-python's leader assigns nothing if its metadata arrives after the JoinGroup
        for topic in topics:
            wait_for(partial(self._consumer.partitions_for_topic, topic), topic, 30)
        self._consumer.subscribe(topics, listener=self)

    def consume(self, count: int, timeout_s: float) -> list[_Record]:
        found = self._consumer.poll(timeout_ms=round(1000 * timeout_s), max_records=count)
        return [_Record(record) for records in found.values() for record in records]

    def close(self) -> None:
        """Leave the group; kafka-python does not report the partitions that this gives up."""
        self._consumer.close()

    def on_partitions_assigned(self, assigned: list[Any]) -> None:
        self._callbacks["on_assign"](self, assigned)

    def on_partitions_revoked(self, revoked: list[Any]) -> None:
        self._callbacks["on_revoke"](self, revoked)

    def on_partitions_lost(self, lost: list[Any]) -> None:
        self._callbacks["on_lost"](self, lost)
