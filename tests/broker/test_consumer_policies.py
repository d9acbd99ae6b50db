"""One round of each policy on a real cluster; tests/unit judges their times."""

import threading
from pathlib import Path
from typing import Any

from confluent_kafka import TopicPartition

from coopgroup import CooperativeConsumer, DeferredPolicy, IncrementalPolicy
from coopgroup.telemetry import AssignmentReceived, RoundRefused
from coopgroup.testing import KafkaCluster
from tests.support.live_group import Crew, unique

PARTITIONS = 6


def _crew_of(crew: Crew, topic: str, policy: Any, *names: str) -> None:  # noqa: ANN401
    for name in names:
        crew.add(name, policy=policy).subscribe([topic])
    crew.until(lambda: crew.share((topic, PARTITIONS)), "a fair share")
    crew.during(0.5)


def _holdings(crew: Crew) -> dict[str, list[tuple[str, int]]]:
    return {name: crew.held(name) for name in sorted(crew.members)}


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
        assert not any(crew.telemetry(name, RoundRefused) for name in crew.members)


def test_incremental_moves_a_few_at_a_time(kafka_cluster: KafkaCluster, tmp_path: Path) -> None:
    """The limit per round holds until all have their share, although stops take their time."""
    topic = unique("incremental")
    kafka_cluster.create_topic(topic, PARTITIONS)
    policy = IncrementalPolicy(max_moves_per_round=1, move_interval_ms=0)

    def stop_slowly(consumer: CooperativeConsumer, partitions: list[TopicPartition]) -> None:
        later = consumer.revoke_later(partitions)
        if later is not None:  # not in `close`
            threading.Timer(0.2, consumer.finish_revoke, [later]).start()

    with Crew(kafka_cluster, tmp_path) as crew:
        crew.add("a", policy=policy).subscribe([topic], on_revoke=stop_slowly)
        crew.until(lambda: crew.counts() == [PARTITIONS], "the first one has all")
        crew.add("b", policy=policy).subscribe([topic])
        crew.until(lambda: crew.share((topic, PARTITIONS)), "a fair share")
        crew.during(1.0)
        assert crew.share((topic, PARTITIONS))
        told = [len(one.revoked) for one in crew.telemetry("a", AssignmentReceived)]
        assert (sum(told), max(told)) == (3, 1)
        assert not any(crew.telemetry(name, RoundRefused) for name in crew.members)
