"""A service for aiokafka runs on coopgroup after its imports and its constructor are changed."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter

import pytest
from confluent_kafka import Producer, TopicPartition

from coopgroup import CooperativeConsumer
from coopgroup.testing import KafkaCluster
from tests.support.live_group import unique

pytestmark = pytest.mark.verify

PARTITIONS = 3
RECORDS = 60
WAIT_S = 60.0

SERVICE = """
import asyncio, signal, sys
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition

bootstrap, topic, group = sys.argv[1:]


class Flush(ConsumerRebalanceListener):
    def __init__(self, consumer, done):
        self.consumer, self.done = consumer, done

    async def on_partitions_assigned(self, assigned):
        for tp in assigned:
            print("assigned", tp.partition, await self.consumer.position(tp), flush=True)

    async def on_partitions_revoked(self, revoked):
        await self.consumer.commit({tp: self.done[tp] for tp in revoked if tp in self.done})


async def main():
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=group,
        enable_auto_commit=False, auto_offset_reset="earliest")
    done = {}
    consumer.subscribe([topic], listener=Flush(consumer, done))
    await consumer.start()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asyncio.current_task().cancel)
    try:
        while True:
            batch = await consumer.getmany(timeout_ms=500, max_records=7)
            for tp, records in batch.items():
                for record in records:
                    assert (record.topic, record.partition) == (tp.topic, tp.partition)
                    print("record", record.value.decode(), record.key, record.offset, flush=True)
                done[tp] = records[-1].offset + 1
            if batch:
                await consumer.commit({tp: done[tp] for tp in batch})
                tp = next(iter(batch))
                assert await consumer.committed(TopicPartition(tp.topic, tp.partition)) == done[tp]
    except asyncio.CancelledError:
        pass
    finally:
        await consumer.stop()


asyncio.run(main())
"""

PORT = {
    "from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition": (
        "from coopgroup.aio import AsyncCooperativeConsumer, RebalanceListener, TopicPartition"
    ),
    "(ConsumerRebalanceListener)": "(RebalanceListener)",
    """AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=group,
        enable_auto_commit=False, auto_offset_reset="earliest")""": (
        """AsyncCooperativeConsumer({"bootstrap.servers": bootstrap, "group.id": group,
        "enable.auto.commit": False, "auto.offset.reset": "earliest"})"""
    ),
}


def ported() -> str:
    program = SERVICE
    for old, new in PORT.items():
        assert program.count(old) == 1
        program = program.replace(old, new)
    return program


def serve(program: str, cluster: KafkaCluster, topic: str, records: int) -> list[str]:
    """Run the service until it has got some records; return the values of all that it got."""
    arguments = [cluster.client_config()["bootstrap.servers"], topic, topic]
    command = [sys.executable, "-c", program, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    values: list[str] = []
    try:
        assert process.stdout is not None
        while len(values) < records:
            line = process.stdout.readline().split()
            assert line, "the service has ended"
            values += line[1:2] if line[0] == "record" else []
        process.send_signal(signal.SIGTERM)
        rest = process.stdout.read()  # not `communicate`, which misses what is buffered
        process.wait(WAIT_S)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 0
    return values + [one.split()[1] for one in rest.splitlines() if one.startswith("record")]


def test_service_of_aiokafka_works_after_two_changes(kafka_cluster: KafkaCluster) -> None:
    """It continues at the offsets that the original has committed, and all are committed."""
    topic = unique("port")
    kafka_cluster.create_topic(topic, PARTITIONS)
    producer = Producer(kafka_cluster.client_config())
    for number in range(RECORDS):
        producer.produce(topic, str(number), key="k", partition=number % PARTITIONS)
    assert producer.flush(60) == 0
    values = serve(SERVICE, kafka_cluster, topic, RECORDS // 2)
    values += serve(ported(), kafka_cluster, topic, max(1, RECORDS - len(values)))
    counts = Counter(map(int, values))
    assert set(counts) == set(range(RECORDS))
    config = {**kafka_cluster.client_config(), "group.id": topic}
    with CooperativeConsumer(config) as consumer:
        places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        committed = sum(max(0, one.offset) for one in consumer.committed(places, 10))
    assert committed == RECORDS
