"""Members of coopgroup beside members of KIP-848: the broker assigns while those are in the group.

The policy takes over again when the last of them has left. Every story is played under load.
"""

import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from coopgroup.telemetry import AssigningMoved
from coopgroup.testing import KafkaCluster
from tests.support.mixed_group import FAST_BROKER, PARTITIONS, MixedGroup


@pytest.fixture(scope="module")
def fast_broker() -> Iterator[KafkaCluster]:
    with KafkaCluster(properties=FAST_BROKER) as cluster:
        yield cluster


@pytest.fixture
def mixed(fast_broker: KafkaCluster, tmp_path: Path) -> Iterator[MixedGroup]:
    with MixedGroup(fast_broker, None, tmp_path) as group:
        yield group


def join(mixed: MixedGroup, *names: str) -> None:
    for name in names:
        mixed.ours(name, "coopgroup")


def moved(mixed: MixedGroup, name: str) -> list[bool]:
    return [one.to_broker for one in mixed.records(name, AssigningMoved)]


def until_moved(mixed: MixedGroup, moves: list[bool], *names: str) -> None:
    mixed.until(lambda: all(moved(mixed, one) == moves for one in names), f"{names}: {moves}")


def test_group_is_shared_when_a_member_of_kip_848_comes_and_goes(
    mixed: MixedGroup, caplog: pytest.LogCaptureFixture
) -> None:
    """A new member of ours gets its share meanwhile. What stays is never stopped."""
    join(mixed, "a", "b")
    mixed.settle("a", "b")
    kept = mixed.shares()
    mixed.kip848("k")
    mixed.settle("a", "b", "k")
    assert all(set(mixed.shares()[name]) < set(kept[name]) for name in "ab")
    join(mixed, "c")
    mixed.settle("a", "b", "c", "k")
    mixed.stop("a")
    mixed.settle("b", "c", "k")
    kept, began_s = mixed.shares(), time.monotonic()
    mixed.stop("k")
    mixed.settle("b", "c")
    assert all(set(mixed.shares()[name]) > set(kept[name]) for name in "bc")
    mixed.check_kept(began_s, "b", "c")
    until_moved(mixed, [True, False], "b", "c")
    assert moved(mixed, "a") == [True]
    warned = [one for one in caplog.records if getattr(one, "event", "") == "assigning_moved"]
    assert [one.levelno for one in warned] == [logging.WARNING] * 5
    assert "group.protocol=consumer" in warned[0].getMessage()
    mixed.finish()
    assert mixed.ledger.lost == []


def test_member_joins_a_group_of_kip_848_and_takes_over(mixed: MixedGroup) -> None:
    """One bounce: two members of KIP-848 are replaced one by one, and two of ours after them.

    Each record is handed out once: members commit before they give up a partition.
    """
    mixed.kip848("k1")
    mixed.settle("k1")
    mixed.kip848("k2")
    mixed.settle("k1", "k2")
    join(mixed, "a")
    mixed.settle("k1", "k2", "a")
    mixed.stop("k1")
    mixed.settle("k2", "a")
    join(mixed, "b")
    mixed.settle("k2", "a", "b")
    mixed.stop("k2")
    mixed.settle("a", "b")
    until_moved(mixed, [True, False], "a")
    mixed.kip848("k3")
    mixed.settle("a", "b", "k3")
    mixed.stop("a")
    mixed.settle("b", "k3")
    mixed.kip848("k4")
    mixed.settle("b", "k3", "k4")
    mixed.stop("b")
    mixed.settle("k3", "k4")
    mixed.finish()
    assert (mixed.ledger.repeated(), mixed.ledger.lost) == (0, [])


@pytest.mark.parametrize("identity", ["group_instance_id", "coopgroup_state_dir"])
def test_member_that_proves_who_it_is_returns_beside_one_of_kip_848(
    mixed: MixedGroup, tmp_path: Path, identity: str
) -> None:
    """It closes silently, and a new process finds what it had.

    With a state directory it syncs without a join, so only the bytes of the answer tell that the
    broker assigns.
    """
    proof: Any = "one" if identity == "group_instance_id" else str(tmp_path / "state")
    mixed.ours("a", "coopgroup", **{identity: proof})
    join(mixed, "b")
    mixed.settle("a", "b")
    mixed.kip848("k")
    mixed.settle("a", "b", "k")
    before, began_s = mixed.shares(), time.monotonic()
    mixed.stop("a")
    mixed.ours("a", "coopgroup", **{identity: proof})
    mixed.settle("a", "b", "k")
    assert mixed.shares() == before
    mixed.check_kept(began_s, "b")
    mixed.stop("k")
    mixed.settle("a", "b")
    assert mixed.ledger.lost == []


def test_commits_are_accepted_throughout(mixed: MixedGroup) -> None:
    """A synchronous commit before, while and after the broker assigns."""
    consumer = mixed.ours("a", "coopgroup", enable_auto_commit=False)
    accepted: list[int] = []
    over = threading.Event()

    def commit() -> None:
        try:
            consumer.commit(asynchronous=False)
            accepted.append(len(mixed.shares()["a"]))
        except KafkaException as error:
            if error.args[0].code() != KafkaError._NO_OFFSET:
                raise  # the member fails
        if not over.is_set():
            mixed.call("a", commit)

    def commits(count: int) -> None:
        before = len(accepted)
        mixed.until(lambda: len(accepted) >= before + count, f"{count} commits")

    mixed.settle("a")
    mixed.call("a", commit)
    commits(5)
    mixed.kip848("k")
    mixed.settle("a", "k")
    commits(5)
    mixed.stop("k")
    mixed.settle("a")
    commits(5)
    over.set()
    assert {PARTITIONS, PARTITIONS // 2} <= set(accepted)


@pytest.mark.verify
def test_broker_that_forbids_the_upgrade_ends_the_member_of_kip_848(tmp_path: Path) -> None:
    """Its client fails for good. Ours keep everything, and are told nothing."""
    properties = {**FAST_BROKER, "group.consumer.migration.policy": "downgrade"}
    with (
        KafkaCluster(properties=properties) as cluster,
        MixedGroup(cluster, None, tmp_path) as mixed,
    ):
        join(mixed, "a")
        mixed.settle("a")
        mixed.kip848("k")
        mixed.until(lambda: mixed.ledger.failed == {"k": "fatal"}, "a fatal error")
        assert mixed.shares() == {"a": list(range(PARTITIONS))}
        assert (moved(mixed, "a"), mixed.ledger.lost) == ([], [])


@pytest.mark.verify
def test_broker_without_the_feature_ends_the_member_of_kip_848(tmp_path: Path) -> None:
    """With `group.version` 0 no broker knows its requests. Ours notice nothing."""
    with (
        KafkaCluster(properties=FAST_BROKER) as cluster,
        MixedGroup(cluster, None, tmp_path) as mixed,
    ):
        cluster.run_tool("kafka-features", "downgrade", "--feature", "group.version=0")
        join(mixed, "a")
        mixed.settle("a")
        mixed.kip848("k")
        mixed.until(lambda: mixed.ledger.failed == {"k": "fatal"}, "a fatal error")
        assert mixed.shares() == {"a": list(range(PARTITIONS))}
        assert (moved(mixed, "a"), mixed.ledger.lost) == ([], [])


@pytest.mark.verify
def test_broker_that_forbids_the_downgrade_goes_on_assigning(tmp_path: Path) -> None:
    """No request but a JoinGroup makes its next target now. So ours join again by themselves."""
    properties = {**FAST_BROKER, "group.consumer.migration.policy": "upgrade"}
    with (
        KafkaCluster(properties=properties) as cluster,
        MixedGroup(cluster, None, tmp_path) as mixed,
    ):
        mixed.kip848("k")
        mixed.settle("k")
        join(mixed, "a")
        mixed.settle("k", "a")
        kept = mixed.shares()["a"]
        mixed.stop("k")
        mixed.until(lambda: mixed.is_even("a"), "the rest has a reader")
        assert set(mixed.shares()["a"]) >= set(kept)
        join(mixed, "b")
        until_moved(mixed, [True], "a", "b")
        assert mixed.ledger.lost == []


@pytest.mark.verify
def test_console_consumer_of_java_comes_and_goes(mixed: MixedGroup) -> None:
    """One such command is enough to make the broker assign. It ends after some records."""
    join(mixed, "a")
    mixed.settle("a")
    words = ("--topic", mixed.topic, "--group", mixed.group_id, "--max-messages", "20")
    new = ("--consumer-property", "group.protocol=consumer")
    command = threading.Thread(
        target=mixed.cluster.run_tool, args=("kafka-console-consumer", *words, *new)
    )
    command.start()
    until_moved(mixed, [True, False], "a")
    command.join()
    mixed.settle("a")
    assert mixed.ledger.lost == []
