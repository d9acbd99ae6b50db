"""Members of coopgroup beside members of KIP-848: the broker assigns while those are in the group.

The policy takes over again when the last of them has left.
"""

import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, ShareConsumer

from coopgroup.telemetry import AssigningMoved, MembershipLost, ResourcesStopped
from coopgroup.testing import KafkaCluster
from tests.support.kip848 import FAST_BROKER, MixedCrew
from tests.support.live_group import produce, unique
from tests.support.waiting import wait_for

PARTITIONS = 6
LOOK_S_MAX = 45.0
"""A member asks a broker that assigns again after 30 s at the latest."""

FATAL = KafkaError._FATAL  # noqa: SLF001 - confluent_kafka documents its codes by these names


@pytest.fixture(scope="module")
def fast_broker() -> Iterator[KafkaCluster]:
    """A broker whose members of KIP-848 send a heartbeat five times a second."""
    with KafkaCluster(properties=FAST_BROKER) as cluster:
        yield cluster


@pytest.fixture
def crew(fast_broker: KafkaCluster, tmp_path: Path) -> Iterator[MixedCrew]:
    with MixedCrew(fast_broker, tmp_path, unique("orders"), PARTITIONS) as mixed:
        yield mixed


def moved(crew: MixedCrew, name: str) -> list[bool]:
    return [one.to_broker for one in crew.ours.telemetry(name, AssigningMoved)]


def lost(crew: MixedCrew, *names: str) -> list[MembershipLost]:
    return [one for name in names for one in crew.ours.telemetry(name, MembershipLost)]


def stopped(crew: MixedCrew, name: str) -> set[int]:
    """Return the partitions that a member of ours has stopped so far."""
    records = crew.ours.telemetry(name, ResourcesStopped)
    return {index for one in records for index in one.resources.to_dict().get(crew.topic, ())}


def test_group_is_shared_when_a_member_of_kip_848_comes_and_goes(
    crew: MixedCrew, caplog: pytest.LogCaptureFixture
) -> None:
    """A new member of ours gets its share meanwhile, and that of a leaver is read."""
    crew.join("a")
    crew.join("b")
    crew.until_even("two of ours")
    kept = {name: set(share) for name, share in crew.shares().items()}
    guest = crew.visit("k")
    crew.until_even("and one of KIP-848")
    assert all(set(crew.shares()[name]) < kept[name] for name in ("a", "b"))
    crew.join("c")
    crew.until_even("and a third of ours")
    crew.leave("a")
    crew.until_even("the first one left")
    kept = {name: set(crew.shares()[name]) for name in ("b", "c")}
    crew.leave("k")
    crew.until_even("the one of KIP-848 left")
    assert all(set(crew.shares()[name]) > kept[name] for name in ("b", "c"))
    assert (guest.errors, guest.lost, lost(crew, "a", "b", "c")) == ([], [], [])
    crew.until(lambda: moved(crew, "b") == moved(crew, "c") == [True, False], "told twice")
    assert moved(crew, "a") == [True]
    warned = [one for one in caplog.records if getattr(one, "event", "") == "assigning_moved"]
    assert [one.levelno for one in warned] == [logging.WARNING] * 5
    assert "group.protocol=consumer" in warned[0].getMessage()


def test_member_joins_a_group_of_kip_848_and_takes_over(crew: MixedCrew) -> None:
    """One bounce: two members of KIP-848 are replaced one by one, and two of ours after them."""
    for name in ("k1", "k2"):
        crew.visit(name)
        crew.until_even(name)
    produce(crew.cluster, crew.topic, [50] * PARTITIONS)
    for comes, goes in (("a", "k1"), ("b", "k2")):
        crew.join(comes)
        crew.until_even(f"{comes} came")
        crew.leave(goes)
        crew.until_even(f"{goes} left")
    crew.until(lambda: moved(crew, "a") == [True, False], "ours lead")
    produce(crew.cluster, crew.topic, [50] * PARTITIONS)
    for comes, goes in (("k3", "a"), ("k4", "b")):
        crew.visit(comes)
        crew.until_even(f"{comes} came")
        crew.leave(goes)
        crew.until_even(f"{goes} left")
    produce(crew.cluster, crew.topic, [50] * PARTITIONS)
    wanted = {(partition, offset) for partition in range(PARTITIONS) for offset in range(150)}

    def handed_out() -> set[tuple[int | None, int | None]]:
        ours = crew.ours.messages.values()
        read = {(one.partition(), one.offset()) for messages in ours for one in messages}
        guests = [*crew.guests.values(), *crew.gone.values()]
        return read.union(*(guest.read for guest in guests))

    crew.until(lambda: handed_out() >= wanted, "all records")
    assert lost(crew, "a", "b") == []


def test_partition_that_stays_is_never_stopped(crew: MixedCrew) -> None:
    """The broker took one of three partitions; the others are the same reader's all the time."""
    crew.join("a", heartbeat_interval_ms=100)
    crew.join("b", heartbeat_interval_ms=100)
    crew.until_even("two of ours")
    crew.visit("k")
    crew.until_even("and one of KIP-848")
    stays = {name: set(crew.shares()[name]) for name in ("a", "b")}
    crew.leave("k")
    crew.until_even("two of ours again")
    assert all(not stays[name] & stopped(crew, name) for name in ("a", "b"))


def test_static_member_keeps_its_partitions_beside_one_of_kip_848(crew: MixedCrew) -> None:
    """It closes silently, and a new process with its id finds what it had."""
    crew.join("a", group_instance_id="one")
    crew.join("b", group_instance_id="two")
    crew.until_even("two of ours")
    crew.visit("k")
    crew.until_even("and one of KIP-848")
    before = crew.shares()
    crew.leave("a")
    crew.join("a", group_instance_id="one")
    crew.until(lambda: crew.shares() == before, "as before")
    crew.leave("k")
    crew.until_even("two of ours again")
    assert lost(crew, "a", "b") == []


def test_member_with_a_kept_identity_returns_beside_one_of_kip_848(
    crew: MixedCrew, tmp_path: Path
) -> None:
    """It syncs without a join, so only the bytes of the answer tell that the broker assigns."""
    folder = str(tmp_path / "state")
    crew.join("a", coopgroup_state_dir=folder)
    crew.until_even("one of ours")
    crew.visit("k")
    crew.until_even("and one of KIP-848")
    before, member_id = crew.shares(), crew.ours.members["a"].memberid()
    crew.leave("a")
    crew.join("a", coopgroup_state_dir=folder)
    crew.until(lambda: crew.shares() == before, "as before")
    assert crew.ours.members["a"].memberid() == member_id
    crew.leave("k")
    crew.until_even("alone again")


def test_commits_are_accepted_throughout(crew: MixedCrew) -> None:
    """A synchronous commit before, while and after the broker assigns."""
    crew.join("a", enable_auto_commit=False)
    crew.until_even("one of ours")
    produce(crew.cluster, crew.topic, [10] * PARTITIONS)
    a = crew.ours.members["a"]

    def commits(count: int) -> None:
        crew.until(lambda: len(crew.ours.messages["a"]) >= count, f"{count} records")
        for one in crew.ours.messages["a"][-5:]:
            if (one.topic(), one.partition()) in crew.ours.held("a"):
                a.commit(one, asynchronous=False)

    commits(10)
    crew.visit("k", enable_auto_commit=False)
    while not crew.is_even():
        crew.poll()
        commits(10)
    commits(20)
    crew.leave("k")
    while not crew.is_even():
        crew.poll()
        commits(20)
    commits(PARTITIONS * 10)
    assert max(crew.ours.committed(crew.topic, PARTITIONS)) == 10


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
@pytest.mark.verify
def test_broker_that_forbids_the_upgrade_ends_the_member_of_kip_848(
    policy: str, tmp_path: Path
) -> None:
    """Its client fails for good. Ours keep everything, and are told nothing."""
    properties = {**FAST_BROKER, "group.consumer.migration.policy": policy}
    with (
        KafkaCluster(properties=properties) as cluster,
        MixedCrew(cluster, tmp_path, unique("orders"), PARTITIONS) as crew,
    ):
        crew.join("a")
        crew.until_even("one of ours")
        guest = crew.visit("k")
        crew.until(lambda: guest.errors == [FATAL], "a fatal error")
        assert crew.shares() == {"a": list(range(PARTITIONS)), "k": []}
        assert (moved(crew, "a"), lost(crew, "a")) == ([], [])


@pytest.mark.verify
def test_broker_without_the_feature_ends_the_member_of_kip_848(tmp_path: Path) -> None:
    """With `group.version` 0 no broker knows its requests. Ours notice nothing."""
    with (
        KafkaCluster(properties=FAST_BROKER) as cluster,
        MixedCrew(cluster, tmp_path, unique("orders"), PARTITIONS) as crew,
    ):
        cluster.run_tool("kafka-features", "downgrade", "--feature", "group.version=0")
        crew.join("a")
        crew.until_even("one of ours")
        guest = crew.visit("k")
        crew.until(lambda: guest.errors == [FATAL], "a fatal error")
        assert crew.shares() == {"a": list(range(PARTITIONS)), "k": []}
        assert (moved(crew, "a"), lost(crew, "a")) == ([], [])


@pytest.mark.parametrize("policy", ["disabled", "upgrade"])
@pytest.mark.verify
def test_broker_that_forbids_the_downgrade_goes_on_assigning(policy: str, tmp_path: Path) -> None:
    """No request but a JoinGroup makes its next target now. So ours join again by themselves."""
    properties = {**FAST_BROKER, "group.consumer.migration.policy": policy}
    with (
        KafkaCluster(properties=properties) as cluster,
        MixedCrew(cluster, tmp_path, unique("orders"), PARTITIONS) as crew,
    ):
        crew.visit("k")
        crew.until_even("one of KIP-848")
        crew.join("a")
        crew.until_even("and one of ours")
        kept = crew.shares()["a"]
        crew.leave("k")
        wait_for(crew.is_even, "the rest has a reader", LOOK_S_MAX, crew.poll)
        assert not set(kept) & stopped(crew, "a")
        crew.join("b")
        crew.until_even("and a second one of ours")
        assert (moved(crew, "a"), moved(crew, "b"), lost(crew, "a")) == ([True], [True], [])


@pytest.mark.verify
def test_console_consumer_of_java_comes_and_goes(crew: MixedCrew) -> None:
    """One such command is enough to make the broker assign. It ends when nothing has come."""
    crew.join("a")
    crew.until_even("one of ours")
    words = ("--topic", crew.topic, "--group", crew.ours.group_id, "--timeout-ms", "4000")
    new = ("--consumer-property", "group.protocol=consumer")
    command = threading.Thread(
        target=crew.cluster.run_tool, args=("kafka-console-consumer", *words, *new)
    )
    command.start()
    crew.until(lambda: moved(crew, "a") == [True], "the broker assigns")
    crew.until(lambda: not command.is_alive(), "the end of the command")
    crew.until_even("all is ours again")
    assert (moved(crew, "a"), lost(crew, "a")) == ([True, False], [])


@pytest.mark.verify
def test_share_consumer_under_the_same_id_is_refused(crew: MixedCrew) -> None:
    """A share group is another kind of group: the broker knows no such group under this id."""
    crew.join("a")
    crew.until_even("one of ours")
    share = ShareConsumer({**crew.cluster.client_config(), "group.id": crew.ours.group_id})
    share.subscribe([crew.topic])
    refused: list[int] = []

    def refuses() -> bool:
        try:
            share.poll(0.01)
        except KafkaException as error:
            refused.append(error.args[0].code())
        return bool(refused)

    crew.until(refuses, "a refusal")
    assert refused == [KafkaError.GROUP_ID_NOT_FOUND]
    assert crew.shares() == {"a": list(range(PARTITIONS))}


@pytest.mark.verify
def test_group_is_shared_at_the_defaults_of_a_broker(
    kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    """Members of KIP-848 send a heartbeat in 5 s, and ours in 3 s."""
    with MixedCrew(kafka_cluster, tmp_path, unique("orders"), PARTITIONS) as crew:
        defaults = {"heartbeat_interval_ms": 3_000, "session_timeout_ms": 45_000}
        crew.join("a", **defaults)
        crew.join("b", **defaults)
        crew.until_even("two of ours")
        crew.visit("k")
        crew.until_even("and one of KIP-848")
        crew.join("c", **defaults)
        crew.until_even("and a third of ours")
        crew.leave("a")
        crew.until_even("the first one left")
        crew.leave("k")
        crew.until_even("the one of KIP-848 left")
        assert lost(crew, "a", "b", "c") == []
