"""A configuration with `partition.assignment.strategy` joins a group of other clients at work."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from coopgroup import CooperativeConsumer
from coopgroup.testing import KafkaCluster
from tests.support.live_group import unique
from tests.support.waiting import wait_for

PARTITIONS = 4


class _Polled:
    """A consumer, polled on a thread until the end.

    Only that thread uses it: `assignment` of confluent_kafka may wait for ever beside `poll`.
    """

    def __init__(self, consumer: Any, topic: str) -> None:  # noqa: ANN401  (theirs or ours)
        self.consumer = consumer
        self.over = threading.Event()
        self.errors: list[KafkaException] = []
        self.owned: set[int] = set()
        consumer.subscribe([topic], on_assign=self._gain, on_revoke=self._give_up)
        self.thread = threading.Thread(target=self._poll)
        self.thread.start()

    def _poll(self) -> None:
        while not self.over.is_set():
            try:
                self.consumer.poll(0.05)
            except KafkaException as error:
                self.errors.append(error)
                return

    def count(self) -> int:
        return len(self.owned)

    def _gain(self, _: object, partitions: list[TopicPartition]) -> None:
        self.owned |= {one.partition for one in partitions}

    def _give_up(self, _: object, partitions: list[TopicPartition]) -> None:
        self.owned -= {one.partition for one in partitions}

    def end(self) -> None:
        self.over.set()
        self.thread.join(20)
        self.consumer.close()


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_first_member_with_the_same_configuration_joins_a_group_at_work(
    kafka_cluster: KafkaCluster, strategy: str, caplog: pytest.LogCaptureFixture
) -> None:
    """When the other client has left, the group speaks our protocol."""
    topic = unique("swap")
    kafka_cluster.create_topic(topic, PARTITIONS)
    config = {
        **kafka_cluster.client_config(),
        "group.id": topic,
        "session.timeout.ms": 6_000,
        "heartbeat.interval.ms": 300,
        "partition.assignment.strategy": strategy,
    }
    members = [_Polled(Consumer(config), topic)]
    try:
        wait_for(lambda: members[0].count() == PARTITIONS, "the other client owns all")
        members.append(_Polled(CooperativeConsumer(config), topic))
        wait_for(lambda: [one.count() for one in members] == [2, 2], "both have half", 40)
        members.pop(0).end()
        wait_for(lambda: members[0].count() == PARTITIONS, "ours owns all", 40)
        assert members[0].errors == []
    finally:
        for one in members:
            one.end()
    assert "assignment_strategy_read" in caplog.text


def test_member_without_the_protocol_of_the_group_is_told_the_remedy(
    kafka_cluster: KafkaCluster,
) -> None:
    topic = unique("alone")
    kafka_cluster.create_topic(topic, PARTITIONS)
    config = {**kafka_cluster.client_config(), "group.id": topic}
    members = [_Polled(Consumer(config), topic)]
    try:
        wait_for(lambda: members[0].count() == PARTITIONS, "the other client owns all")
        members.append(_Polled(CooperativeConsumer(config), topic))
        wait_for(lambda: members[1].errors != [], "the group refuses the member")
    finally:
        for one in members:
            one.end()
    said = str(members[1].errors[0])
    assert '"coopgroup.protocols": "coopgroup,range"' in said
    assert f"coopgroup group migrate --check {topic}" in said
