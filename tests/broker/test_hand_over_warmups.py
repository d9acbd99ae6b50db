"""A member that hands over works until its next owners are warm, or the time-out is over."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from coopgroup import CooperativeConsumer, SimplePolicy
from coopgroup.policies import Warmup
from coopgroup.telemetry import ResourcesStopped
from coopgroup.testing import KafkaCluster
from tests.support.live_group import Crew, produce, unique

PARTITIONS = 4
RESTORE_S = 3.0
TIMEOUT_MS = 4_000


def _two_members(
    crew: Crew, topic: str, warmup: Warmup
) -> tuple[CooperativeConsumer, CooperativeConsumer]:
    """Return the owner of the partitions 0 and 3, and of 1 and 2; nothing is restored unasked."""
    policy = SimplePolicy(warmup=warmup)
    leaver = crew.add("leaver", policy=policy)
    leaver.subscribe([topic], on_warmup=lambda *_: None)
    crew.until(lambda: len(crew.held("leaver")) == PARTITIONS, "one member owns everything")
    stayer = crew.add("stayer", policy=policy)
    on_disk = [TopicPartition(topic, 1), TopicPartition(topic, 2)]
    stayer.subscribe([topic], on_warmup=lambda *_: None, warm=on_disk)
    crew.until(lambda: crew.counts() == [2, 2], "the partitions with state on disk move")
    assert crew.held("leaver") == [(topic, 0), (topic, 3)]
    return leaver, stayer


def _warmups(consumer: CooperativeConsumer) -> list[int]:
    return sorted(one.partition for one in consumer.warmups())


def test_leaver_keeps_each_partition_until_its_next_owner_is_warm(
    kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    topic = unique("leaves-warm")
    kafka_cluster.create_topic(topic, PARTITIONS)
    with Crew(kafka_cluster, tmp_path) as crew:
        leaver, stayer = _two_members(crew, topic, Warmup())
        stopped = len(crew.telemetry("leaver", ResourcesStopped))
        leaver.hand_over()
        crew.until(lambda: _warmups(stayer) == [0, 3], "the warm-ups of what it has begin")
        until_s = time.monotonic() + RESTORE_S
        while time.monotonic() < until_s:  # the restore takes long, and the leaver works
            got = len(crew.messages["leaver"])
            produce(kafka_cluster, topic, [1, 0, 0, 1])
            crew.until(lambda: len(crew.messages["leaver"]) >= got + 2, "it works on")  # noqa: B023
        assert crew.held("leaver") == [(topic, 0), (topic, 3)]
        assert len(crew.telemetry("leaver", ResourcesStopped)) == stopped
        stayer.warmed_up([TopicPartition(topic, 0)])
        crew.until(lambda: crew.counts() == [1, 3], "only the warm partition moves")
        assert crew.held("leaver") == [(topic, 3)]
        stayer.warmed_up([TopicPartition(topic, 3)])
        crew.until(lambda: crew.counts() == [0, PARTITIONS], "the other one follows")


@pytest.mark.verify
def test_leaver_is_free_after_the_time_out_of_a_restore_that_does_not_end(
    kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    topic = unique("leaves-cold")
    kafka_cluster.create_topic(topic, PARTITIONS)
    with Crew(kafka_cluster, tmp_path) as crew:
        leaver, stayer = _two_members(crew, topic, Warmup(timeout_ms=TIMEOUT_MS))
        leaver.hand_over()
        crew.until(lambda: _warmups(stayer) == [0, 3], "the warm-ups of what it has begin")
        began_s = time.monotonic()
        crew.until(lambda: crew.counts() == [0, PARTITIONS], "the time-out ends the wait")
        assert (time.monotonic() - began_s) * 1_000 > TIMEOUT_MS / 2
