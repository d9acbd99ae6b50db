"""Records that arrive while an idle partition has no owner are handed out, also under "latest"."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import OFFSET_END, Consumer, TopicPartition

from coopgroup import CooperativeConsumer
from coopgroup.aio import AsyncCooperativeConsumer
from coopgroup.processing import process
from coopgroup.testing import KafkaCluster
from tests.support.live_group import produce, unique
from tests.support.waiting import wait_for

WAIT_S = 60.0
# Owns the topic until its partitions have begun, or until a number of records has come.
Live = Callable[[dict[str, Any], str, int], int]


def has_begun(consumer: Any) -> bool:  # noqa: ANN401
    owned = consumer.assignment()
    return len(owned) == 2 and all(one.offset >= 0 for one in consumer.position(owned))


def live_by_poll(config: dict[str, Any], topic: str, wanted: int) -> int:
    with CooperativeConsumer(config) as consumer:
        consumer.subscribe([topic], on_assign=lambda one, partitions: one.pause(partitions[:1]))
        count, until_s = 0, time.monotonic() + WAIT_S
        while (count < wanted or not has_begun(consumer)) and time.monotonic() < until_s:
            count += sum(one.error() is None for one in consumer.consume(10, 0.1))
            if wanted:
                consumer.resume(consumer.assignment())
    return count


def live_by_hand(config: dict[str, Any], topic: str, wanted: int) -> int:
    """The application commits everything, and the consumer nothing."""
    with CooperativeConsumer(config | {"enable.auto.commit": False}) as consumer:
        consumer.subscribe([topic], on_revoke=lambda one, _: one.commit(asynchronous=False))
        count, until_s = 0, time.monotonic() + WAIT_S
        while (count < wanted or not has_begun(consumer)) and time.monotonic() < until_s:
            message = consumer.poll(0.1)
            count += message is not None and message.error() is None
    return count


def live_by_stored_offsets(config: dict[str, Any], topic: str, wanted: int) -> int:
    return live_by_poll(config | {"enable.auto.offset.store": False}, topic, wanted)


def live_on_asyncio(config: dict[str, Any], topic: str, wanted: int) -> int:
    async def live() -> int:
        async with AsyncCooperativeConsumer(config, topic) as consumer, asyncio.timeout(WAIT_S):
            count = 0
            while count < wanted or len(consumer.assignment()) < 2:
                found = await consumer.getmany(timeout=0.1)
                count += sum(map(len, found.values()))
            for one in consumer.assignment():
                assert await consumer.position(one) >= 0
        return count

    return asyncio.run(live())


def live_by_process(config: dict[str, Any], topic: str, wanted: int) -> int:
    handled: list[object] = []
    stop = threading.Event()
    with CooperativeConsumer(config) as consumer:
        consumer.subscribe([topic])

        def end() -> None:
            wait_for(lambda: has_begun(consumer) and len(handled) >= wanted)
            stop.set()

        watcher = threading.Thread(target=end)
        watcher.start()
        process(consumer, handled.append, stop=stop)
        watcher.join()
    return len(handled)


@pytest.mark.broker
@pytest.mark.parametrize(
    "live",
    [live_by_poll, live_by_hand, live_by_stored_offsets, live_on_asyncio, live_by_process],
)
def test_no_record_is_skipped_while_an_idle_partition_has_no_owner(
    live: Live, kafka_cluster: KafkaCluster
) -> None:
    topic, group = unique("idle"), unique("g")
    kafka_cluster.create_topic(topic, 2)
    produce(kafka_cluster, topic, [3, 3])  # before the group: "latest" leaves them out
    config = kafka_cluster.client_config() | {"group.id": group}
    assert live(config, topic, 0) == 0
    produce(kafka_cluster, topic, [5, 5])
    assert live(config, topic, 10) == 10


@pytest.mark.broker
def test_seek_to_the_end_can_be_committed_before_the_next_record(
    kafka_cluster: KafkaCluster,
) -> None:
    topic, group = unique("skip"), unique("g")
    kafka_cluster.create_topic(topic, 1)
    produce(kafka_cluster, topic, [7])
    config = kafka_cluster.client_config() | {
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    place = TopicPartition(topic, 0)
    with CooperativeConsumer(config) as consumer:
        consumer.subscribe([topic])
        first = consumer.poll(WAIT_S)
        assert first is not None
        assert first.offset() == 0
        consumer.seek(TopicPartition(topic, 0, OFFSET_END))
        assert [one.offset for one in consumer.position([place])] == [7]
        consumer.commit(asynchronous=False)
        assert [one.offset for one in consumer.committed([place], WAIT_S)] == [7]
        produce(kafka_cluster, topic, [1])
        following = consumer.poll(WAIT_S)
        assert following is not None
        assert following.offset() == 7


@pytest.mark.broker
def test_a_partition_that_appears_later_is_read_from_its_beginning(
    kafka_cluster: KafkaCluster,
) -> None:
    name, group = unique("late"), unique("g")
    kafka_cluster.create_topic(f"{name}-a", 1)
    config = kafka_cluster.client_config() | {
        "group.id": group,
        "topic.metadata.refresh.interval.ms": 1_000,
    }
    with CooperativeConsumer(config) as consumer:
        consumer.subscribe([f"^{name}-.*"])
        wait_for(lambda: consumer.poll(0.1) is None and len(consumer.assignment()) == 1)
        kafka_cluster.create_topic(f"{name}-b", 1)
        kafka_cluster.add_partitions(f"{name}-a", 2)
        produce(kafka_cluster, f"{name}-b", [4])
        produce(kafka_cluster, f"{name}-a", [0, 4])
        found: list[Any] = []

        def got_all() -> bool:
            found.extend(one for one in consumer.consume(10, 0.1) if one.error() is None)
            return len(found) >= 8

        wait_for(got_all)
    assert sorted({(one.topic(), one.offset()) for one in found}) == [
        (f"{name}-{one}", offset) for one in "ab" for offset in range(4)
    ]
    reader = Consumer(config)
    committed = reader.committed([TopicPartition(f"{name}-a", 0)], timeout=WAIT_S)
    reader.close()
    assert [one.offset for one in committed] == [0]
