"""Consumers that an application forgets to close do not keep their partitions."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from coopgroup.testing import KafkaCluster
from tests.support.live_group import Crew, produce, unique

# The consumer and its callback form a reference cycle, as in many applications.
PROGRAM = """
import gc, json, sys
from coopgroup import CooperativeConsumer

def work():
    consumer = CooperativeConsumer(json.loads(sys.argv[1]))
    told = lambda *_: print("told of", len(consumer.assignment()), flush=True)
    consumer.subscribe([sys.argv[2]], on_assign=told, on_revoke=told, on_lost=told)
    while not consumer.assignment():
        consumer.poll(0.1)

work()
gc.collect()
print("dropped", flush=True)
sys.stdin.read()
"""
PATIENT = {"session.timeout.ms": 60_000, "heartbeat.interval.ms": 200}  # longer than any test


def test_partitions_go_to_others_when_a_consumer_is_dropped(
    kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    topic = unique("dropped")
    kafka_cluster.create_topic(topic, 2)
    produce(kafka_cluster, topic, [1, 1])
    with Crew(kafka_cluster, tmp_path) as crew:
        settings = {**kafka_cluster.client_config(), **PATIENT, "group.id": crew.group_id}
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, json.dumps(settings), topic],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "told of 2\n"
            # Another member that joins before would have a callback run in the poll.
            assert process.stdout.readline() == "dropped\n"
            crew.add("b").subscribe([topic])
            crew.until(lambda: crew.share((topic, 2)), "taken over")
            crew.until(lambda: len(crew.messages["b"]) == 2, "its records")
            crew.during(1.0)
            assert crew.share((topic, 2))
            assert process.communicate("", 30)[0] == ""  # no callback ran
        finally:
            process.kill()
            process.wait(30)
    assert process.returncode == 0
