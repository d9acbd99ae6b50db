"""The example that joins two topics, whose partitions of one number stay together."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition

from coopgroup import CooperativeConsumer
from coopgroup.testing import KafkaCluster

pytestmark = pytest.mark.verify

EXAMPLE = Path(__file__).parents[2] / "examples" / "paid_orders.py"
TOPICS = ("orders", "payments")
PARTITIONS = 4
ORDERS = 200
WAIT_S = 60.0


@contextmanager
def running(bootstrap: str, lines: list[str]) -> Iterator[subprocess.Popen[str]]:
    """Run the example, which appends to `lines`, and end it as a supervisor does."""
    program = [sys.executable, str(EXAMPLE), "--bootstrap", bootstrap]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        reader = threading.Thread(target=lines.extend, args=(process.stdout,))
        reader.start()
        try:
            yield process
            process.send_signal(signal.SIGTERM)
            assert process.wait(WAIT_S) == 0
        finally:
            process.kill()
            reader.join()


def test_every_order_meets_its_payment_while_processes_come_and_go() -> None:
    """The payments come later than the orders, and meanwhile a second process joins and leaves.

    In the end all is committed: a record that is read again finds its partner again.
    """
    with KafkaCluster() as cluster:
        for topic in TOPICS:
            cluster.create_topic(topic, PARTITIONS)
        producer = Producer(cluster.client_config())
        bootstrap = cluster.client_config()["bootstrap.servers"]

        def produce(topic: str, numbers: range) -> None:
            for number in numbers:
                producer.produce(topic, f"{topic} {number}", key=str(number))
            assert producer.flush(WAIT_S) == 0

        lines: list[str] = []
        produce("orders", range(ORDERS))
        with running(bootstrap, lines):
            with running(bootstrap, lines):
                produce("payments", range(ORDERS // 2))
                _wait_for(ORDERS // 2, lines)
            produce("payments", range(ORDERS // 2, ORDERS))
            _wait_for(ORDERS, lines)
        with CooperativeConsumer({"bootstrap.servers": bootstrap, "group.id": "paid"}) as consumer:
            places = [TopicPartition(topic, n) for topic in TOPICS for n in range(PARTITIONS)]
            committed = sum(one.offset for one in consumer.committed(places, WAIT_S))
    assert committed == 2 * ORDERS
    pairs = [f"order {n}: orders {n}, paid with payments {n}\n" for n in range(ORDERS)]
    assert sorted(set(lines)) == sorted(pairs)


def _wait_for(count: int, lines: list[str]) -> None:
    until_s = time.monotonic() + WAIT_S
    while len(set(lines)) < count and time.monotonic() < until_s:
        time.sleep(0.1)
    assert len(set(lines)) >= count, len(set(lines))
