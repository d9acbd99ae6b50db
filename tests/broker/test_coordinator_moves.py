"""Inherited partitions are fetched, and lags looked up, after the group coordinator has moved.

librdkafka asks the old coordinator, gives up at NOT_COORDINATOR (librdkafka#5586), and its
AdminClient crashes there (librdkafka#5040, #4605).
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Message, TopicPartition

from coopgroup.telemetry import RoundDecided
from coopgroup.testing import KafkaCluster
from tests.support.coordinators import move_coordinator
from tests.support.live_group import Crew, playing, produce, unique
from tests.support.waiting import wait_for

pytestmark = pytest.mark.verify

PARTITIONS = 6


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster(3) as made:
        yield made


@pytest.fixture
def topic(cluster: KafkaCluster) -> str:
    name = unique("moved")
    cluster.create_topic(name, PARTITIONS, replication=3)
    produce(cluster, name, [10] * PARTITIONS)
    return name


def _all_arrive(crew: Crew, cluster: KafkaCluster, topic: str) -> Callable[[], bool]:
    """Produce a record to each partition; return whether all records arrived."""
    before = sum(map(len, crew.messages.values()))
    produce(cluster, topic, [1] * PARTITIONS)
    return lambda: sum(map(len, crew.messages.values())) >= before + PARTITIONS


@pytest.mark.slow
def test_inherited_partitions_are_fetched_when_the_coordinator_has_moved(
    cluster: KafkaCluster, topic: str, tmp_path: Path
) -> None:
    """A member joins and another leaves: all partitions continue, none from the start."""
    committing = {"auto.commit.interval.ms": 100}
    with Crew(cluster, tmp_path) as crew:
        for name in ("a", "b"):
            crew.add(name, configuration=committing).subscribe([topic])
        crew.until(lambda: crew.share((topic, PARTITIONS)), "two members")
        crew.until(_all_arrive(crew, cluster, topic), "the first records")
        for joins in (True, False):
            move_coordinator(cluster, crew.group_id)
            if joins:
                crew.add("c", configuration=committing).subscribe([topic])
            else:
                crew.remove("a")
            crew.until(lambda: crew.share((topic, PARTITIONS)), "the change of members")
            crew.until(_all_arrive(crew, cluster, topic), "records after the change")
            crew.during(0.5)
            move_coordinator(cluster, crew.group_id)
            for consumer in crew.members.values():
                asked = [TopicPartition(topic, one) for one in range(PARTITIONS)]
                assert all(one.offset > 0 for one in consumer.committed(asked, 10))
        places = [
            (one.partition(), one.offset()) for told in crew.messages.values() for one in told
        ]
        assert len(places) == len(set(places))


@pytest.mark.slow
def test_iteration_goes_on_when_the_coordinator_has_moved(
    cluster: KafkaCluster, topic: str, tmp_path: Path
) -> None:
    """`for message in consumer`, as in the README, raises nothing."""
    with Crew(cluster, tmp_path) as crew:
        crew.add("a").subscribe([topic])
        consumer = crew.add("b")
        consumer.subscribe([topic])
        del crew.members["b"]
        heard: list[Message] = []

        def iterate() -> None:
            with consumer:
                for message in consumer:
                    heard.append(message)
                    if message.value() == b"10":  # the last one
                        return

        with ThreadPoolExecutor(1) as pool:
            iterating = pool.submit(iterate)
            crew.until(lambda: len(consumer.assignment()) == PARTITIONS // 2, "shares")
            crew.until(lambda: len(heard + crew.messages["a"]) == 10 * PARTITIONS, "all records")
            move_coordinator(cluster, crew.group_id)
            crew.remove("a")
            wait_for(lambda: len(consumer.assignment()) == PARTITIONS, "all partitions")
            produce(cluster, topic, [11] * PARTITIONS)
            iterating.result(60)


@pytest.mark.slow
def test_a_lag_aware_leader_leads_on_when_the_coordinator_has_moved(
    cluster: KafkaCluster,
) -> None:
    """In separate processes: the failure was a crash of the whole process."""
    with playing(cluster, assignor="lag_aware", partitions=PARTITIONS) as player:
        player.group.start("m1", "m2")
        player.settle()
        for name in ("m3", "m4"):
            move_coordinator(cluster, player.group.group_id)
            player.group.start(name)
            player.settle()
        assert player.group.living == ("m1", "m2", "m3", "m4")
        assert len(player.telemetry(RoundDecided)) > 0
