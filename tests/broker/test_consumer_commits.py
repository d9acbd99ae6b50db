"""Commits just before leaving, and in transactions."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from coopgroup import CooperativeConsumer, StickyAssignor
from coopgroup.core.model.group import GroupSnapshot
from coopgroup.core.model.resource_set import Int32Array, Int64Array
from coopgroup.testing import KafkaCluster
from tests.support.live_group import Crew, produce, unique
from tests.support.waiting import wait_for

# --- leaving ------------------------------------------------------------------------------------

RECORDS = 50
TERMINATED = """
import json, os, signal, sys
from coopgroup import CooperativeConsumer
consumer = CooperativeConsumer(json.loads(sys.argv[1]))
signal.signal(signal.SIGTERM, lambda *_: consumer.close())
consumer.subscribe([sys.argv[2]])
count = 0
for message in consumer:
    consumer.commit(message)
    count += 1
    if count == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGTERM)
"""


@pytest.fixture
def records(kafka_cluster: KafkaCluster) -> str:
    topic = unique("each")
    kafka_cluster.create_topic(topic, 1)
    produce(kafka_cluster, topic, [RECORDS])
    return topic


@pytest.mark.parametrize("leave", ["close", "unsubscribe"])
def test_commits_queued_just_before_leaving_arrive(
    leave: str, records: str, kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    """The group would refuse them afterwards: 49 of 50 records would be repeated."""
    outcomes: list[KafkaError | None] = []
    config = {
        "enable.auto.commit": False,
        "on_commit": lambda error, _: outcomes.append(error),
    }
    with Crew(kafka_cluster, tmp_path) as crew:
        crew.add("b")
        consumer = crew.add("a", configuration=config)
        consumer.subscribe([records])
        for _ in range(RECORDS):
            message = consumer.poll(60)
            assert message is not None
            consumer.commit(message)
        getattr(consumer, leave)()
        crew.remove("a")
        assert outcomes == [None] * RECORDS
        assert crew.committed(records, 1) == [RECORDS]


def test_commits_queued_before_sigterm_arrive_when_its_handler_closes(
    records: str, kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    with Crew(kafka_cluster, tmp_path) as crew:
        crew.add("b")
        config = kafka_cluster.client_config() | {
            "group.id": crew.group_id,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        command = [sys.executable, "-c", TERMINATED, json.dumps(config), records, str(RECORDS)]
        assert subprocess.run(command, check=False, timeout=60).returncode == 0
        assert crew.committed(records, 1) == [RECORDS]


def test_close_when_on_revoke_raises_commits_and_ends_all_threads_before(
    records: str, kafka_cluster: KafkaCluster, tmp_path: Path, own_threads: Callable[[], list[str]]
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("on_revoke fails")

    with Crew(kafka_cluster, tmp_path) as crew:
        consumer = crew.add("a")
        consumer.subscribe([records], on_revoke=fail)
        crew.until(lambda: len(crew.messages["a"]) == RECORDS, "all records")
        with pytest.raises(RuntimeError, match="on_revoke fails"):
            crew.remove("a")
        assert own_threads() == []
        with pytest.raises(RuntimeError, match="Consumer closed"):
            consumer.poll(0)
        crew.add("b")
        assert crew.committed(records, 1) == [RECORDS]


# --- transactions -------------------------------------------------------------------------------

STALL_MS = 1_500


class SlowAssignor:
    """The sticky assignor, held back by the test to leave time between join and sync.

    Attributes:
        may_decide: set when the assignor may decide.
    """

    name = "slow"
    needs_lags = False

    def __init__(self) -> None:
        self.may_decide = threading.Event()
        self.may_decide.set()

    def assign(self, group: GroupSnapshot, lags: Int64Array) -> Int32Array:
        assert self.may_decide.wait(60)
        return StickyAssignor().assign(group, lags)


@pytest.fixture
def producer(kafka_cluster: KafkaCluster) -> Producer:
    config = {"transactional.id": unique("tx"), "log_level": 0}
    producer = Producer(kafka_cluster.client_config() | config)
    producer.init_transactions(20.0)
    return producer


def test_zombie_that_lost_all_cannot_commit_in_a_transaction(
    records: str, kafka_cluster: KafkaCluster, producer: Producer
) -> None:
    """Without generation and member id, the broker would accept its offsets unchecked."""
    config = {
        **kafka_cluster.client_config(),
        "group.id": unique("zombie"),
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": 1_000,
        "heartbeat.interval.ms": 200,
        "max.poll.interval.ms": STALL_MS,
    }
    zombie = CooperativeConsumer(config)
    owner = CooperativeConsumer(config | {"max.poll.interval.ms": 60_000})
    try:
        zombie.subscribe([records])
        assert zombie.poll(60) is not None
        owner.subscribe([records])
        wait_for(lambda: owner.poll(0.1) is not None, "the zombie does not poll and is dropped")
        offsets = [TopicPartition(records, 0, RECORDS)]
        owner.commit(offsets=offsets, asynchronous=False)

        def refused(metadata: object) -> bool:
            producer.begin_transaction()
            try:
                stale = [TopicPartition(records, 0, 1)]
                producer.send_offsets_to_transaction(stale, metadata, 20.0)
            except KafkaException:
                return True
            finally:
                producer.abort_transaction(20.0)
            return False

        assert refused(zombie.consumer_group_metadata())
        # the member has processed the loss, and is still not in the group
        heard: list[object] = []
        zombie.subscribe(
            [records], on_lost=lambda *_: heard.append(zombie.consumer_group_metadata())
        )
        wait_for(lambda: zombie.poll(0.05) is None and bool(heard), "the loss is told")
        assert refused(heard[0])
        assert [one.offset for one in owner.committed(offsets, 20.0)] == [RECORDS]
    finally:
        zombie.close()
        owner.close()


def test_transaction_between_join_and_sync_commits_for_retained_partitions(
    kafka_cluster: KafkaCluster, producer: Producer, tmp_path: Path
) -> None:
    """By then the group coordinator refuses the old generation and accepts the new one."""
    topic = unique("between")
    kafka_cluster.create_topic(topic, 2)
    produce(kafka_cluster, topic, [5, 5])
    assignor = SlowAssignor()
    with Crew(kafka_cluster, tmp_path) as crew:
        leader = crew.add("a", assignor=assignor, configuration={"enable.auto.commit": False})
        leader.subscribe([topic])
        crew.until(lambda: len(crew.messages["a"]) == 10, "all records")
        before = leader.consumer_group_metadata()
        assignor.may_decide.clear()
        try:
            crew.add("b").subscribe([topic])
            crew.until(lambda: leader.consumer_group_metadata() != before, "the next generation")
            producer.begin_transaction()
            with pytest.raises(KafkaException):
                producer.send_offsets_to_transaction([TopicPartition(topic, 0, 3)], before, 20.0)
            producer.abort_transaction(20.0)
            producer.begin_transaction()
            producer.send_offsets_to_transaction(
                [TopicPartition(topic, 0, 4)], leader.consumer_group_metadata(), 20.0
            )
            producer.commit_transaction(20.0)
            assert len(crew.held("a")) == 2
        finally:
            assignor.may_decide.set()
        assert crew.committed(topic, 1) == [4]
        crew.until(lambda: crew.counts() == [1, 1], "the round goes on")
