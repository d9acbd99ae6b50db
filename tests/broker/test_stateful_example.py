"""The worked example with state: exactly-once counts through SIGKILL, warm-ups and standbys."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from coopgroup.testing import KafkaCluster
from tests.support.live_group import unique
from tests.support.waiting import wait_for

pytestmark = pytest.mark.verify

EXAMPLE = "examples.stateful_counts.counts"
ROOT = Path(__file__).parents[2]
PARTITIONS = 6
KEYS = 300
SESSION_MS = 3_000
WAIT_S = 60.0


class CountingGroup:
    """Processes of the example, the records that they count, and their changelog."""

    def __init__(self, kafka: KafkaCluster, folder: Path) -> None:
        self._kafka, self._folder = kafka, folder
        self.topic, self.group = unique("input"), unique("counts")
        self.changelog = f"{self.group}-changelog"
        for topic in (self.topic, self.changelog):
            kafka.create_topic(topic, PARTITIONS)
        self._admin = AdminClient({**kafka.client_config()})
        self._producer = Producer(kafka.client_config())
        self._reader = Consumer({**kafka.client_config(), "group.id": unique("checker")})
        self._reader.assign([TopicPartition(self.changelog, n, 0) for n in range(PARTITIONS)])
        self.counts: dict[str, int] = {}
        self.produced = 0

    def produce(self, count: int) -> None:
        for _ in range(count):
            key = self.produced % KEYS
            self._producer.produce(self.topic, b"x", f"k{key}", partition=key % PARTITIONS)
            self.produced += 1
        assert self._producer.flush(WAIT_S) == 0

    def wait_counted(self) -> None:
        """Wait until the committed counts contain all records."""

        def read() -> None:
            for message in self._reader.consume(1_000, 0.1):
                assert message.error() is None
                self.counts[(message.key() or b"").decode()] = int(message.value() or b"0")

        wait_for(
            lambda: sum(self.counts.values()) >= self.produced,
            f"{self.produced} records counted",
            poll=read,
        )

    def wait_shared(self, *names: str) -> None:
        """Wait until these processes, and no others, have equal shares; no names: no members."""
        share = PARTITIONS // max(1, len(names))

        def shares() -> dict[str, int]:
            found = self._admin.describe_consumer_groups([self.group])[self.group].result()
            return {one.client_id: len(one.assignment.topic_partitions) for one in found.members}

        wait_for(lambda: shares() == dict.fromkeys(names, share), f"shares of {names}")

    @contextmanager
    def running(self, name: str) -> Iterator[subprocess.Popen[bytes]]:
        with subprocess.Popen(
            [
                *(sys.executable, "-m", EXAMPLE, self.topic, "--group", self.group),
                *("--bootstrap", self._kafka.bootstrap_servers, "--name", name),
                *("--state", str(self._folder), "--standbys", "1"),
                *(f"--set=session.timeout.ms={SESSION_MS}", "--set=heartbeat.interval.ms=300"),
            ],
            cwd=ROOT,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    @property
    def right_counts(self) -> dict[str, int]:
        turns, rest = divmod(self.produced, KEYS)
        return {f"k{key}": turns + (key < rest) for key in range(KEYS)}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_counts_when_processes_die_return_and_leave_are_exact(
    kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    """No record is counted twice or never, whatever a killed process was doing."""
    group = CountingGroup(kafka_cluster, tmp_path)
    with group.running("c1"):
        group.produce(3_000)
        group.wait_counted()
        for killed_after_s in (0.0, 0.3):  # within a batch, and between batches
            with group.running("c2") as killed:
                group.wait_shared("c1", "c2")
                group.produce(3_000)
                time.sleep(killed_after_s)
                killed.kill()
            group.produce(600)
            group.wait_counted()  # by c1, which is warm for the partitions of c2
            assert group.counts == group.right_counts
        with group.running("c2"), group.running("c3") as leaving:
            group.wait_shared("c1", "c2", "c3")
            group.produce(600)
            leaving.send_signal(signal.SIGUSR1)
            assert leaving.wait(WAIT_S) == 0
            group.produce(600)
            group.wait_counted()
    # Beside a killed member that still counts, c4 would wait for its return for a minute.
    group.wait_shared()
    with group.running("c4"):  # it has no state, and no member is left
        group.produce(600)
        group.wait_counted()
    assert group.counts == group.right_counts
    stores = {path.name for path in (tmp_path / "c3").iterdir()}
    assert stores, "c3 had no part in it"
