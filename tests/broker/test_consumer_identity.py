"""Members with a state directory: a restart within the session timeout causes no rebalance."""

import gc
import time
from pathlib import Path

import pytest

from coopgroup import CooperativeConsumer
from coopgroup.kafka.membership.identity import take_slot
from coopgroup.member import KeptIdentity
from coopgroup.telemetry import AssignmentReceived, Envelope, MembershipLost, RoundDecided
from coopgroup.testing import KafkaCluster
from coopgroup.testing.trial.analysis import Facts, measure
from coopgroup.testing.trial.recording import EventReader
from tests.support.live_group import NOISE_MS, Crew, Player, coopgroup_threads, playing, unique
from tests.support.waiting import wait_for

DOWN_S = 1.0
MEMBERS = ("m1", "m2", "m3")


def _state(folder: Path) -> dict[str, object]:
    return {"coopgroup.state.dir": str(folder / "state")}


def _shares(envelopes: list[Envelope]) -> dict[str, int]:
    """Return the last known number of partitions, by member id."""
    shares = {}
    for envelope in envelopes:
        if isinstance(envelope.record, AssignmentReceived):
            shares[envelope.member] = len(envelope.record.gained | envelope.record.kept)
    return shares


def _kill_and_restart(player: Player, *names: str) -> tuple[Facts, float]:
    player.group.prepare(*names)
    with player.trial.window() as window:
        began_ns = time.monotonic_ns()
        player.group.kill(*names)
        time.sleep(DOWN_S)
        player.group.start(*names)
        player.settle()
    up_ns = max(_started_ns(player, name) for name in names)
    player.trial.finish()
    return measure(player.log(), window.window), (up_ns - began_ns) / 1e6


def _started_ns(player: Player, name: str) -> int:
    events = EventReader(player.group.member(name).events_path).read_new()
    return next(one.at_ns for one in events if one.name == "started")


START_MS_MAX = 2_500
"""From the start of a process to its first record: 0.5 s, and five times that on a busy machine.

A member that was not recognised would wait for the session timeout of the test, 10 s.
"""


@pytest.mark.verify
@pytest.mark.parametrize("role", ["follower", "leader"])
def test_nobody_rebalances_when_a_killed_process_returns(
    kafka_cluster: KafkaCluster,
    tmp_path: Path,
    role: str,
) -> None:
    """The member works as soon as it runs; the other members never pause."""
    with playing(kafka_cluster, session_timeout_ms=10_000, extra_config=_state(tmp_path)) as player:
        player.group.start(*MEMBERS)
        player.settle()
        leader = player.telemetry(RoundDecided)[-1][0]
        name = leader if role == "leader" else next(one for one in MEMBERS if one != leader)
        before, rounds = _shares(player.envelopes()), len(player.telemetry(RoundDecided))
        generation = max(one.generation for one in player.envelopes())
        facts, down_ms = _kill_and_restart(player, name)
        after = player.envelopes()
        assert _shares(after) == before
        assert max(one.generation for one in after) == generation
        assert len(player.telemetry(RoundDecided)) == rounds
        assert player.telemetry(MembershipLost) == []
    assert (facts.lost, facts.moved, facts.double_owner_transitions) == (0, 0, 0)
    assert (facts.retained, facts.retained_pause_ms_max < NOISE_MS) == (8, True)
    assert down_ms <= facts.pause_ms_max <= down_ms + START_MS_MAX


@pytest.mark.verify  # its limit for a close is by the clock
def test_nobody_rebalances_when_all_processes_are_killed_and_return(
    kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    """All processes of a host continue, each as a different one of the earlier members."""
    with playing(kafka_cluster, session_timeout_ms=10_000, extra_config=_state(tmp_path)) as player:
        player.group.start(*MEMBERS)
        player.settle()
        before = _shares(player.envelopes())
        generation = max(one.generation for one in player.envelopes())
        facts, _ = _kill_and_restart(player, *MEMBERS)
        after = player.envelopes()
        assert _shares(after) == before
        assert max(one.generation for one in after) == generation
    assert (facts.lost, facts.double_owner_transitions) == (0, 0)


@pytest.mark.verify
def test_a_process_that_returns_too_late_joins_as_a_new_member(
    kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    """Other members own its partitions by then; it gets a fair share, and its old id is unused."""
    with playing(
        kafka_cluster,
        session_timeout_ms=1_500,
        heartbeat_interval_ms=200,
        extra_config=_state(tmp_path),
    ) as player:
        player.group.start("m1", "m2")
        player.settle()
        before = set(_shares(player.envelopes()))
        player.group.kill("m2")
        time.sleep(2.0)
        player.settle(fair=False)
        player.group.start("m2")
        player.settle()
        after = _shares(player.envelopes())
        new = set(after) - before
        assert len(new) == 1
        assert after[new.pop()] == 6
        player.trial.finish()


def test_others_take_over_when_a_killed_process_does_not_return(
    kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    with playing(
        kafka_cluster,
        session_timeout_ms=1_500,
        heartbeat_interval_ms=200,
        extra_config=_state(tmp_path),
    ) as player:
        player.group.start(*MEMBERS)
        player.settle()
        player.group.kill("m3")
        player.settle()
        assert sorted(_shares(player.envelopes()).values())[1:] == [6, 6]
        player.trial.finish()


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


def test_a_leader_that_returns_notices_partitions_that_appeared_meanwhile(
    kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    """No other member watches the metadata, and it is the leader without having led a round."""
    topic = unique("grown")
    kafka_cluster.create_topic(topic, 2)
    with Crew(kafka_cluster, tmp_path) as crew:
        _subscribed(crew, "a", topic)
        crew.until(lambda: crew.share((topic, 2)), "it works")
        crew.remove("a")
        kafka_cluster.add_partitions(topic, 4)
        _subscribed(crew, "a", topic)
        crew.until(lambda: crew.share((topic, 4)), "the new ones, too")


@pytest.mark.parametrize("way", ["unsubscribe", "hand_over", "dropped"])
def test_others_take_over_at_once_when_a_consumer_leaves_for_good(
    kafka_cluster: KafkaCluster, tmp_path: Path, way: str
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
        if way == "hand_over":
            leaving.hand_over()
            crew.until(lambda: crew.counts() == [0, 4], "handed over")
        del crew.members["a"]
        if way == "unsubscribe":
            leaving.unsubscribe()
        if way != "dropped":
            leaving.close()
        del leaving
        gc.collect()
        crew.until(lambda: crew.counts() == [4], "the other one has all")
        crew.during(1.0)
        wait_for(lambda: len(coopgroup_threads()) <= 4, "only one consumer's threads")
        slot = take_slot(str(crew.folder / "state"), crew.group_id, print)
        slot.release()
        assert slot.kept is None


@pytest.mark.verify
def test_a_consumer_with_other_topics_joins_under_its_old_id(
    kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    """The assignment that the group coordinator stores for it is for its earlier topics."""
    topics = [unique("before"), unique("after")]
    for topic in topics:
        kafka_cluster.create_topic(topic, 2)
    with Crew(kafka_cluster, tmp_path) as crew:
        _subscribed(crew, "a", topics[0])
        crew.until(lambda: crew.share((topics[0], 2)), "the old ones")
        member_id = crew.members["a"].memberid()
        crew.remove("a")
        _subscribed(crew, "a", topics[1])
        crew.until(lambda: crew.share((topics[1], 2)), "the new ones")
        assert crew.members["a"].memberid() == member_id


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


@pytest.mark.verify
def test_a_slot_is_not_taken_while_its_consumer_lives(
    kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    """Two consumers of one process and one directory are two members."""
    topic = unique("two")
    kafka_cluster.create_topic(topic, 4)
    with Crew(kafka_cluster, tmp_path) as crew:
        for name in ("a", "b", "c"):
            _subscribed(crew, name, topic)
        crew.until(lambda: crew.share((topic, 4)), "a fair share")
        assert len({one.memberid() for one in crew.members.values()}) == 3
        assert len(list((crew.folder / "state").iterdir())) == 3
