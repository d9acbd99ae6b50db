"""`AsyncCooperativeConsumer` on a real broker."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from coopgroup.aio import AsyncCooperativeConsumer, ConsumerRecord, TopicPartition
from coopgroup.testing import KafkaCluster

PARTITIONS = 4
WAIT_S = 60.0
EXAMPLE = Path(__file__).parents[2] / "examples" / "async_service.py"


def settings(cluster: KafkaCluster, group: str, **more: object) -> dict[str, Any]:
    return {
        **cluster.client_config(),
        "group.id": group,
        "auto.offset.reset": "earliest",
        "session.timeout.ms": 6_000,
        "heartbeat.interval.ms": 500,
        **more,
    }


def produce(cluster: KafkaCluster, topic: str, begin: int, end: int) -> None:
    producer = Producer(cluster.client_config())
    for number in range(begin, end):
        producer.produce(topic, f"{number}", partition=number % PARTITIONS)
    assert producer.flush(60) == 0


async def take(consumer: AsyncCooperativeConsumer, count: int) -> list[bytes | None]:
    return [(await asyncio.wait_for(consumer.getone(), WAIT_S)).value for _ in range(count)]


async def until(condition: Any) -> None:  # noqa: ANN401  (a function without arguments)
    deadline_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline_s, "it did not come about"
        await asyncio.sleep(0.01)


def test_consumer_goes_on_where_the_last_one_ended(kafka_cluster: KafkaCluster) -> None:
    """In a second `asyncio.run`; records that were fetched and not handed out come again."""
    kafka_cluster.create_topic("aio-twice", PARTITIONS)
    produce(kafka_cluster, "aio-twice", 0, 40)

    async def part(count: int) -> list[bytes | None]:
        config = settings(kafka_cluster, "aio-twice")
        async with AsyncCooperativeConsumer(config, "aio-twice") as consumer:
            values = await take(consumer, count)
            assert consumer.health().is_ready
            owned = consumer.assignment()
            places = [await consumer.position(one) for one in owned]
            assert sum((await consumer.end_offsets(owned)).values()) == 40
            assert sum(places) >= count
            await until(lambda: sum(consumer.lag(one) or 0 for one in owned) == 40 - sum(places))
            return values

    values = asyncio.run(part(15)) + asyncio.run(part(25))
    assert Counter(values) == Counter(str(number).encode() for number in range(40))


def test_slow_revocation_moves_partitions_without_loss_or_repeat(
    kafka_cluster: KafkaCluster,
) -> None:
    """The retained partitions deliver while a coroutine still stops the revoked ones."""
    topic = "aio-moves"
    kafka_cluster.create_topic(topic, PARTITIONS)
    during: list[ConsumerRecord] = []
    got: list[ConsumerRecord] = []
    revoking = asyncio.Event()

    async def on_revoke(_: object, partitions: list[TopicPartition]) -> None:
        revoking.set()
        before = len(got)
        produce(kafka_cluster, topic, 40, 60)
        await until(lambda: len(got) >= before + 10)  # the others' new records
        await asyncio.sleep(0.5)
        gone = {one.partition for one in partitions}
        during.extend(got[before:])
        assert gone.isdisjoint(one.partition for one in during)
        revoking.clear()

    async def read(consumer: AsyncCooperativeConsumer) -> None:
        async for record in consumer:
            got.append(record)  # noqa: PERF401 -- as users write it

    async def main() -> None:
        config = settings(kafka_cluster, "aio-moves")
        first, second = AsyncCooperativeConsumer(config), AsyncCooperativeConsumer(config, topic)
        first.subscribe([topic], on_revoke=on_revoke)
        async with first:
            tasks = [asyncio.create_task(read(first))]
            produce(kafka_cluster, topic, 0, 40)
            await until(lambda: len(got) == 40)
            async with second:
                tasks.append(asyncio.create_task(read(second)))
                await until(lambda: len(second.assignment()) == PARTITIONS // 2)
                await until(lambda: len(got) == 60)
                first.subscribe([topic])  # the end needs no callback
            await asyncio.sleep(0)
        await asyncio.gather(*tasks)

    asyncio.run(main())
    assert {one.offset for one in during} == {10, 11, 12, 13, 14}
    values = Counter(one.value for one in got)
    assert values == Counter(str(number).encode() for number in range(60))


def test_example_ends_in_order_at_sigterm(kafka_cluster: KafkaCluster) -> None:
    topic = "aio-example"
    kafka_cluster.create_topic(topic, PARTITIONS)
    produce(kafka_cluster, topic, 0, 40)
    bootstrap = kafka_cluster.client_config()["bootstrap.servers"]
    program = [sys.executable, str(EXAMPLE), "--bootstrap", bootstrap, "--topic", topic]
    process = subprocess.Popen([*program, "--group", topic], stdout=subprocess.PIPE, text=True)
    counted = 0
    try:
        assert process.stdout is not None
        while counted < 40:
            counted += int(process.stdout.readline().split()[1])
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=WAIT_S)
    finally:
        process.kill()
    assert process.returncode == 0
    assert sorted(out.splitlines()) == [f"{topic}-{one}: 10 words" for one in range(PARTITIONS)]

    async def committed() -> list[int | None]:
        async with AsyncCooperativeConsumer(settings(kafka_cluster, topic)) as consumer:
            return [await consumer.committed(TopicPartition(topic, one)) for one in range(4)]

    assert asyncio.run(committed()) == [10, 10, 10, 10]
