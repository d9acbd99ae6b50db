"""A topic is deleted and made again under a running consumer, and logs that end in markers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from coopgroup import CooperativeConsumer
from coopgroup.aio import AsyncCooperativeConsumer, TopicPartition
from coopgroup.testing import KafkaCluster
from tests.support.live_group import produce, unique
from tests.support.waiting import wait_for

PARTITIONS = 3
WAIT_S = 60.0
SOON_MS = 100
# Reads records until a number of them has come, then makes the topic again, and reads the others.
Read = Callable[[dict[str, Any], str, Callable[[], None]], int]


def read_in_batches(config: dict[str, Any], topic: str, between: Callable[[], None]) -> int:
    with CooperativeConsumer(config) as consumer:
        consumer.subscribe([topic])
        count, until_s = 0, time.monotonic() + WAIT_S
        while count < 90 and time.monotonic() < until_s:
            before = count
            count += sum(one.error() is None for one in consumer.consume(100, 0.5))
            if before < 60 <= count:
                if config["auto.commit.interval.ms"] == SOON_MS:  # nobody polls during `between`
                    consumer.commit(asynchronous=False)
                between()
    return count


def read_with_asyncio(config: dict[str, Any], topic: str, between: Callable[[], None]) -> int:
    async def read() -> int:
        async with AsyncCooperativeConsumer(config, topic) as consumer, asyncio.timeout(WAIT_S):
            for count in range(1, 91):
                await consumer.getone()
                if count == 60:
                    await asyncio.to_thread(between)
        return count

    return asyncio.run(read())


@pytest.mark.parametrize(
    ("read", "commits_before"),
    [
        (read_in_batches, False),
        pytest.param(read_in_batches, True, marks=pytest.mark.verify),
        pytest.param(read_with_asyncio, True, marks=pytest.mark.verify),
    ],
)
def test_records_of_a_topic_that_was_made_again_are_neither_lost_nor_skipped(
    kafka_cluster: KafkaCluster, read: Read, *, commits_before: bool
) -> None:
    """A commit of the higher old position lost 10 of 75 records."""
    topic, group = unique("again"), unique("group")
    kafka_cluster.create_topic(topic, PARTITIONS)
    produce(kafka_cluster, topic, [20] * PARTITIONS)
    config: dict[str, Any] = {
        **kafka_cluster.client_config(),
        "group.id": group,
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": SOON_MS if commits_before else 60_000,
    }

    def committed() -> list[int]:
        reader = Consumer({**kafka_cluster.client_config(), "group.id": group})
        asked = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        found = reader.committed(asked, timeout=WAIT_S)
        reader.close()
        return [one.offset for one in found]

    def make_again() -> None:
        if commits_before:
            wait_for(lambda: committed() == [20] * PARTITIONS, "the old offsets", WAIT_S)
        admin = AdminClient(dict(kafka_cluster.client_config()))
        admin.delete_topics([topic])[topic].result()
        wait_for(lambda: topic not in admin.list_topics().topics, "the end of the topic", WAIT_S)
        kafka_cluster.create_topic(topic, PARTITIONS)
        produce(kafka_cluster, topic, [10] * PARTITIONS)

    assert read(config, topic, make_again) == 90
    assert committed() == [10] * PARTITIONS


def test_asyncio_passes_the_markers_at_the_end_of_a_log(kafka_cluster: KafkaCluster) -> None:
    """A restore loop `while position < end` never ended."""
    topic = unique("transactions")
    kafka_cluster.create_topic(topic, 1)
    config = kafka_cluster.client_config()
    producer = Producer({**config, "transactional.id": topic})
    producer.init_transactions()
    for _ in range(2):
        producer.begin_transaction()
        producer.produce(topic, b"one")
        producer.commit_transaction()
    place = TopicPartition(topic, 0)

    async def restore() -> tuple[int | None, int | None]:
        settings = {**config, "group.id": topic, "auto.offset.reset": "earliest"}
        async with AsyncCooperativeConsumer(settings, topic) as consumer, asyncio.timeout(WAIT_S):
            await consumer.getmany(timeout=WAIT_S)
            end = (await consumer.end_offsets([place]))[place]
            while await consumer.position(place) < end:
                await consumer.getmany(timeout=0.1)
            while consumer.lag(place) != 0:
                await consumer.getmany(timeout=0.1)
            await consumer.commit()
            return end, await consumer.committed(place)

    assert asyncio.run(restore()) == (4, 4)
