"""The history of a group on a real broker: upgraded to KIP-848, restarted, and back again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, closing
from itertools import groupby
from typing import TYPE_CHECKING, Final

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from coopgroup.pipeline.ends import Cluster
from coopgroup.pipeline.episodes.job import write_episodes
from coopgroup.pipeline.episodes.processes import states_of
from coopgroup.pipeline.history import INTERNAL_TOPIC, kafka_records, write_history
from coopgroup.pipeline.topic.consumer_groups import BROKER
from tests.spark.frames import rows
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from coopgroup.pipeline.tables import Tables
    from coopgroup.testing import KafkaCluster

pytestmark = pytest.mark.verify

GROUP, TOPIC, PARTITIONS = "upgraded", "upgraded-orders", 4
WAIT_S: Final = 120.0


@pytest.fixture
def group(kafka_cluster: KafkaCluster) -> Iterator[Group]:
    kafka_cluster.create_topic(TOPIC, PARTITIONS)
    with ExitStack() as stack:
        yield Group(dict(kafka_cluster.client_config()), stack)


class Group:
    """Consumers of one group; the test polls all of them."""

    def __init__(self, config: dict[str, str], stack: ExitStack) -> None:
        own = {"group.id": GROUP, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        self._config = {**config, **own}
        self._stack = stack
        self._members: dict[str, Consumer] = {}

    def start(self, name: str, protocol: str, pattern: str = TOPIC) -> None:
        self._members[name] = self._stack.enter_context(
            closing(Consumer({**self._config, "client.id": name, "group.protocol": protocol}))
        )
        self._members[name].subscribe([pattern])

    def stop(self, name: str) -> None:
        self._members.pop(name).close()

    def settle(self) -> dict[str, list[int]]:
        """Poll until all partitions have one owner, and the shares are even."""
        wait_for(self._is_settled, "even shares", WAIT_S)
        return self.owned()

    def owned(self) -> dict[str, list[int]]:
        return {
            name: sorted(one.partition for one in consumer.assignment())
            for name, consumer in self._members.items()
        }

    def _is_settled(self) -> bool:
        for consumer in self._members.values():
            consumer.poll(0.05)
        shares = [len(one) for one in self.owned().values()]
        return sum(shares) == PARTITIONS and max(shares) - min(shares) <= 1 and self._commits()

    def _commits(self) -> bool:
        """Return whether all members may commit, so that no round has begun."""
        try:
            for consumer in self._members.values():
                held = [(one.topic, one.partition, 0) for one in consumer.assignment()]
                offsets = [TopicPartition(*one) for one in held]
                consumer.commit(asynchronous=False, offsets=offsets)
        except KafkaException:
            return False
        return True


def read(tables: Tables, cluster: KafkaCluster, batch: int) -> None:
    config = dict(cluster.client_config())
    brokers = Cluster(config=config)
    numbers = [*range(brokers.partitions()[INTERNAL_TOPIC])]
    options = {f"kafka.{name}": value for name, value in config.items()}
    options["assign"] = json.dumps({INTERNAL_TOPIC: numbers})
    raw = kafka_records(tables.spark, options, is_stream=False)
    write_history(raw, tables, batch, names=brokers.names)


def test_a_group_that_is_upgraded_goes_on(
    tables: Tables, group: Group, kafka_cluster: KafkaCluster
) -> None:
    """Join, roll to KIP-848, leave, subscribe to an expression, and roll back."""
    settled = []
    for stop, start, protocol, pattern in (
        ("", "a", "classic", TOPIC),
        ("", "b", "classic", TOPIC),
        ("a", "c", "consumer", TOPIC),
        ("b", "d", "consumer", f"^{TOPIC}$"),
        ("c", "", "", ""),
        ("", "e", "classic", TOPIC),
        ("d", "", "", ""),
    ):
        if stop:
            group.stop(stop)
        if start:
            group.start(start, protocol, pattern)
        settled.append(group.settle())
    read(tables, kafka_cluster, 0)
    current = tables.current()
    ours = f"`group` = '{GROUP}'"
    states = states_of(current.read("generations")).where(ours)
    assert states.select("life").distinct().count() == 1
    said = [row.protocol for row in states.orderBy("state").collect() if row.protocol]
    changes = [one for one, _ in groupby(said, lambda protocol: protocol == BROKER)]
    assert changes == [False, True, False]
    known = owners(current)
    assert [one for one in settled if one not in known] == []
    # Other tests write broken records into the same broker.
    of_group = f"instr(cast(key as string), '{GROUP}') > 0"
    assert rows(current.read("rejected").where(of_group), "reason") == []
    topics = current.read("members").where(ours).where("client_id = 'd'")
    # The group coordinator matches the expression some time after the member has joined.
    assert rows(topics.select("topics").distinct(), "topics")[-1:] == [([TOPIC],)]
    write_episodes(tables, settle_ms=100)
    found = tables.current().read("rebalances").where(ours)
    assert found.where("members_before > 0 and joined > 0").count() >= 3
    assert found.where("moved > 0").count() >= 2


def owners(tables: Tables) -> list[dict[str, list[int]]]:
    """Return the owners in each state, by client id."""
    found: dict[int, dict[str, list[int]]] = {}
    where = f"`group` = '{GROUP}'"
    for row in tables.read("members").where(where).collect():
        found.setdefault(row.source_offset, {})[row.client_id] = []
    names = {
        (row.source_offset, row.member_id): row.client_id
        for row in tables.read("members").where(where).collect()
    }
    for row in tables.read("assignments").where(where).collect():
        assert row.topic == TOPIC
        found[row.source_offset][names[row.source_offset, row.member_id]].append(row.partition)
    return [{name: sorted(held) for name, held in one.items()} for one in found.values()]
