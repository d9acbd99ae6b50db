"""A topic that does not exist is an event, as in confluent_kafka, and waited for."""

from __future__ import annotations

from contextlib import ExitStack, closing
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message

from coopgroup import CooperativeConsumer
from coopgroup.testing import KafkaCluster
from tests.support.live_group import produce, unique
from tests.support.waiting import wait_for


def config_of(kafka_cluster: KafkaCluster, group: str) -> dict[str, Any]:
    return {
        **kafka_cluster.client_config(),
        "group.id": group,
        "auto.offset.reset": "earliest",
        "topic.metadata.refresh.interval.ms": 300,
    }


def shown(message: Message) -> tuple[object, ...]:
    error = message.error()
    assert error is not None
    return (
        (error.code(), error.str(), error.fatal(), error.retriable()),
        (message.topic(), message.partition(), message.offset()),
        (message.key(), message.value(), message.timestamp()),
    )


@pytest.mark.verify
def test_each_member_gets_the_event_of_confluent_kafka_once(kafka_cluster: KafkaCluster) -> None:
    topics = [unique("misspelt"), unique("misspelt")]
    found: dict[type, list[list[tuple[object, ...]]]] = {}
    for kind in (Consumer, CooperativeConsumer):
        with ExitStack() as opened:
            members = [
                opened.enter_context(closing(kind(config_of(kafka_cluster, f"{kind.__name__}-g"))))
                for _ in range(2)
            ]
            events: list[list[tuple[object, ...]]] = [[], []]
            for member in members:
                member.subscribe(topics)

            def poll(members: list[Any] = members, events: list[Any] = events) -> bool:
                for member, told in zip(members, events, strict=True):
                    told.extend(map(shown, member.consume(10, 0.05)))
                return min(map(len, events)) >= 2

            wait_for(poll, "both members have told both topics")
            for _ in range(15):  # several refreshes later
                poll()
        found[kind] = [sorted(told, key=str) for told in events]
    assert found[CooperativeConsumer] == found[Consumer]
    assert len(found[Consumer][1]) == 2


def test_records_of_a_missing_topic_come_when_it_exists(
    kafka_cluster: KafkaCluster, caplog: pytest.LogCaptureFixture
) -> None:
    topic = unique("misspelt")
    with CooperativeConsumer(config_of(kafka_cluster, topic)) as consumer:
        consumer.subscribe([topic])
        event = consumer.poll(60)
        kafka_cluster.create_topic(topic, 1)
        produce(kafka_cluster, topic, [1])
        record = next(iter(consumer))
    assert event is not None
    assert event.error() is not None
    assert event.error().code() == KafkaError.UNKNOWN_TOPIC_OR_PART  # type: ignore[union-attr]
    assert record.error() is None
    assert caplog.text.count("topics_missing") == 1
