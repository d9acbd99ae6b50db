"""Close without a broker, and no close at all."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from coopgroup import CooperativeConsumer
from coopgroup.testing import KafkaCluster
from tests.support.live_group import Crew, produce, unique

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


@pytest.mark.verify
@pytest.mark.parametrize("moment", ["before joining", "while working"])
def test_close_is_bounded_when_the_broker_is_gone(
    tmp_path: Path, moment: str, own_threads: Callable[[], list[str]]
) -> None:
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
    assert own_threads() == []


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
