"""A member with arbitrary subscriptions, on a real cluster."""

from pathlib import Path

import pytest

from coopgroup import LagAwareAssignor
from coopgroup.telemetry import RoundRefused
from coopgroup.testing import KafkaCluster
from tests.support.live_group import Crew, produce, unique

NAMES = ["", ".", "orders\0", "a b", "é", "x" * 300, *(f"none-{one}" for one in range(3_000))]


def test_group_goes_on_beside_a_member_that_subscribes_to_any_name(
    kafka_cluster: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The empty name alone failed each look-up of the leader, and so each round of the group."""
    monkeypatch.setattr("coopgroup.kafka.membership.subscription._check_topic", lambda _: None)
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
