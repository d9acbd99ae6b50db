"""Processing on a real broker: processes come, go and are killed, and no record is skipped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

import pytest
from confluent_kafka import Producer, TopicPartition

from coopgroup import CooperativeConsumer
from coopgroup.processing import DeadLetter, Retry, process
from coopgroup.testing import KafkaCluster
from tests.support.growing_file import whole_lines
from tests.support.live_group import unique
from tests.support.waiting import wait_for

PARTITIONS = 6
RECORDS = 6_000
KEYS = 50
WAIT_S = 60.0

# Writes each record to a file before it counts as handled; some fail at first. Each process has a
# file of its own: a kill may tear its last line, and the next process must not continue that line.
PROGRAM = """
import asyncio, json, os, random, sys, time
from coopgroup import CooperativeConsumer
from coopgroup.aio import AsyncCooperativeConsumer
from coopgroup import processing
from coopgroup.processing import Retry

config, topic, folder = json.loads(sys.argv[1]), *sys.argv[2:]
out = os.open(f"{folder}/{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

def write(*place):
    if random.random() < 0.01:
        raise OSError("try again")
    os.write(out, b"%d %d %d %s\\n" % (time.monotonic_ns(), *place))

def run(consumer, handle, **more):
    processing.run(consumer, [topic], handle, order="key", stop_timeout_ms=10_000,
        on_error=Retry(attempts=9, backoff_ms=5), **more)
"""
WORKER = """
def handle(record):
    time.sleep(0.01)
    write(record.partition(), record.offset(), record.key())

run(CooperativeConsumer(config), handle, workers=8)
print("closed", flush=True)
"""
ASYNC_WORKER = """
async def handle(record):
    await asyncio.sleep(0.01)
    write(record.partition, record.offset, record.key)

run(AsyncCooperativeConsumer(config), handle, concurrency=8)
print("closed", flush=True)
"""
WORKERS = pytest.mark.parametrize(
    "program",
    [WORKER, pytest.param(ASYNC_WORKER, marks=pytest.mark.verify)],
    ids=["threads", "tasks"],
)


def fill(cluster: KafkaCluster, topic: str, count: int) -> None:
    cluster.create_topic(topic, PARTITIONS)
    producer = Producer(cluster.client_config())
    for number in range(count):
        producer.produce(topic, key=str(number % KEYS), value=str(number))
    assert producer.flush(60) == 0


def config(cluster: KafkaCluster, group: str) -> dict[str, object]:
    return {
        **cluster.client_config(),
        "group.id": group,
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": 200,
        "session.timeout.ms": 6_000,
        "heartbeat.interval.ms": 300,
    }


class Workers:
    """Processes of one group, and what they have written."""

    def __init__(self, cluster: KafkaCluster, topic: str, program: str, folder: Path) -> None:
        settings = json.dumps(config(cluster, topic))
        self.arguments = [PROGRAM + program, settings, topic, str(folder)]
        self.folder = folder
        folder.mkdir()
        self.running: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.running:
            worker.kill()
            worker.communicate()

    def start(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", *self.arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ)
        self.running.append(process)
        return process

    def handled(self) -> list[tuple[int, int, int]]:
        """Return partition, offset and key of the handled records, by time."""
        rows = [line.split() for path in self.folder.iterdir() for line in whole_lines(path)]
        moments = sorted(tuple(map(int, row)) for row in rows)
        return [(number, offset, key) for _, number, offset, key in moments]

    def at_work(self) -> int:
        """Return how many processes have handled a record; they have their signal handlers."""
        return sum(bool(whole_lines(path)) for path in self.folder.iterdir())

    def distinct(self) -> int:
        return len({(number, offset) for number, offset, _ in self.handled()})


@WORKERS
def test_no_record_is_skipped_when_a_process_is_killed(
    kafka_cluster: KafkaCluster, tmp_path: Path, program: str
) -> None:
    topic = unique("killed")
    fill(kafka_cluster, topic, RECORDS)
    with Workers(kafka_cluster, topic, program, tmp_path / "handled") as group:
        first, second = group.start(), group.start()
        wait_for(lambda: group.at_work() == 2)
        first.kill()
        group.start()
        wait_for(lambda: group.distinct() == RECORDS)

        handled = group.handled()
        assert len(handled) < 2 * RECORDS
        second.send_signal(signal.SIGTERM)
        assert second.communicate(timeout=WAIT_S)[0] == "closed\n"
        assert second.returncode == 0


@WORKERS
def test_rolling_restart_repeats_nothing_and_keeps_the_order_of_keys(
    kafka_cluster: KafkaCluster, tmp_path: Path, program: str
) -> None:
    topic = unique("rolled")
    fill(kafka_cluster, topic, RECORDS)
    with Workers(kafka_cluster, topic, program, tmp_path / "handled") as group:
        old = [group.start(), group.start()]
        wait_for(lambda: group.at_work() == 2)
        for worker in old:
            group.start()
            worker.send_signal(signal.SIGTERM)
            assert worker.communicate(timeout=WAIT_S)[0] == "closed\n"
        wait_for(lambda: group.distinct() == RECORDS)

        handled = group.handled()
        assert len(handled) == RECORDS
        for key in range(KEYS):
            offsets = [offset for _, offset, its_key in handled if its_key == key]
            assert offsets == sorted(offsets)


def test_dead_letters_that_are_too_large_for_their_topic_leave_something_out(
    kafka_cluster: KafkaCluster,
) -> None:
    """A broker refuses whole batches, so letters that fit are refused with them at first."""
    topic, failed = "processing-large", "processing-large-records"
    kafka_cluster.create_topic(topic, PARTITIONS)
    kafka_cluster.create_topic(failed, 1, config={"max.message.bytes": "20000"})
    producer = Producer(kafka_cluster.client_config() | {"linger.ms": 50})
    sizes = [10, 9_000, 9_000, 9_000, 9_000, 9_000, 18_000, 50_000]
    for at, size in enumerate(sizes):
        producer.produce(topic, bytes(size), partition=at % PARTITIONS)
    assert producer.flush(60) == 0

    def handle(message: object) -> None:
        raise ValueError("\udcff" * 100_000, message)

    with CooperativeConsumer(config(kafka_cluster, topic)) as consumer:
        consumer.subscribe([topic])
        places = [TopicPartition(topic, number) for number in range(PARTITIONS)]

        class Stop:
            def is_set(self) -> bool:
                found = consumer.committed(places, 10)
                return sum(max(one.offset, 0) for one in found) == len(sizes)

        process(consumer, handle, on_error=DeadLetter(producer, failed), stop=Stop())

    with CooperativeConsumer(config(kafka_cluster, failed)) as consumer:
        consumer.subscribe([failed])
        letters = consumer.consume(len(sizes), 20)
        found = sorted((len(one.value() or b""), _header(one, "left_out")) for one in letters)
        whole = [(size, b"") for size in sizes[:-2]]
        assert found == [(0, b"key, value, headers"), *whole, (18_000, b"error")]
        assert {_header(one, "topic") for one in letters} == {topic.encode()}


def _header(message: Any, name: str) -> bytes:  # noqa: ANN401
    value: bytes = dict(message.headers()).get(f"coopgroup.{name}", b"")
    return value


def test_dead_letters_arrive_and_their_offsets_are_passed(kafka_cluster: KafkaCluster) -> None:
    topic, failed = "processing-failed", "processing-failed-records"
    fill(kafka_cluster, topic, 100)
    kafka_cluster.create_topic(failed, 1)
    handled: list[int] = []

    def handle(message: object) -> None:
        value = int(message.value())  # type: ignore[attr-defined]
        if value % 10 == 0:
            raise ValueError(value)
        handled.append(value)

    class Stop:
        def is_set(self) -> bool:
            return len(handled) == 90

    letters = Retry(
        attempts=2,
        backoff_ms=1,
        otherwise=DeadLetter(Producer(kafka_cluster.client_config()), failed),
    )
    with CooperativeConsumer(config(kafka_cluster, topic)) as consumer:
        consumer.subscribe([topic])
        process(consumer, handle, on_error=letters, stop=Stop())
        places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        consumer.commit(asynchronous=False)
        committed = sum(one.offset for one in consumer.committed(places, 10))
    assert committed == 100

    with CooperativeConsumer(config(kafka_cluster, failed)) as consumer:
        consumer.subscribe([failed])
        found = consumer.consume(10, 20)
        assert sorted(int(one.value() or b"") for one in found) == list(range(0, 100, 10))
        headers: Any = dict(found[0].headers() or [])
        assert headers["coopgroup.topic"] == topic.encode()
        assert headers["coopgroup.error"].startswith(b"ValueError: ")
