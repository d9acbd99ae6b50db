"""The leader on a real cluster: lags, and names that no topic has."""

from pathlib import Path

import attrs
import pytest
from confluent_kafka import Consumer, TopicPartition

from coopgroup import LagAwareAssignor
from coopgroup.core.model import ResourceSet
from coopgroup.protocol import Subscription, encode_subscription
from coopgroup.telemetry import ClaimRefused, RoundDecided, RoundRefused
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


@pytest.mark.parametrize(("topics", "ties"), [((), False), ((), True), (None, False), (None, True)])
def test_group_goes_on_beside_a_member_that_claims_all(
    kafka_cluster: KafkaCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    topics: tuple[str, ...] | None,
    ties: bool,
) -> None:
    """It lies in each of its joins. Two honest members keep everything but its fair share."""
    topic = unique("liar")
    kafka_cluster.create_topic(topic, 12)
    with Crew(kafka_cluster, tmp_path) as crew:
        for name in ("a", "b"):
            crew.add(name).subscribe([topic])
        crew.until(lambda: crew.counts() == [6, 6], "the honest members share")
        honest = dict(crew.members)

        def lie(content: Subscription, **more: int) -> bytes:
            if content.rack == "liar":
                newest = max(one.health().generation for one in honest.values())
                content = attrs.evolve(
                    content,
                    topics=content.topics if topics is None else topics,
                    owned=ResourceSet({topic: range(12)}),
                    generation=newest if ties else 2**31 - 1,
                )
            return encode_subscription(content, **more)

        monkeypatch.setattr("coopgroup.core.member.protocols.encode_subscription", lie)
        crew.add("liar", configuration={"client.rack": "liar"}).subscribe([topic])
        fair = 12 if topics == () else 8
        shares: list[int] = []

        def named() -> bool:
            shares.append(sum(len(crew.held(name)) for name in honest))
            return crew.members["liar"].memberid() in {one.member_id for one in _refused(crew)}

        crew.until(named, "the leader names the liar")
        for _ in range(30):
            crew.during(0.1)
            named()
        assert min(shares) == shares[-1] == fair
        crew.remove("liar")
        crew.until(lambda: crew.counts() == [6, 6], "the liar is gone")


def _refused(crew: Crew) -> list[ClaimRefused]:
    return [one for name in ("a", "b") for one in crew.telemetry(name, ClaimRefused)]
