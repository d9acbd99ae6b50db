"""The example of a worker that handles records side by side."""

from __future__ import annotations

import signal
import subprocess
import sys
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
# Runs the example. Its first eight orders end when all eight of them are in progress.
PROGRAM = """
import itertools, os, runpy, sys, threading, time
meeting, orders, sleep = threading.Barrier(8), itertools.count(), time.sleep

def work(seconds):
    if seconds == 0.02 and next(orders) < meeting.parties:
        try:
            meeting.wait(30)
        except threading.BrokenBarrierError:
            os._exit(8)
    sleep(seconds)

time.sleep = work
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_worker_bills_orders_side_by_side_and_ends_at_sigterm(kafka_cluster: KafkaCluster) -> None:
    """Those of a customer are billed in order. In the end, all billed orders are committed."""
    topic = unique("orders")
    kafka_cluster.create_topic(topic, PARTITIONS)
    producer = Producer(kafka_cluster.client_config())
    for number in range(ORDERS):
        customer = number % CUSTOMERS
        value = f"{customer} {number}"
        producer.produce(topic, value, key=f"{customer}", partition=customer % PARTITIONS)
    assert producer.flush(60) == 0
    bootstrap = kafka_cluster.client_config()["bootstrap.servers"]
    program = [sys.executable, "-c", PROGRAM, str(EXAMPLE), "--bootstrap", bootstrap]
    worker = subprocess.Popen(
        [*program, "--topic", topic, "--group", topic], stdout=subprocess.PIPE, text=True
    )
    try:
        assert worker.stdout is not None
        lines = [worker.stdout.readline() for _ in range(ENOUGH)]
        worker.send_signal(signal.SIGTERM)
        rest = worker.stdout.read()  # not `communicate`, which misses what is buffered
        worker.wait(WAIT_S)
    finally:
        worker.kill()
        worker.communicate()
    assert worker.returncode == 0
    billed = [tuple(map(int, line.split()[1:])) for line in (*lines, *rest.splitlines())]
    for customer in range(CUSTOMERS):
        numbers = [number for one, number in billed if one == customer]
        assert numbers == sorted(numbers)
    config = {"bootstrap.servers": bootstrap, "group.id": topic}
    with CooperativeConsumer(config) as consumer:
        places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        committed = sum(max(0, one.offset) for one in consumer.committed(places, 10))
    assert committed == len(billed) == len(set(billed))
