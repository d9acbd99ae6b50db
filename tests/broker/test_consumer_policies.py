"""One round of each policy on a real cluster; tests/unit judges their times."""

import threading
from pathlib import Path
from typing import Any

from confluent_kafka import TopicPartition

from coopgroup import CooperativeConsumer, DeferredPolicy, IncrementalPolicy
from coopgroup.telemetry import AssignmentReceived, RoundDecided, RoundRefused
from coopgroup.testing import KafkaCluster
from tests.support.live_group import (
    Crew,
    produce,
    unique,
)

PARTITIONS = 6
# Added to a delay: the heartbeat that announces the round, two rounds, a busy machine.


def _crew_of(crew: Crew, topic: str, policy: Any, *names: str) -> None:  # noqa: ANN401
    for name in names:
        crew.add(name, policy=policy).subscribe([topic])
    crew.until(lambda: crew.share((topic, PARTITIONS)), "a fair share")
    crew.during(0.5)


def _holdings(crew: Crew) -> dict[str, list[tuple[str, int]]]:
    return {name: crew.held(name) for name in sorted(crew.members)}


def _no_refusals(crew: Crew) -> bool:
    return all(not crew.telemetry(name, RoundRefused) for name in sorted(crew.members))


def test_deferred_gives_a_process_that_returns_what_it_had(
    kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    """It gets them immediately, under a new id; other members' partitions never move."""
    topic = unique("deferred")
    kafka_cluster.create_topic(topic, PARTITIONS)
    policy = DeferredPolicy(scheduled_rebalance_timeout_ms=60_000)
    with Crew(kafka_cluster, tmp_path) as crew:
        _crew_of(crew, topic, policy, "a", "b", "c")
        before = _holdings(crew)
        crew.remove("c")
        crew.during(2.0)
        assert _holdings(crew) == {name: before[name] for name in ("a", "b")}
        crew.add("c", policy=policy).subscribe([topic])
        crew.until(lambda: _holdings(crew) == before, "as it was, long before the delay is over")
        assert _no_refusals(crew)


def test_deferred_is_at_once_where_nobody_is_expected(
    kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    """A new member, or a new subscription, does not wait for a delay."""
    topics = [unique("deferred"), unique("deferred")]
    for topic in topics:
        kafka_cluster.create_topic(topic, PARTITIONS)
    policy = DeferredPolicy(scheduled_rebalance_timeout_ms=60_000)
    with Crew(kafka_cluster, tmp_path) as crew:
        _crew_of(crew, topics[0], policy, "a")
        crew.add("b", policy=policy).subscribe([topics[0]])
        crew.until(lambda: crew.share((topics[0], PARTITIONS)), "a fair share")
        for name in ("a", "b"):
            crew.members[name].subscribe(topics)
        crew.until(
            lambda: crew.share((topics[0], PARTITIONS), (topics[1], PARTITIONS)), "both topics"
        )
        assert _no_refusals(crew)


def test_a_heavy_resource_holds_back_no_light_one(
    kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    """It moves when it has stopped; the others move immediately, and no member joins in a loop."""
    topic = unique("heavy")
    kafka_cluster.create_topic(topic, PARTITIONS)
    produce(kafka_cluster, topic, [3] * PARTITIONS)
    later: list[TopicPartition] = []

    def revoke(consumer: CooperativeConsumer, partitions: list[TopicPartition]) -> None:
        if not later:
            assert consumer.revoke_later(partitions[:1])
            later.extend(partitions[:1])

    with Crew(kafka_cluster, tmp_path) as crew:
        heavy = crew.add("a")
        heavy.subscribe([topic], on_revoke=revoke)
        crew.until(lambda: len(crew.messages["a"]) == 3 * PARTITIONS, "all is worked on")
        crew.add("b").subscribe([topic])
        crew.until(lambda: crew.counts() == [4, 2], "the light ones move")
        rounds = len(crew.telemetry("a", RoundDecided)) + len(crew.telemetry("b", RoundDecided))
        produce(kafka_cluster, topic, [1] * PARTITIONS)
        crew.during(2.0)
        assert crew.counts() == [4, 2]
        assert (
            len(crew.telemetry("a", RoundDecided)) + len(crew.telemetry("b", RoundDecided))
            == rounds
        )
        # no record of the partitions that are being stopped
        assert len(crew.messages["a"]) == 3 * PARTITIONS + 3
        threading.Thread(target=heavy.finish_revoke, args=(later,)).start()
        crew.until(lambda: crew.counts() == [3, 3], "the heavy one moves")
        crew.until(lambda: len(crew.messages["b"]) == 3, "and goes on where it was stopped")


def test_incremental_moves_a_few_at_a_time(kafka_cluster: KafkaCluster, tmp_path: Path) -> None:
    """The limit per round holds until all have their share."""
    topic = unique("incremental")
    kafka_cluster.create_topic(topic, PARTITIONS)
    policy = IncrementalPolicy(max_moves_per_round=1, move_interval_ms=0)
    with Crew(kafka_cluster, tmp_path) as crew:
        _crew_of(crew, topic, policy, "a")
        crew.add("b", policy=policy).subscribe([topic])
        crew.until(lambda: crew.share((topic, PARTITIONS)), "a fair share")
        crew.during(1.0)
        assert crew.share((topic, PARTITIONS))
        told = [len(one.revoked) for one in crew.telemetry("a", AssignmentReceived)]
        assert (sum(told), max(told)) == (3, 1)
        assert _no_refusals(crew)
