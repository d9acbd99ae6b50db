"""The bell between rare heartbeats: members hear of a round ahead of their heartbeats."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from coopgroup.cli import app
from coopgroup.kafka.config.connection_settings import read_connection_settings
from coopgroup.kafka.config.keys import BELL_TOPIC
from coopgroup.kafka.membership.bell import TopicBell
from coopgroup.kafka.rpc.transport import GroupTransport
from coopgroup.testing import KafkaCluster
from tests.support.live_group import Crew, unique
from tests.support.waiting import wait_for

RARE = {"session.timeout.ms": 45_000, "heartbeat.interval.ms": 15_000}
PARTITIONS = 8
# Without a bell, each of these takes up to 15 s, and 7.5 s on average.
CHANGE_S_MAX = 2.5
REPEATS = 3


@pytest.fixture
def bell(kafka_cluster: KafkaCluster, capsys: pytest.CaptureFixture[str]) -> str:
    """Return a topic made by `coopgroup setup`."""
    topic = unique("bell")
    arguments = ["--bell-topic", topic, "--telemetry-topic", f"{topic}-telemetry"]
    arguments += ["--bootstrap-server", kafka_cluster.bootstrap_servers]
    assert app.run(["setup", *arguments]) == 0
    said = capsys.readouterr().out
    assert f"{topic} is created\n{topic}-telemetry is created\n" in said
    assert f"--operation Read --operation Write --topic {topic}\n" in said
    assert app.run(["setup", *arguments]) == 0
    assert f"{topic} exists already\n{topic}-telemetry exists" in capsys.readouterr().out
    return topic


@pytest.mark.verify
def test_joins_and_leaves_do_not_wait_for_heartbeats(
    kafka_cluster: KafkaCluster, tmp_path: Path, bell: str
) -> None:
    topic = unique("T")
    kafka_cluster.create_topic(topic, PARTITIONS)
    with Crew(kafka_cluster, tmp_path) as crew:

        def join(name: str) -> None:
            consumer = crew.add(name, configuration=RARE | {"coopgroup.bell.topic": bell})
            consumer.subscribe([topic])

        join("a")
        crew.until(lambda: crew.counts() == [PARTITIONS], "the first one works")
        begun_s = time.monotonic()
        for number in range(REPEATS):
            join(f"b{number}")
            crew.until(lambda: crew.share((topic, PARTITIONS)), "a share for each")
            crew.remove(f"b{number}")
            crew.until(lambda: crew.share((topic, PARTITIONS)), "all for the first")
        assert time.monotonic() - begun_s < 2 * REPEATS * CHANGE_S_MAX


@contextmanager
def hung(cluster: KafkaCluster, topic: str, heard: Callable[[], None]) -> Iterator[TopicBell]:
    """Run a bell of the group g."""
    warnings: list[str] = []
    transport = GroupTransport(
        read_connection_settings(cluster.client_config()), lambda error: warnings.append(str(error))
    )
    bell = TopicBell(
        transport=transport,
        topic=topic,
        group_id="g",
        heard=heard,
        warn=lambda event, **_: warnings.append(event),
        timeout_ms=5_000,
    )
    transport.start()
    try:
        bell.start()
        yield bell
        assert warnings == []
    finally:
        transport.close()


def test_bell_of_a_test_cluster_follows_the_leader_of_its_partition() -> None:
    heard = threading.Event()
    with (
        KafkaCluster(3) as cluster,
        hung(cluster, BELL_TOPIC, lambda: None) as ringing,
        hung(cluster, BELL_TOPIC, heard.set),
    ):

        def rings() -> bool:
            ringing.ring()
            return heard.wait(0.2)

        wait_for(rings, "a first ring")
        heard.clear()
        cluster.stop_broker(cluster.leader_of(BELL_TOPIC, 0))
        ringing.ring()  # once: a ring that meets no leader must not be lost
        wait_for(heard.is_set, "the ring through the new leader")
