"""Jobs that follow a real broker: killed in the middle, started again, ended by Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from deltalake import DeltaTable

from coopgroup.cli.app import run
from coopgroup.pipeline.schemas import TABLES
from coopgroup.pipeline.spark.session import LIGHT
from coopgroup.pipeline.tables import Tables
from tests.spark.frames import rows
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from coopgroup.testing import KafkaCluster

pytestmark = pytest.mark.verify

TOPIC, GROUP, PARTITIONS = "follow-orders", "follow", 2
RECORDS: Final = 3_000  # more than are committed in the time that the test may take
COMMITS_OF_A_LIFE: Final = 50
LAST: Final = RECORDS - 10
OF_GROUP: Final = ("commits", "generations", "members", "assignments")
WAIT_S: Final = 240.0
LOOK_S: Final = 0.5


class Group:
    """A group of one member that leaves and returns, and commits after each record."""

    def __init__(self, config: dict[str, str]) -> None:
        own = {"group.id": GROUP, "client.id": "f", "enable.auto.commit": False}
        self._config = {**config, **own, "session.timeout.ms": 6_000}
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._live)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def finish(self) -> None:
        """End, with all but ten records of each partition committed."""
        self._is_over.set()
        self._thread.join()

    def _live(self) -> None:
        committed = 0
        while committed < LAST:
            consumer = Consumer(self._config)
            consumer.subscribe([TOPIC])
            for _ in range(COMMITS_OF_A_LIFE):
                consumer.poll(0.2)
                offset = LAST if self._is_over.is_set() else min(committed + 1, LAST - 1)
                if consumer.assignment() and committed < LAST and self._commit(consumer, offset):
                    committed = offset
            consumer.close()

    @staticmethod
    def _commit(consumer: Consumer, offset: int) -> bool:
        places = [TopicPartition(TOPIC, one, offset) for one in range(PARTITIONS)]
        try:
            consumer.commit(offsets=places, asynchronous=False)
        except KafkaException:  # the machine is too busy for heartbeats
            return False
        return True


@contextmanager
def following(folder: Path, bootstrap: str) -> Iterator[subprocess.Popen[bytes]]:
    """Read the history as it grows, in a process."""
    command = [sys.executable, "-m", "coopgroup", "pipeline", "history", "--follow", "1"]
    command += ["--tables", str(folder), "--bootstrap-server", bootstrap]
    for name, value in LIGHT.items():
        command += ["--conf", f"{name}={value}"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@contextmanager
def ctrl_c_when(is_so: Callable[[], bool]) -> Iterator[None]:
    """Send SIGINT to this process as soon as the condition holds, unless the block has ended."""
    has_ended = threading.Event()

    def send() -> None:
        deadline = time.monotonic() + WAIT_S
        while not is_so() and time.monotonic() < deadline:
            if has_ended.wait(LOOK_S):
                return
        os.kill(os.getpid(), signal.SIGINT)

    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(send)
        try:
            yield
        finally:
            has_ended.set()
    sent.result()
    assert is_so()


def commits_of(folder: Path, table: str) -> int:
    """Return the number of commits of a table."""
    return len(list((folder / "v1" / table / "_delta_log").glob("*.json")))


def is_in_a_batch(folder: Path) -> bool:
    """Return whether a batch after the first is being written, and Spark has not noted its end."""
    ended = len(list((folder / "v1" / "checkpoints" / "history" / "commits").glob("[0-9]*")))
    return commits_of(folder, "commits") > ended > 0


def last_lags(folder: Path) -> list[int]:
    """Return the group's newest lags."""
    path = str(folder / "v1" / "lag")
    if not DeltaTable.is_deltatable(path):
        return []
    table = DeltaTable(path).to_pyarrow_table(filters=[("group", "=", GROUP)])
    found: dict[int, list[int]] = {}
    for row in table.to_pylist():
        found.setdefault(row["at_ms"], []).append(row["lag"])
    return found[max(found)] if found else []


def test_what_follows_is_killed_and_goes_on_leaves_the_rows_of_one_run(
    spark: SparkSession,
    kafka_cluster: KafkaCluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Records arrive all the time; no row is missing or repeated, and the lag is correct."""
    config, bootstrap = kafka_cluster.client_config(), kafka_cluster.bootstrap_servers
    kafka_cluster.create_topic(TOPIC, PARTITIONS)
    producer = Producer(config)
    for number in range(RECORDS * PARTITIONS):
        producer.produce(TOPIC, b"x", partition=number % PARTITIONS)
    producer.flush()
    folder, whole = tmp_path / "followed", tmp_path / "whole"
    broker = ["--bootstrap-server", bootstrap]
    with Group(config) as group:
        with following(folder, bootstrap) as process:
            wait_for(
                lambda: is_in_a_batch(folder) or process.poll() is not None,
                timeout_s=WAIT_S,
                poll=lambda: time.sleep(0.05),
            )
            os.killpg(process.pid, signal.SIGKILL)
            assert process.wait() == -signal.SIGKILL
        group.finish()
        with ctrl_c_when(lambda: last_lags(folder) == [RECORDS - LAST] * PARTITIONS):
            # The history, too.
            assert run(["pipeline", "lag", "--follow", "1", "--tables", str(folder), *broker]) == 0
    said, err = capsys.readouterr()
    assert [line.partition(":")[0] for line in said.splitlines()] == ["ends", "lag", "loads"], said
    assert "Traceback" not in err
    assert run(["pipeline", "history", "--tables", str(whole), *broker]) == 0
    followed, once = (Tables(spark=spark, folder=str(one)) for one in (folder, whole))
    for name in OF_GROUP:
        of_group = f"group = '{GROUP}'"
        expected = rows(once.read(name).where(of_group))
        assert rows(followed.read(name).where(of_group)) == expected
        assert len(expected) >= 2
    for name in ("commits", "lag"):
        keys = rows(followed.read(name), *TABLES[name].key)
        assert len(set(keys)) == len(keys)
