"""The example of a worker that handles records side by side."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition

from coopgroup import CooperativeConsumer
from coopgroup.testing import KafkaCluster
from tests.support.live_group import unique

pytestmark = pytest.mark.verify

EXAMPLE = Path(__file__).parents[2] / "examples" / "side_by_side.py"
PARTITIONS = 2
ORDERS = 300
CUSTOMERS = 20
ENOUGH = 150
WAIT_S = 60.0


def test_worker_is_faster_than_its_orders_and_ends_at_sigterm(kafka_cluster: KafkaCluster) -> None:
    """One at a time, 150 orders of 20 ms take 3 s. In the end, all billed orders are committed."""
    topic = unique("orders")
    kafka_cluster.create_topic(topic, PARTITIONS)
    producer = Producer(kafka_cluster.client_config())
    for number in range(ORDERS):
        customer = number % CUSTOMERS
        value = f"{customer} {number}"
        producer.produce(topic, value, key=f"{customer}", partition=customer % PARTITIONS)
    assert producer.flush(60) == 0
    bootstrap = kafka_cluster.client_config()["bootstrap.servers"]
    program = [sys.executable, str(EXAMPLE), "--bootstrap", bootstrap, "--topic", topic]
    worker = subprocess.Popen([*program, "--group", topic], stdout=subprocess.PIPE, text=True)
    try:
        assert worker.stdout is not None
        lines = [worker.stdout.readline()]
        began_s = time.monotonic()
        lines += [worker.stdout.readline() for _ in range(ENOUGH)]
        took_s = time.monotonic() - began_s
        worker.send_signal(signal.SIGTERM)
        rest = worker.stdout.read()  # not `communicate`, which misses what is buffered
        worker.wait(WAIT_S)
    finally:
        worker.kill()
        worker.communicate()
    assert worker.returncode == 0
    assert took_s < 0.02 * ENOUGH
    billed = [tuple(map(int, line.split()[1:])) for line in (*lines, *rest.splitlines())]
    for customer in range(CUSTOMERS):
        numbers = [number for one, number in billed if one == customer]
        assert numbers == sorted(numbers)
    config = {"bootstrap.servers": bootstrap, "group.id": topic}
    with CooperativeConsumer(config) as consumer:
        places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        committed = sum(max(0, one.offset) for one in consumer.committed(places, 10))
    assert committed == len(billed) == len(set(billed))
