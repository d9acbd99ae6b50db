"""`hand_over`: a member that leaves permanently passes its partitions on while it still works."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from confluent_kafka import Producer

from coopgroup import CooperativeConsumer, StickyAssignor

if TYPE_CHECKING:
    from collections.abc import Callable

    from coopgroup.testing import KafkaCluster

TOPIC = "handed-over"
PARTITIONS = 4
RECORDS = 80
WAIT_S = 20.0


def _consumer(cluster: KafkaCluster, group: str) -> CooperativeConsumer:
    config = {
        **cluster.client_config(),
        "group.id": group,
        "auto.offset.reset": "earliest",
        "session.timeout.ms": 6_000,
        "heartbeat.interval.ms": 500,
    }
    return CooperativeConsumer(config, assignor=StickyAssignor())


def _poll_until(condition: Callable[[], bool], *consumers: CooperativeConsumer) -> list[bytes]:
    """Poll all consumers in turn until the condition holds; return the records."""
    values = []
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "the group did not come so far in time"
        for consumer in consumers:
            message = consumer.poll(0.02)
            if message is not None and message.error() is None:
                values.append(message.value() or b"")
    return values


def test_hand_over_when_another_member_is_there_passes_everything_on(
    kafka_cluster: KafkaCluster,
) -> None:
    """The leaving member works until the other one owns its partitions; no record is repeated."""
    kafka_cluster.create_topic(TOPIC, PARTITIONS)
    producer = Producer(kafka_cluster.client_config())
    leaver = _consumer(kafka_cluster, "hand-over")
    stayer = _consumer(kafka_cluster, "hand-over")
    with stayer:
        with leaver:
            leaver.subscribe([TOPIC])
            stayer.subscribe([TOPIC])
            _poll_until(
                lambda: len(leaver.assignment()) == len(stayer.assignment()) == PARTITIONS // 2,
                leaver,
                stayer,
            )
            leaver.hand_over()
            assert len(leaver.assignment()) == PARTITIONS // 2  # the call alone stops no partition
            for number in range(RECORDS // 2):
                producer.produce(TOPIC, str(number).encode(), partition=number % PARTITIONS)
            producer.flush(10)
            values = _poll_until(lambda: not leaver.assignment(), leaver, stayer)
        values += _poll_until(lambda: len(stayer.assignment()) == PARTITIONS, stayer)
        for number in range(RECORDS // 2, RECORDS):
            producer.produce(TOPIC, str(number).encode(), partition=number % PARTITIONS)
        producer.flush(10)
        values += [
            message.value() or b"" for message in stayer.consume(RECORDS - len(values), WAIT_S)
        ]
        assert sorted(values, key=int) == [str(number).encode() for number in range(RECORDS)]


def test_hand_over_when_subscribed_again_takes_part_again(kafka_cluster: KafkaCluster) -> None:
    topic = f"{TOPIC}-and-back"
    kafka_cluster.create_topic(topic, PARTITIONS)
    with _consumer(kafka_cluster, "hand-over-and-back") as consumer:
        consumer.subscribe([topic])
        _poll_until(lambda: len(consumer.assignment()) == PARTITIONS, consumer)
        member_id = consumer.memberid()
        consumer.hand_over()
        _poll_until(lambda: not consumer.assignment(), consumer)
        consumer.subscribe([topic])
        _poll_until(lambda: len(consumer.assignment()) == PARTITIONS, consumer)
        assert consumer.memberid() == member_id
