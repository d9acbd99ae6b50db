"""Three brokers are upgraded one after the other, below groups of both protocols."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, Literal

import pytest
from confluent_kafka import Producer

from coopgroup.errors import ConfigurationError
from coopgroup.telemetry import MembershipLost, Record, ResourcesStopped
from coopgroup.testing import KafkaCluster
from tests.support.live_group import Crew, unique
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.verify, pytest.mark.slow]

BEFORE: Final = "4.0.0"
AFTER: Final = "4.3.0"
PROTOCOLS: Final[tuple[Literal["classic", "consumer"], ...]] = ("classic", "consumer")
PARTITIONS: Final = 6
BETWEEN_S: Final = 3.0
"""From one broker to the next; the groups must not need the time to recover from the last one."""
WAIT_S: Final = 120.0
"""Nine starts and moves of coordinators on a busy machine."""
SESSION: Final = {"session.timeout.ms": 45_000, "heartbeat.interval.ms": 3_000}


@contextmanager
def producing(cluster: KafkaCluster, topics: list[str]) -> Iterator[Counter[tuple[str, int]]]:
    """Write 50 records a second to each partition; yield how many were acknowledged."""
    written: Counter[tuple[str, int]] = Counter()
    is_over = threading.Event()

    def count(error: object, message: object) -> None:
        assert error is None, error
        written[message.topic(), message.partition()] += 1  # type: ignore[attr-defined]

    def produce() -> None:
        producer = Producer(cluster.client_config() | {"linger.ms": 5, "enable.idempotence": True})
        for number in itertools.count():
            for topic, partition in itertools.product(topics, range(PARTITIONS)):
                producer.produce(topic, str(number), partition=partition, on_delivery=count)
            producer.poll(0)
            if is_over.wait(0.02):
                break
        assert producer.flush(WAIT_S) == 0

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(produce)
        try:
            yield written
        finally:
            is_over.set()
        done.result()


def upgrade(cluster: KafkaCluster) -> None:
    """Upgrade each broker, the coordinators of the groups among them."""
    for broker in cluster.brokers:
        cluster.stop_broker(broker)
        cluster.start_broker(broker, version=AFTER)
        time.sleep(BETWEEN_S)


def join(crew: Crew, member: str) -> None:
    crew.add(member, configuration=SESSION if crew.protocol == "classic" else {})
    crew.members[member].subscribe([crew.group_id])


def poll_until(crews: list[Crew], condition: Callable[[], bool]) -> None:
    def poll() -> None:
        for crew in crews:
            crew.poll()

    wait_for(condition, timeout_s=WAIT_S, poll=poll)


def shared(crews: list[Crew]) -> bool:
    return all(crew.share((crew.group_id, PARTITIONS)) for crew in crews)


def records_of(crew: Crew) -> list[tuple[str | None, int | None, int | None]]:
    return [
        (message.topic(), message.partition(), message.offset())
        for messages in crew.messages.values()
        for message in messages
    ]


def changes_of(crew: Crew) -> list[Record]:
    """Return what the members stopped, and their losses."""
    return [
        record
        for member in sorted(crew.members)
        for kind in (ResourcesStopped, MembershipLost)
        for record in crew.telemetry(member, kind)
    ]


@pytest.mark.timeout(600)
def test_brokers_are_upgraded_below_groups_of_both_protocols(tmp_path: Path) -> None:
    """No partition stops, each record arrives once, and later a third member joins."""
    with ExitStack() as stack:
        cluster = stack.enter_context(KafkaCluster(3, version=BEFORE, start_timeout_ms=120_000))
        crews = []
        for protocol in PROTOCOLS:
            name = unique(protocol)
            cluster.create_topic(name, PARTITIONS, 3)
            (tmp_path / name).mkdir()
            crews.append(stack.enter_context(Crew(cluster, tmp_path / name, name, protocol)))
            join(crews[-1], "a")
            join(crews[-1], "b")
        poll_until(crews, lambda: shared(crews))
        changes = [changes_of(crew) for crew in crews]
        topics = [crew.group_id for crew in crews]
        with ThreadPoolExecutor(1) as pool, producing(cluster, topics) as written:
            upgrading = pool.submit(upgrade, cluster)
            poll_until(crews, upgrading.done)
            upgrading.result()
        poll_until(crews, lambda: sum(len(records_of(one)) for one in crews) >= written.total())
        for crew in crews:
            crew.during(1.0)
            found = records_of(crew)
            assert len(set(found)) == len(found), "a record arrived twice"
            assert Counter(found_in[:2] for found_in in found) == Counter(
                {one: count for one, count in written.items() if one[0] == crew.group_id}
            )
        assert [changes_of(crew) for crew in crews] == changes
        for broker in cluster.brokers:
            command = Path(f"/proc/{cluster.pid(broker)}/cmdline").read_bytes()
            assert f"/kafka-{AFTER}-".encode() in command, "an old broker"
        for crew in crews:
            join(crew, "c")
        poll_until(crews, lambda: shared(crews))
        with pytest.raises(
            ConfigurationError, match=r"^version: got '4\.0\.0', expected 4\.3\.0 or"
        ):
            cluster.start_broker(1, version=BEFORE)
