"""Members that prove who they are, by a static id or a state directory."""

import gc
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException

from coopgroup import CooperativeConsumer
from coopgroup.core.member import KeptIdentity
from coopgroup.kafka.membership.identity import take_slot
from coopgroup.telemetry import MembershipLost, RoundDecided
from coopgroup.testing import KafkaCluster
from tests.lab.analysis import measure
from tests.support.live_group import Crew, playing, unique
from tests.support.waiting import wait_for


def _state(folder: Path) -> dict[str, object]:
    return {"coopgroup.state.dir": str(folder / "state")}


@pytest.mark.parametrize(
    ("identity", "role"),
    [
        ("static", "follower"),
        pytest.param("kept", "leader", marks=pytest.mark.verify),
    ],
)
def test_nobody_rebalances_when_a_process_returns(
    kafka_cluster: KafkaCluster, tmp_path: Path, identity: str, role: str
) -> None:
    """A static member closes; a process with a state directory is killed."""
    is_static = identity == "static"
    kind = "coopgroup-simple-static" if is_static else "coopgroup-simple"
    config = {} if is_static else _state(tmp_path)
    # The session timeout must exceed the time to load all code on a busy machine.
    with playing(
        kafka_cluster, kind=kind, session_timeout_ms=10_000, extra_config=config
    ) as player:
        player.group.start("m1", "m2", "m3")
        player.settle()
        leader = player.telemetry(RoundDecided)[-1][0]
        follower = next(one for one in player.group.living if one != leader)
        name = leader if role == "leader" else follower
        player.group.prepare(name)
        rounds = len(player.telemetry(RoundDecided))
        generation = max(one.generation for one in player.envelopes())
        with player.trial.window() as window:
            (player.group.stop if is_static else player.group.kill)(name)
            player.group.start(name)
            player.settle()
        assert len(player.telemetry(RoundDecided)) == rounds
        assert max(one.generation for one in player.envelopes()) == generation
        assert player.telemetry(MembershipLost) == []
        player.trial.finish()
        facts = measure(player.log(), window.window)
    assert (facts.lost, facts.moved, facts.double_owner_transitions) == (0, 0, 0)
    assert facts.duplicated == 0 or not is_static


# --- consumers of one process -------------------------------------------------------------------


def _subscribed(crew: Crew, name: str, topic: str, **more: object) -> CooperativeConsumer:
    consumer = crew.add(name, configuration={**_state(crew.folder), **more})
    consumer.subscribe([topic])
    return consumer


def test_a_closed_consumer_goes_on_as_the_same_member(
    kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    """A rolling restart by `close`: same id, same partitions, same generation, leader or not."""
    topic = unique("kept")
    kafka_cluster.create_topic(topic, 4)
    with Crew(kafka_cluster, tmp_path) as crew:
        for name in ("a", "b"):
            _subscribed(crew, name, topic)
        crew.until(lambda: crew.share((topic, 4)), "a fair share")
        crew.during(0.5)
        for name in ("a", "b"):
            member_id, held = crew.members[name].memberid(), crew.held(name)
            generation = crew.generation(name)
            crew.remove(name)
            crew.during(0.5)
            crew.folder.joinpath(f"{name}.jsonl").unlink()
            _subscribed(crew, name, topic)
            crew.until(lambda: crew.share((topic, 4)), "everybody works")
            assert (crew.members[name].memberid(), crew.held(name)) == (member_id, held)
            assert crew.generation(name) == generation
            assert crew.telemetry(name, RoundDecided) == []


@pytest.mark.parametrize("way", ["unsubscribe", "dropped"])
def test_others_take_over_at_once_when_a_consumer_leaves_for_good(
    kafka_cluster: KafkaCluster, tmp_path: Path, way: str, own_threads: Callable[[], list[str]]
) -> None:
    """Scaling down does not wait for the session timeout, and keeps no member in the group."""
    topic = unique("leaving")
    kafka_cluster.create_topic(topic, 4)
    with Crew(kafka_cluster, tmp_path) as crew:
        patience = {"session.timeout.ms": 60_000}
        for name in ("a", "b"):
            _subscribed(crew, name, topic, **patience)
        crew.until(lambda: crew.share((topic, 4)), "a fair share")
        leaving = crew.members["a"]
        del crew.members["a"]
        if way == "unsubscribe":
            leaving.unsubscribe()
            leaving.close()
        del leaving
        gc.collect()
        crew.until(lambda: crew.counts() == [4], "the other one has all")
        crew.during(1.0)
        wait_for(lambda: len(own_threads()) <= 4, "only one consumer's threads")
        slot = take_slot(str(crew.folder / "state"), crew.group_id, print)
        slot.release()
        assert slot.kept is None


def test_a_consumer_that_finds_what_is_not_its_own_joins_as_a_new_member(
    kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    """The coordinator does not know the stored member id."""
    topic = unique("stale")
    kafka_cluster.create_topic(topic, 2)
    with Crew(kafka_cluster, tmp_path) as crew:
        state = str(crew.folder / "state")
        slot = take_slot(state, crew.group_id, print)
        slot.keep(KeptIdentity(member_id="ghost", generation=1, topics=(topic,)))
        slot.release()
        consumer = _subscribed(crew, "a", topic)
        crew.until(lambda: crew.share((topic, 2)), "it works")
        assert consumer.memberid() not in {None, "ghost"}


# --- two with one static id ---------------------------------------------------------------------


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
        with pytest.raises(KafkaException, match="FENCED_INSTANCE_ID") as raised:
            wait_for(lambda: older.poll(0.05), "a fatal error")
        error = raised.value.args[0]
        assert (error.code(), error.fatal()) == (KafkaError.FENCED_INSTANCE_ID, True)
        assert heard == ["assign", "lost"]
        assert older.assignment() == []
        with pytest.raises(KafkaException):
            older.commit(asynchronous=False)
        older.close()
        crew.until(lambda: crew.counts() == [2], "the newer one works")
