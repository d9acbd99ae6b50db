"""FastStream on a real broker."""

import asyncio

from confluent_kafka import Consumer, Producer, TopicPartition
from faststream import AckPolicy

from coopgroup.integrations.faststream import KafkaBroker
from coopgroup.testing import KafkaCluster


def test_acknowledgement_policies_commit_what_was_handled(kafka_cluster: KafkaCluster) -> None:
    """A record that failed returns; what was acknowledged last is committed before the end."""
    topic, nack, batch = "faststream-acks", "faststream-nack", "faststream-batch"
    kafka_cluster.create_topic(topic, partitions=2)
    producer = Producer(kafka_cluster.client_config())
    for number in range(20):
        producer.produce(topic, f"order {number}", partition=number % 2)
    assert producer.flush(60) == 0
    broker = KafkaBroker(kafka_cluster.bootstrap_servers, hand_over_timeout_ms=1_000, logger=None)
    handled: list[str] = []
    batches: list[int] = []

    @broker.subscriber(
        topic, group_id=nack, auto_offset_reset="earliest", ack_policy=AckPolicy.NACK_ON_ERROR
    )
    async def bill(order: str) -> None:
        handled.append(order)
        if handled.count(order) < 2 and order in {"order 6", "order 19"}:
            raise ValueError(order)

    @broker.subscriber(
        topic, group_id=batch, auto_offset_reset="earliest", ack_policy=AckPolicy.ACK, batch=True
    )
    async def audit(orders: list[str]) -> None:
        batches.append(len(orders))

    async def play() -> None:
        async with broker:
            await broker.start()
            async with asyncio.timeout(30):
                while len(handled) < 22 or sum(batches) < 20:  # noqa: ASYNC110 - fails in time
                    await asyncio.sleep(0.02)

    asyncio.run(play())
    assert sorted(handled) == sorted([*(f"order {n}" for n in range(20)), "order 6", "order 19"])
    for group in (nack, batch):
        reader = Consumer(kafka_cluster.client_config() | {"group.id": group})
        found = reader.committed([TopicPartition(topic, 0), TopicPartition(topic, 1)], 10)
        reader.close()
        assert [one.offset for one in found] == [10, 10], group
