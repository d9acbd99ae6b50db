"""The assignor `drain-time` sees the handlers of `process`, and the tasks of an event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import pytest
from confluent_kafka import Message

from coopgroup import CooperativeConsumer, DrainTimeAssignor
from coopgroup.aio import AsyncCooperativeConsumer, ConsumerRecord
from coopgroup.processing import process
from coopgroup.testing import KafkaCluster
from tests.support.inner import inner
from tests.support.live_group import produce, unique
from tests.support.waiting import wait_for

pytestmark = pytest.mark.verify

PARTITIONS: Final = 24
BACKLOG: Final = 400
FAST_S: Final = 0.01
SLOW_S: Final = 0.05
HANDLERS: Final = 4


class _Members:
    """Three members: threads, tasks and a plain loop. The handlers of the threads are fast.

    The threads can process 400 records a second, the tasks 80, and the plain loop 20.
    """

    def __init__(self, cluster: KafkaCluster, topics: list[str]) -> None:
        self.config = {
            **cluster.client_config(),
            "group.id": unique("handlers"),
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 200,
            "heartbeat.interval.ms": 200,
            "topic.metadata.refresh.interval.ms": 300,
        }
        self.topics = topics
        self.stop = threading.Event()
        self.consumers: dict[str, Any] = {}
        works: list[Callable[[], None]] = [
            self._threads,
            lambda: asyncio.run(self._tasks()),
            lambda: asyncio.run(self._loop()),
        ]
        self.threads = [threading.Thread(target=work) for work in works]
        for one in self.threads:
            one.start()

    def end(self) -> None:
        self.stop.set()
        for one in self.threads:
            one.join(30)

    def rate(self, name: str) -> float:
        parts = "_parts" if name == "threads" else "_polling.parts"
        rate: float | None = inner(
            self.consumers[name], *parts.split("."), "driver"
        ).meter.rate_per_s
        return rate or 0.0

    def counts(self) -> dict[str, int]:
        return {name: len(one.assignment()) for name, one in self.consumers.items()}

    def _threads(self) -> None:
        def handle(_: Message) -> None:
            time.sleep(FAST_S)

        with CooperativeConsumer(self.config, assignor=DrainTimeAssignor()) as consumer:
            consumer.subscribe(self.topics)
            self.consumers["threads"] = consumer
            process(consumer, handle, workers=HANDLERS, stop=self.stop)

    async def _tasks(self) -> None:
        async def handle(_: ConsumerRecord) -> None:
            await asyncio.sleep(SLOW_S)

        consumer = AsyncCooperativeConsumer(self.config, *self.topics, assignor=DrainTimeAssignor())
        async with consumer:
            self.consumers["tasks"] = consumer
            await process(consumer, handle, concurrency=HANDLERS, stop=self.stop)

    async def _loop(self) -> None:
        consumer = AsyncCooperativeConsumer(self.config, *self.topics, assignor=DrainTimeAssignor())
        async with consumer:
            self.consumers["loop"] = consumer
            while not self.stop.is_set():
                await consumer.getmany(timeout=0.1, max_records=1)
                await asyncio.sleep(SLOW_S)


def test_member_with_slow_handlers_gets_less_of_a_backlog(kafka_cluster: KafkaCluster) -> None:
    """When the rates are known, a new topic with one empty partition triggers a rebalance."""
    topic, later = unique("backlog"), unique("later")
    kafka_cluster.create_topic(topic, PARTITIONS)
    members = _Members(kafka_cluster, [topic, later])
    try:
        even = dict.fromkeys(("threads", "tasks", "loop"), PARTITIONS // 3)
        wait_for(lambda: len(members.consumers) == 3 and members.counts() == even, "even shares")
        produce(kafka_cluster, topic, [BACKLOG] * PARTITIONS)
        # The first rate is of the first records, which come slowly on a busy machine.
        least = {"threads": 80, "tasks": 20, "loop": 5}
        wait_for(
            lambda: all(members.rate(name) > rate for name, rate in least.items()),
            "the rates are measured",
        )
        assert members.rate("threads") <= HANDLERS / FAST_S
        assert members.rate("tasks") <= HANDLERS / SLOW_S
        assert members.rate("loop") <= 1 / SLOW_S
        kafka_cluster.create_topic(later, 1)
        wait_for(lambda: members.counts()["threads"] > 12, "the fast member gets more", 30)
        shares = members.counts()
    finally:
        members.end()
    assert shares["loop"] <= shares["tasks"] < shares["threads"]
