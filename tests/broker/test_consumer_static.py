"""Static members: a restart in time causes no rebalance, a second holder is fatal."""

from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from coopgroup import CooperativeConsumer
from coopgroup.telemetry import RoundDecided
from coopgroup.testing import KafkaCluster
from coopgroup.testing.trial.analysis import measure
from tests.support.live_group import Crew, playing, unique
from tests.support.programs import output_of
from tests.support.waiting import wait_for


def test_nobody_rebalances_when_a_static_member_restarts(kafka_cluster: KafkaCluster) -> None:
    # The session timeout must exceed the time to load all code on a busy machine.
    with playing(
        kafka_cluster, kind="coopgroup-simple-static", session_timeout_ms=10_000
    ) as player:
        player.group.start("m1", "m2", "m3")
        player.settle()
        follower = next(
            name for name in player.group.living if name != player.telemetry(RoundDecided)[-1][0]
        )
        owned = player.group.watch.logs[0]
        assert owned.owned
        player.group.prepare(follower)
        rounds = len(player.telemetry(RoundDecided))
        before = max(one.generation for one in player.envelopes())
        with player.trial.window() as window:
            player.group.stop(follower)
            player.group.start(follower)
            player.settle()
        generations = {one.generation for one in player.envelopes()}
        assert (len(player.telemetry(RoundDecided)), max(generations)) == (rounds, before)
        player.trial.finish()
        facts = measure(player.log(), window.window)
        assert (facts.lost, facts.duplicated, facts.moved) == (0, 0, 0)
        assert facts.double_owner_transitions == 0


@pytest.mark.verify
def test_a_static_leader_that_returns_notices_partitions_that_appear(
    kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    """It leads no round (KIP-814), and no other member looks for new partitions."""
    topic = unique("grown")
    kafka_cluster.create_topic(topic, 2)
    static = {"group.instance.id": "one"}
    with Crew(kafka_cluster, tmp_path) as crew:
        crew.add("a", configuration=static).subscribe([topic])
        crew.until(lambda: crew.share((topic, 2)), "it works")
        crew.remove("a")
        crew.folder.joinpath("a.jsonl").unlink()
        crew.add("a", configuration=static).subscribe([topic])
        crew.until(lambda: crew.share((topic, 2)), "it works again")
        crew.during(1.0)
        assert crew.telemetry("a", RoundDecided) == []
        kafka_cluster.add_partitions(topic, 4)
        crew.until(lambda: crew.share((topic, 4)), "the new ones, too")
        crew.remove("a")
        kafka_cluster.add_partitions(topic, 6)
        crew.add("a", configuration=static).subscribe([topic])
        crew.until(lambda: crew.share((topic, 6)), "those that appeared while it was away")


RETURNING = """
import sys
from coopgroup import CooperativeConsumer
from coopgroup.kafka.membership import leading
leading._LOAD_AFTER_S = 60.0  # in the background
settings, topic = {settings!r}, {topic!r}
with CooperativeConsumer(settings) as consumer:
    consumer.subscribe([topic])
    while (message := consumer.poll(0.1)) is None or message.error():
        pass
    print("numpy" in sys.modules)
"""


@pytest.mark.verify
@pytest.mark.parametrize("key", ["group.instance.id", "coopgroup.state.dir"])
def test_a_member_that_returns_has_its_first_record_before_numpy(
    kafka_cluster: KafkaCluster, tmp_path: Path, key: str
) -> None:
    """NumPy takes longer to import than all of our modules together."""
    topic = unique("early")
    kafka_cluster.create_topic(topic, 2)
    producer = Producer(kafka_cluster.client_config())
    for number in range(10):
        producer.produce(topic, b"x", partition=number % 2)
    producer.flush()
    settings = {
        **kafka_cluster.client_config(),
        "group.id": topic,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        key: str(tmp_path) if key == "coopgroup.state.dir" else "one",
    }
    program = RETURNING.format(settings=settings, topic=topic)
    assert output_of(program) == "True\n"  # it decides the first round
    assert output_of(program) == "False\n"


def _poll_until_it_raises(consumer: CooperativeConsumer) -> KafkaException:
    raised: list[KafkaException] = []

    def has_raised() -> bool:
        try:
            assert consumer.poll(0.05) is None
        except KafkaException as error:
            raised.append(error)
        return bool(raised)

    wait_for(has_raised, "a fatal error")
    return raised[0]


def test_the_older_one_fails_when_two_have_the_same_static_id(
    kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    """FENCED_INSTANCE_ID: on_lost, then a fatal error from poll; close works as usual."""
    topic = unique("twins")
    kafka_cluster.create_topic(topic, 2)
    heard: list[str] = []
    static = {"group.instance.id": "twin"}
    with Crew(kafka_cluster, tmp_path) as crew:
        older = crew.add("a", configuration=static)
        older.subscribe(
            [topic],
            on_assign=lambda *_: heard.append("assign"),
            on_revoke=lambda *_: heard.append("revoke"),
            on_lost=lambda *_: heard.append("lost"),
        )
        crew.until(lambda: crew.counts() == [2], "the older one works")
        crew.members.pop("a")
        crew.add("b", configuration=static).subscribe([topic])
        error = _poll_until_it_raises(older)
        kafka_error = error.args[0]
        assert kafka_error.code() == KafkaError.FENCED_INSTANCE_ID
        assert kafka_error.fatal()
        assert "FENCED_INSTANCE_ID" in kafka_error.str()
        assert heard == ["assign", "lost"]
        assert older.assignment() == []
        with pytest.raises(KafkaException):
            older.commit(asynchronous=False)
        older.close()
        crew.until(lambda: crew.counts() == [2], "the newer one works")
