"""A partition with state moves when its new owner is warm, and nothing pauses before."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from confluent_kafka import TopicPartition

from coopgroup import CooperativeConsumer, SimplePolicy
from coopgroup.policies import Warmup
from coopgroup.telemetry import ResourcesStopped, WarmupsChanged
from coopgroup.testing import KafkaCluster
from tests.support.live_group import Crew, produce, unique

PARTITIONS = 4
WAIT_S = 3.0


class _Stateful:
    """An application that notes its callbacks, and restores nothing until it is told."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, list[int]]] = []
        self.kept: list[int] = []

    def subscribe(self, consumer: CooperativeConsumer, topic: str) -> None:
        consumer.subscribe(
            [topic],
            on_assign=lambda _, parts: self._hear("assign", parts),
            on_revoke=self._revoke,
            on_warmup=lambda _, parts: self._hear("warmup", parts),
            on_warmup_cancelled=lambda _, parts: self._hear("cancelled", parts),
        )

    def calls(self, name: str) -> list[int]:
        return sorted(number for one, numbers in self.heard if one == name for number in numbers)

    def _hear(self, name: str, partitions: list[TopicPartition]) -> None:
        self.heard.append((name, sorted(one.partition for one in partitions)))

    def _revoke(self, consumer: CooperativeConsumer, partitions: list[TopicPartition]) -> None:
        self._hear("revoke", partitions)
        self.kept += [one.partition for one in consumer.warmups() if one in partitions]


def test_partition_moves_only_when_its_new_owner_is_warm(
    kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    """`warmed_up` comes from another thread; the old owner keeps the state as a standby."""
    topic = unique("warm")
    kafka_cluster.create_topic(topic, PARTITIONS)
    policy = SimplePolicy(warmup=Warmup(standbys=1))
    with Crew(kafka_cluster, tmp_path) as crew:
        first, second = _Stateful(), _Stateful()
        first.subscribe(crew.add("a", policy=policy), topic)
        crew.until(lambda: crew.counts() == [PARTITIONS], "a owns everything")
        consumer = crew.add("b", policy=policy)
        second.subscribe(consumer, topic)
        crew.until(lambda: len(second.calls("warmup")) == 2, "two warm-ups begin")
        began_s = time.monotonic()
        while time.monotonic() < began_s + WAIT_S:  # the restore takes long: nothing pauses
            produce(kafka_cluster, topic, [1] * PARTITIONS)
            got = len(crew.messages["a"])
            crew.until(lambda: len(crew.messages["a"]) >= got + PARTITIONS, "a works on")  # noqa: B023
        assert crew.counts() == [PARTITIONS, 0]
        assert crew.telemetry("a", ResourcesStopped) == []
        moving = second.calls("warmup")
        reports = [
            threading.Thread(target=consumer.warmed_up, args=([TopicPartition(topic, number)],))
            for number in moving
        ]
        for one in reports:
            one.start()
        crew.until(lambda: crew.counts() == [2, 2], "the partitions move")
        assert second.calls("assign") == moving
        assert second.calls("cancelled") == []
        assert first.calls("revoke") == sorted(first.kept) == moving
        crew.until(lambda: set(first.calls("warmup")) == set(moving), "a keeps what it gave up")
        changes = crew.telemetry("a", WarmupsChanged)
        assert [sorted(one.warm.indices(topic)) for one in changes if one.warm] == [moving]
