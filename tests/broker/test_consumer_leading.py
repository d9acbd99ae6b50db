"""The leader on a real cluster: lags, and names that no topic has."""

from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from coopgroup import LagAwareAssignor
from coopgroup.telemetry import RoundDecided, RoundRefused
from coopgroup.testing import KafkaCluster
from tests.support.live_group import Crew, produce, unique

NAMES = ["", ".", "orders\0", "a b", "é", "x" * 300, *(f"none-{one}" for one in range(3_000))]


def test_lags_decide_when_the_assignor_is_lag_aware(
    kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    """The lags are 10, 55 and 59: the largest goes to one member, the others to the other."""
    topic = unique("lags")
    kafka_cluster.create_topic(topic, 3)
    produce(kafka_cluster, topic, [110, 55, 60])
    with Crew(kafka_cluster, tmp_path) as crew:
        offsets = [TopicPartition(topic, 0, 100), TopicPartition(topic, 2, 1)]
        reader = Consumer(kafka_cluster.client_config() | {"group.id": crew.group_id})
        reader.commit(offsets=offsets, asynchronous=False)
        reader.close()
        for name in ("a", "b"):
            settings = {"enable.auto.commit": False}
            crew.add(name, assignor=LagAwareAssignor(), configuration=settings).subscribe([topic])
        shares = [[(topic, 0), (topic, 1)], [(topic, 2)]]
        crew.until(lambda: sorted(map(crew.held, crew.members)) == shares, "shares by lag")
        assert {one.assignor for one in crew.telemetry("a", RoundDecided)} <= {"lag-aware"}


def test_group_goes_on_beside_a_member_that_subscribes_to_any_name(
    kafka_cluster: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The empty name alone failed each look-up of the leader, and so each round of the group."""
    monkeypatch.setattr("coopgroup.kafka.membership.subscription.is_topic_name", lambda _: True)
    topic = unique("hostile")
    kafka_cluster.create_topic(topic, 4)
    with Crew(kafka_cluster, tmp_path) as crew:
        crew.add("a", assignor=LagAwareAssignor()).subscribe([topic])
        crew.until(lambda: crew.counts() == [4], "the first member works")
        crew.add("b").subscribe([*NAMES, f"{topic}\0"])
        crew.until(lambda: crew.members["b"].memberid() is not None, "the hostile member joins")
        crew.during(0.5)
        crew.add("c").subscribe([topic])
        crew.until(lambda: crew.counts() == [2, 0, 2], "the third member has its share")
        produce(kafka_cluster, topic, [1] * 4)
        crew.until(lambda: sum(map(len, crew.messages.values())) == 4, "all records")
        assert crew.telemetry("a", RoundRefused) == []
