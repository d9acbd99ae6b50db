"""Fronts, warm-ups, handing over and the bell work while the broker assigns.

One broker serves all tests. Its members of KIP-848 send a heartbeat five times a second.
"""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from coopgroup import CooperativeConsumer, SimplePolicy
from coopgroup.aio import AsyncCooperativeConsumer
from coopgroup.cli import app
from coopgroup.policies import Warmup
from coopgroup.processing import process
from coopgroup.testing import KafkaCluster
from tests.support.kip848 import FAST_BROKER, MixedCrew
from tests.support.live_group import produce, unique
from tests.support.waiting import WAIT_S_MAX

pytestmark = pytest.mark.verify
PARTITIONS = 4
RECORDS = 50
Place = tuple[int | None, int | None]


@pytest.fixture(scope="module")
def fast_broker() -> Iterator[KafkaCluster]:
    with KafkaCluster(properties=FAST_BROKER) as cluster:
        yield cluster


@pytest.fixture
def crew(fast_broker: KafkaCluster, tmp_path: Path) -> Iterator[MixedCrew]:
    with MixedCrew(fast_broker, tmp_path, unique("orders"), PARTITIONS) as mixed:
        yield mixed


# --- fronts ---------------------------------------------------------------------------------------


def in_threads(config: dict[str, Any], topic: str, seen: list[Place], ends: threading.Event) -> int:
    with CooperativeConsumer(config) as consumer:
        consumer.subscribe([topic])

        def handle(record: Any) -> None:  # noqa: ANN401  (a message of confluent_kafka)
            seen.append((record.partition(), record.offset()))

        process(consumer, handle, order="key", workers=4, stop=ends)
        return len(consumer.assignment())


def in_tasks(config: dict[str, Any], topic: str, seen: list[Place], ends: threading.Event) -> int:
    async def run() -> int:
        async with AsyncCooperativeConsumer(config, topic) as consumer:
            while not ends.is_set():
                for records in (await consumer.getmany(timeout_ms=50)).values():
                    seen.extend((one.partition, one.offset) for one in records)
            return len(consumer.assignment())

    return asyncio.run(run())


@pytest.mark.parametrize("front", [in_threads, in_tasks], ids=["process", "asyncio"])
def test_front_handles_each_record_once(
    crew: MixedCrew,
    front: Callable[[dict[str, Any], str, list[Place], threading.Event], int],
) -> None:
    config = {
        **crew.cluster.client_config(),
        "group.id": crew.ours.group_id,
        "auto.offset.reset": "earliest",
        "heartbeat.interval.ms": 200,
        "session.timeout.ms": 6_000,
    }
    seen: list[Place] = []
    ended: list[int] = []
    ends = threading.Event()
    worker = threading.Thread(
        target=lambda: ended.append(front(config, crew.topic, seen, ends)), daemon=True
    )
    worker.start()

    def read(count: int) -> None:
        produce(crew.cluster, crew.topic, [RECORDS] * PARTITIONS)
        crew.until(lambda: len(seen) + sum(map(len, by_guests())) >= count, f"{count} records")

    def by_guests() -> list[list[Place]]:
        return [guest.read for guest in (*crew.guests.values(), *crew.gone.values())]

    read(PARTITIONS * RECORDS)
    guest = crew.visit("k")
    crew.until(lambda: len(guest.held) == PARTITIONS // 2, "half of it")
    read(2 * PARTITIONS * RECORDS)
    crew.leave("k")
    read(3 * PARTITIONS * RECORDS)
    ends.set()
    worker.join(WAIT_S_MAX)
    assert ended == [PARTITIONS]
    assert set(Counter([*seen, *by_guests()[0]]).values()) == {1}
    assert by_guests()[0]


# --- what a policy does ---------------------------------------------------------------------------


def test_warm_up_is_cancelled_and_begins_again_with_the_policy(crew: MixedCrew) -> None:
    topic, policy = crew.topic, SimplePolicy(warmup=Warmup())
    heard: dict[str, list[int]] = {"begun": [], "cancelled": []}

    def note(kind: str) -> Callable[[Any, Any], None]:
        return lambda _, parts: heard[kind].extend(one.partition for one in parts)

    for name in ("a", "b"):
        crew.ours.add(name, policy=policy).subscribe(
            [topic], on_warmup=note("begun"), on_warmup_cancelled=note("cancelled")
        )
        crew.until(lambda: crew.ours.held("a"), "the first one owns partitions")
    crew.until(lambda: len(heard["begun"]) == PARTITIONS // 2, "warm-ups begin")
    assert len(crew.ours.held("a")) == PARTITIONS
    crew.visit("k")
    crew.until_even("the broker assigns, warm or not")
    # The member may hear of it in a later poll than that in which it owns its share.
    crew.until(lambda: sorted(heard["cancelled"]) == sorted(heard["begun"]), "all are cancelled")
    crew.leave("k")
    crew.until(lambda: sum(map(len, crew.shares().values())) == PARTITIONS, "ours own all")
    assert crew.ours.members["a"].health().broker_assigns is False


def test_member_hands_over_at_once(crew: MixedCrew) -> None:
    """The broker waits for no receiver. The member commits, stops, leaves, and nothing is lost."""
    produce(crew.cluster, crew.topic, [RECORDS] * PARTITIONS)
    crew.join("a")
    crew.visit("k")
    crew.until_even("half of it")
    crew.ours.members["a"].hand_over()
    crew.until(lambda: crew.shares() == {"a": [], "k": list(range(PARTITIONS))}, "handed over")
    produce(crew.cluster, crew.topic, [RECORDS] * PARTITIONS)
    ours, guest = crew.ours.messages["a"], crew.guests["k"]
    crew.until(lambda: len(ours) + len(guest.read) >= 2 * RECORDS * PARTITIONS, "all records")
    read = [*guest.read, *((one.partition(), one.offset()) for one in ours)]
    assert set(Counter(read).values()) == {1}


def test_bell_rings_before_rare_heartbeats(crew: MixedCrew) -> None:
    """A heartbeat comes in 45 s. A member of ours that joins rings, and the other one gives way."""
    bell = unique("bell")
    arguments = ["--bell-topic", bell, "--telemetry-topic", unique("telemetry")]
    arguments += ["--bootstrap-server", crew.cluster.bootstrap_servers]
    assert app.run(["setup", *arguments]) == 0
    rare = {
        "session_timeout_ms": 150_000,
        "heartbeat_interval_ms": 45_000,
        "coopgroup_bell_topic": bell,
    }
    crew.join("a", **rare)
    crew.visit("k")
    crew.until(lambda: len(crew.shares()["a"]) == PARTITIONS // 2, "the broker assigns")
    crew.until_even("half of it")
    crew.join("b", **rare)
    began_s = time.monotonic()
    crew.until_even("and a second one of ours")
    assert time.monotonic() - began_s < 30
