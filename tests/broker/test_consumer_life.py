"""Subscribe, unsubscribe and close, also in the middle of a round."""

import json
import logging
import subprocess
import sys
import time
from pathlib import Path

import pytest

from coopgroup import CooperativeConsumer
from coopgroup.telemetry import MembershipLost
from coopgroup.testing import KafkaCluster
from tests.support.live_group import Crew, coopgroup_threads, produce, unique
from tests.support.waiting import wait_for

FORGETFUL = """
import json, sys, time
from coopgroup import CooperativeConsumer
consumer = CooperativeConsumer(json.loads(sys.argv[1]))
consumer.subscribe([sys.argv[2]])
while not consumer.assignment():
    consumer.poll(0.1)
print("assigned")
"""


def _seconds_to_close(consumer: CooperativeConsumer) -> float:
    began = time.monotonic()
    consumer.close()
    return time.monotonic() - began


def test_the_new_list_counts_when_it_is_subscribed_to_while_running(
    kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    """Partitions in both lists stay without a callback; the others are revoked or assigned."""
    stays, goes, comes = unique("stays"), unique("goes"), unique("comes")
    for topic in (stays, goes, comes):
        kafka_cluster.create_topic(topic, 2)
    heard: list[tuple[str, set[str]]] = []
    with Crew(kafka_cluster, tmp_path) as crew:
        consumer = crew.add("a")

        def subscribe(*topics: str) -> None:
            consumer.subscribe(
                list(topics),
                on_assign=lambda _, parts: heard.append(("assign", {p.topic for p in parts})),
                on_revoke=lambda _, parts: heard.append(("revoke", {p.topic for p in parts})),
            )

        subscribe(stays, goes)
        crew.until(lambda: crew.share((stays, 2), (goes, 2)), "the first list")
        subscribe(stays, comes)
        crew.until(lambda: crew.share((stays, 2), (comes, 2)), "the second list")
        assert heard[0] == ("assign", {stays, goes})
        assert sorted(heard[1:]) == [("assign", {comes}), ("revoke", {goes})]


def test_it_works_again_when_it_subscribes_after_unsubscribing(
    kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    """Unsubscribing leaves the group; later, even after max.poll.interval.ms, it joins again."""
    topic = unique("again")
    kafka_cluster.create_topic(topic, 2)
    heard: list[str] = []
    with Crew(kafka_cluster, tmp_path) as crew:
        consumer = crew.add(
            "a",
            configuration={
                "session.timeout.ms": 1_000,
                "heartbeat.interval.ms": 200,
                "max.poll.interval.ms": 1_000,
            },
        )
        crew.add("b").subscribe([topic])
        crew.until(lambda: crew.counts() == [0, 2], "the other one is first")
        for _ in range(2):
            consumer.subscribe(
                [topic],
                on_assign=lambda *_: heard.append("assign"),
                on_revoke=lambda *_: heard.append("revoke"),
                on_lost=lambda *_: heard.append("lost"),
            )
            crew.until(lambda: crew.counts() == [1, 1], "a fair share")
            consumer.unsubscribe()
            assert consumer.assignment() == []
            crew.members.pop("a")
            crew.until(lambda: crew.counts() == [2], "the other takes over")
            time.sleep(1.2)
            crew.members["a"] = consumer
        assert heard == ["assign", "revoke"] * 2
        assert crew.telemetry("a", MembershipLost) == []


@pytest.mark.verify
@pytest.mark.parametrize("moment", ["before joining", "while working"])
def test_close_is_bounded_when_the_broker_is_gone(tmp_path: Path, moment: str) -> None:
    """Commit, leave and look-ups give up within seconds."""
    with KafkaCluster() as cluster, Crew(cluster, tmp_path) as crew:
        topic = unique("gone")
        cluster.create_topic(topic, 1)
        produce(cluster, topic, [5])
        consumer = crew.add(
            "a", configuration={"session.timeout.ms": 45_000, "socket.timeout.ms": 3_000}
        )
        if moment == "before joining":
            cluster.kill(1)
        consumer.subscribe([topic])
        if moment == "while working":
            crew.until(lambda: len(crew.messages["a"]) == 5, "it works")
            cluster.kill(1)
        crew.during(1.0)
        crew.members.clear()
        assert _seconds_to_close(consumer) < 12.0
    assert coopgroup_threads() == []


@pytest.mark.verify
def test_kafka_python_is_silent_when_a_consumer_closes(
    kafka_cluster: KafkaCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A normal run logs no warning and no error; the lines exist at DEBUG."""
    topic = unique("silent")
    kafka_cluster.create_topic(topic, 1)
    for level, heard in ((logging.INFO, False), (logging.DEBUG, True)):
        caplog.clear()
        with caplog.at_level(level, logger="kafka"), Crew(kafka_cluster, tmp_path) as crew:
            consumer = crew.add("a")
            consumer.subscribe([topic])
            while not consumer.assignment():
                assert consumer.poll(0.1) is None
        loud = [one for one in caplog.records if one.levelno >= logging.WARNING]
        assert bool(loud) is heard


def test_the_process_ends_properly_when_nobody_closes(
    kafka_cluster: KafkaCluster,
) -> None:
    """An application that forgets close() ends with status 0 and without output."""
    topic = unique("forgotten")
    kafka_cluster.create_topic(topic, 4)
    config = kafka_cluster.client_config() | {"group.id": unique("group"), "log_level": "0"}
    for _ in range(3):
        ended = subprocess.run(
            [sys.executable, "-c", FORGETFUL, json.dumps(config), topic],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "assigned\n", "")
        config["group.id"] = unique("group")


def test_other_members_go_on_when_one_closes_in_the_middle_of_a_round(
    kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    """Members join and leave together repeatedly; the group still works."""
    topic = unique("flapping")
    kafka_cluster.create_topic(topic, 6)
    with Crew(kafka_cluster, tmp_path) as crew:
        crew.add("a").subscribe([topic])
        crew.until(lambda: crew.counts() == [6], "the first one works")
        for number in range(4):
            crew.add(f"b{number}").subscribe([topic])
            crew.during(0.15 * number)
            crew.remove(f"b{number}")
        crew.until(lambda: crew.counts() == [6], "the first one has all again")
        wait_for(lambda: len(coopgroup_threads()) <= 4, "only one consumer's threads")
