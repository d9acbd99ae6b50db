"""Two services of FastStream on a real broker: nothing is lost, what stays never pauses."""

import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from attrs import define, field, frozen
from confluent_kafka import Consumer, Producer, TopicPartition
from faststream import AckPolicy

from coopgroup import CooperativeConsumer, SimplePolicy, Warmup
from coopgroup.integrations.faststream import GroupOptions, KafkaBroker
from coopgroup.testing import KafkaCluster
from tests.support.live_group import NOISE_MS, Crew, unique
from tests.support.waiting import wait_for

PARTITIONS = 4
SESSION_MS = 6_000
# The services and the producer are slow on a busy machine, so this only excludes a long pause. What
# the callbacks get is exact.
PAUSE_MS_MAX = 2_000
SERVICE = Path(__file__).parents[1] / "support" / "faststream_service.py"


@frozen
class Handled:
    """A record that a handler got.

    Attributes:
        delay_ms: the time since it was produced: a pause delays the records that arrive meanwhile.
    """

    at_s: float
    delay_ms: float
    service: str
    partition: int
    offset: int


@define(eq=False)
class Stage:
    """Services that a test starts and ends, a producer that never rests, and what was handled."""

    cluster: KafkaCluster
    topic: str
    folder: Path
    cleanup: ExitStack = field(factory=ExitStack)
    sent: dict[int, int] = field(factory=dict)
    _running: dict[str, subprocess.Popen[bytes]] = field(factory=dict)
    _ended: threading.Event = field(factory=threading.Event)

    def start(self, name: str) -> None:
        command = [sys.executable, str(SERVICE), self.cluster.bootstrap_servers, self.topic, name]
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log)
        self.cleanup.callback(process.wait, 30)
        self.cleanup.callback(process.kill)
        self._running[name] = process

    def end(self, name: str, how: signal.Signals) -> int:
        process = self._running[name]
        process.send_signal(how)
        return process.wait(30)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def handled(self) -> list[Handled]:
        rows = [
            Handled(*json.loads(line))
            for path in self.folder.glob("*.rows")
            for line in path.read_text().splitlines()
            if line.endswith("]")
        ]
        return sorted(rows, key=lambda row: row.at_s)

    def wait_owners(self, *shares: tuple[str, int]) -> dict[int, str]:
        """Wait until each service keeps up with its number of partitions; return the owners."""
        owners: dict[int, str] = {}

        def is_shared() -> bool:
            since_s = time.monotonic() - 0.5
            recent = [row for row in self.handled() if row.at_s >= since_s]
            owners.update({row.partition: row.service for row in recent})
            found = [*owners.values()]
            keeps_up = all(row.delay_ms < NOISE_MS for row in recent)
            return keeps_up and {*shares} == {(name, found.count(name)) for name in found}

        wait_for(is_shared)
        return owners

    def pause_ms(self, partitions: set[int], since_s: float) -> float:
        """Return the longest delay of a record of these partitions."""
        rows = [row for row in self.handled() if row.partition in partitions]
        return max(row.delay_ms for row in rows if row.at_s >= since_s)

    def given_up(self, name: str, since_s: float) -> set[int]:
        """Return the partitions that a service gave up, or lost, since then."""
        lines = (self.folder / f"{name}.gives").read_text().splitlines()
        calls = [json.loads(line) for line in lines]
        return {one for at_s, partitions in calls if at_s >= since_s for one in partitions}

    def produce(self) -> None:
        producer = Producer(self.cluster.client_config())
        while not self._ended.is_set():
            for partition in range(PARTITIONS):
                producer.produce(self.topic, "an order", partition=partition)
                self.sent[partition] = self.sent.get(partition, 0) + 1
            assert producer.flush(10) == 0
            time.sleep(0.08)

    def stop_producer(self) -> None:
        self._ended.set()


@pytest.fixture
def stage(kafka_cluster: KafkaCluster, tmp_path: Path) -> Iterator[Stage]:
    topic = "faststream-services"
    kafka_cluster.create_topic(topic, partitions=PARTITIONS)
    stage = Stage(kafka_cluster, topic, tmp_path)
    producer = threading.Thread(target=stage.produce)
    with stage.cleanup:
        producer.start()
        stage.cleanup.callback(producer.join)
        stage.cleanup.callback(stage.stop_producer)
        yield stage


@pytest.mark.verify
def test_services_lose_nothing_and_what_stays_never_pauses(stage: Stage) -> None:
    stage.start("s1")
    stage.wait_owners(("s1", 4))
    began_s = time.monotonic()
    stage.start("s2")
    owners = stage.wait_owners(("s1", 2), ("s2", 2))
    stayed = {partition for partition, name in owners.items() if name == "s1"}
    assert stage.end("s2", signal.SIGTERM) == 0
    stage.wait_owners(("s1", 4))
    stayed_ms = stage.pause_ms(stayed, began_s)
    gave_up = stage.given_up("s1", began_s)
    moved_ms = stage.pause_ms({*owners} - stayed, began_s)
    before_death = len(stage.handled())

    stage.start("s3")
    owners = stage.wait_owners(("s1", 2), ("s3", 2))
    of_s1 = {partition for partition, name in owners.items() if name == "s1"}
    began_s = time.monotonic()
    stage.end("s3", signal.SIGKILL)
    stage.wait_owners(("s1", 4))
    survivor_ms = stage.pause_ms(of_s1, began_s)
    assert stage.given_up("s1", began_s) == set()
    stage.stop_producer()

    def is_complete() -> bool:
        found = {(row.partition, row.offset) for row in stage.handled()}
        return len(found) == sum(stage.sent.values())

    wait_for(is_complete)
    assert stage.end("s1", signal.SIGTERM) == 0
    assert len(gave_up) == PARTITIONS / 2
    assert not gave_up & stayed
    assert stayed_ms < PAUSE_MS_MAX
    assert survivor_ms < PAUSE_MS_MAX
    assert moved_ms < SESSION_MS / 2  # the leaver handed over
    first = [(row.partition, row.offset) for row in stage.handled()[:before_death]]
    assert len({*first}) == len(first)  # also at the join and the leave no record came twice
    assert "Traceback" not in stage.log("s1") + stage.log("s2")


def test_partition_moves_to_a_service_when_it_is_warm(
    kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    topic = unique("warm")
    kafka_cluster.create_topic(topic, PARTITIONS)
    policy = SimplePolicy(warmup=Warmup())
    warming: list[TopicPartition] = []
    report: list[Callable[[list[TopicPartition]], None]] = []
    assigned: list[int] = []

    def warm_up(consumer: CooperativeConsumer, partitions: list[TopicPartition]) -> None:
        warming.extend(partitions)
        report.append(consumer.warmed_up)

    with Crew(kafka_cluster, tmp_path) as crew:
        crew.add("a", policy=policy).subscribe([topic], on_warmup=lambda *_: None)
        crew.until(lambda: len(crew.held("a")) == PARTITIONS, "a owns everything")
        options = GroupOptions(policy=policy, on_warmup=warm_up)
        broker = KafkaBroker(
            kafka_cluster.bootstrap_servers,
            groups={crew.group_id: options},
            hand_over_timeout_ms=0,
            logger=None,
        )

        @broker.subscriber(
            topic,
            group_id=crew.group_id,
            on_assign=lambda _, some: assigned.extend(one.partition for one in some),
        )
        async def handle(_: str) -> None: ...

        async def until(condition: Callable[[], bool]) -> None:
            async with asyncio.timeout(30):
                while not condition():
                    crew.poll()
                    await asyncio.sleep(0.02)

        async def play() -> None:
            async with broker:
                await broker.start()
                await until(lambda: len(warming) == PARTITIONS // 2)
                assert (assigned, crew.counts()) == ([], [PARTITIONS])
                report[0](warming)
                moving = sorted(one.partition for one in warming)
                await until(lambda: sorted(assigned) == moving)
                assert crew.counts() == [PARTITIONS - len(moving)]

        asyncio.run(play())


def test_acknowledgement_policies_commit_what_was_handled(kafka_cluster: KafkaCluster) -> None:
    """A record that failed returns; what was acknowledged last is committed before the end."""
    topic = "faststream-acks"
    kafka_cluster.create_topic(topic, partitions=2)
    producer = Producer(kafka_cluster.client_config())
    for number in range(20):
        producer.produce(topic, f"order {number}", partition=number % 2)
    assert producer.flush(10) == 0
    broker = KafkaBroker(kafka_cluster.bootstrap_servers, logger=None)
    handled: list[str] = []
    batches: list[int] = []

    @broker.subscriber(
        topic, group_id="nack", auto_offset_reset="earliest", ack_policy=AckPolicy.NACK_ON_ERROR
    )
    async def bill(order: str) -> None:
        handled.append(order)
        if handled.count(order) < 2 and order in {"order 6", "order 19"}:
            raise ValueError(order)

    @broker.subscriber(
        topic, group_id="batch", auto_offset_reset="earliest", ack_policy=AckPolicy.ACK, batch=True
    )
    async def audit(orders: list[str]) -> None:
        batches.append(len(orders))

    async def play() -> None:
        async with broker:
            await broker.start()
            async with asyncio.timeout(30):
                while len(handled) < 22 or sum(batches) < 20:  # noqa: ASYNC110 - fails in time
                    await asyncio.sleep(0.02)

    asyncio.run(play())
    assert sorted(handled) == sorted([*(f"order {n}" for n in range(20)), "order 6", "order 19"])
    for group in ("nack", "batch"):
        reader = Consumer(kafka_cluster.client_config() | {"group.id": group})
        found = reader.committed([TopicPartition(topic, 0), TopicPartition(topic, 1)], 10)
        reader.close()
        assert [one.offset for one in found] == [10, 10], group
