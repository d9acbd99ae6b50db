"""The waiting policies on a real cluster: members that return or do not, and paced moves."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from coopgroup import CooperativeConsumer, DeferredPolicy, IncrementalPolicy
from coopgroup.telemetry import AssignmentReceived, RoundDecided, RoundRefused
from coopgroup.testing import KafkaCluster
from coopgroup.testing.trial.analysis import measure
from tests.support.live_group import (
    NOISE_MS,
    Crew,
    playing,
    produce,
    read_telemetry,
    unique,
)

PARTITIONS = 6
# Added to a delay: the heartbeat that announces the round, two rounds, a busy machine.
BOUND_S = 2.0


def _crew_of(crew: Crew, topic: str, policy: Any, *names: str) -> None:  # noqa: ANN401
    for name in names:
        crew.add(name, policy=policy).subscribe([topic])
    crew.until(lambda: crew.share((topic, PARTITIONS)), "a fair share")
    crew.during(0.5)


def _holdings(crew: Crew) -> dict[str, list[tuple[str, int]]]:
    return {name: crew.held(name) for name in sorted(crew.members)}


def _leader(crew: Crew) -> str:
    led = [
        (envelope.generation, name)
        for name in crew.members
        for envelope in read_telemetry(crew.folder / f"{name}.jsonl")
        if isinstance(envelope.record, RoundDecided)
    ]
    return max(led)[1]


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


@pytest.mark.verify
@pytest.mark.parametrize("role", ["follower", "leader"])
def test_deferred_moves_nothing_when_a_killed_process_returns_under_a_new_id(
    kafka_cluster: KafkaCluster, role: str
) -> None:
    """Its session has expired; its partitions waited, and it continues where it was killed."""
    names = ("m1", "m2", "m3")
    with playing(
        kafka_cluster,
        kind="coopgroup-deferred",
        policy_arguments={"scheduled_rebalance_timeout_ms": 60_000},
        session_timeout_ms=1_500,
        heartbeat_interval_ms=200,
    ) as player:
        player.group.start(*names)
        player.settle()
        leader = player.telemetry(RoundDecided)[-1][0]
        name = leader if role == "leader" else next(one for one in names if one != leader)
        with player.trial.window() as window:
            player.group.kill(name)
            time.sleep(3.0)
            player.group.start(name)
            player.settle()
        player.trial.finish()
        facts = measure(player.log(), window.window)
        assert player.telemetry(RoundRefused) == []
    assert (facts.lost, facts.moved, facts.double_owner_transitions) == (0, 0, 0)
    assert (facts.retained, facts.retained_pause_ms_max < NOISE_MS) == (8, True)


@pytest.mark.verify
def test_deferred_shares_what_was_lost_when_the_delay_is_over(
    kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    """Neither earlier nor much later; partitions of other members stay."""
    topic = unique("deferred")
    kafka_cluster.create_topic(topic, PARTITIONS)
    policy = DeferredPolicy(scheduled_rebalance_timeout_ms=3_000)
    with Crew(kafka_cluster, tmp_path) as crew:
        _crew_of(crew, topic, policy, "a", "b", "c")
        before = _holdings(crew)
        began = time.monotonic()
        crew.remove("c")
        crew.until(lambda: crew.share((topic, PARTITIONS)), "shared")
        assert 2.5 < time.monotonic() - began < 3.0 + BOUND_S
        assert all(set(before[name]) < set(crew.held(name)) for name in ("a", "b"))
        assert _no_refusals(crew)


@pytest.mark.verify
def test_deferred_delay_goes_on_when_the_leader_leaves_meanwhile(
    kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    """The new leader has no memory; the members know the remaining time."""
    topic = unique("deferred")
    kafka_cluster.create_topic(topic, PARTITIONS)
    policy = DeferredPolicy(scheduled_rebalance_timeout_ms=4_000)
    with Crew(kafka_cluster, tmp_path) as crew:
        _crew_of(crew, topic, policy, "a", "b", "c", "d")
        leader = _leader(crew)
        first = next(name for name in "abcd" if name != leader)
        began = time.monotonic()
        crew.remove(first)
        crew.during(2.0)
        crew.remove(leader)
        crew.until(lambda: crew.share((topic, PARTITIONS)), "shared")
        # Measured from the first loss: never restarted, at most two delays for both.
        assert 3.5 < time.monotonic() - began < 2.0 + 4.0 + BOUND_S
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
        crew.until(lambda: crew.counts() == [4, 2], "the light ones move", 5)
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
        crew.until(lambda: crew.counts() == [3, 3], "the heavy one moves", 5)
        crew.until(lambda: len(crew.messages["b"]) == 3, "and goes on where it was stopped")


@pytest.mark.parametrize("interval_ms", [0, 700])
def test_incremental_moves_a_few_at_a_time(
    kafka_cluster: KafkaCluster, tmp_path: Path, interval_ms: int
) -> None:
    """The limit per round and one such round per interval hold until all have their share."""
    topic = unique("incremental")
    kafka_cluster.create_topic(topic, PARTITIONS)
    policy = IncrementalPolicy(max_moves_per_round=1, move_interval_ms=interval_ms)
    with Crew(kafka_cluster, tmp_path) as crew:
        _crew_of(crew, topic, policy, "a")
        began = time.monotonic()
        crew.add("b", policy=policy).subscribe([topic])
        crew.until(lambda: crew.share((topic, PARTITIONS)), "a fair share")
        took_s = time.monotonic() - began
        crew.during(1.0)
        assert crew.share((topic, PARTITIONS))
        told = [len(one.revoked) for one in crew.telemetry("a", AssignmentReceived)]
        assert (sum(told), max(told)) == (3, 1)
        assert 2 * interval_ms / 1000 <= took_s < 2 * interval_ms / 1000 + 2 * BOUND_S
        assert _no_refusals(crew)
