"""Tools for a group whose members of coopgroup speak KIP-848, from its first member to its last."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from attrs import define
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from coopgroup import CooperativeConsumer
from coopgroup.cli import app
from coopgroup.kafka.rpc.questions import ASSIGNMENT_INTERVAL
from coopgroup.testing import KafkaCluster
from tests.support.live_group import polling, unique
from tests.support.waiting import wait_for

CONSUMER = ("--protocol", "consumer")


@define
class Group:
    """A group of consumers that share four partitions, and what the tools say about it."""

    cluster: KafkaCluster
    capsys: pytest.CaptureFixture[str]
    name: str
    topic: str

    @contextmanager
    def member(self, name: str, protocol: str) -> Iterator[CooperativeConsumer]:
        """Run a member that is polled; it closes at the end."""
        settings = {**self.cluster.client_config(), "group.id": self.name, "client.id": name}
        with CooperativeConsumer(settings | {"group.protocol": protocol}) as consumer:
            consumer.subscribe([self.topic])
            with polling(consumer):
                yield consumer

    def said(self, *words: str) -> str:
        server = self.cluster.client_config()["bootstrap.servers"]
        assert app.run(["group", *words, "--bootstrap-server", server]) == 0
        return self.capsys.readouterr().out

    def step(self, *words: str) -> str:
        """Return the first line of the advice."""
        lines = self.said("migrate", self.name, "--check", *words).splitlines()
        return next(one for one in lines if one.startswith(("next", "done")))

    def described(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.said("describe", self.name, "--json"))
        return found


@pytest.fixture
def group(kafka_cluster: KafkaCluster, capsys: pytest.CaptureFixture[str]) -> Group:
    topic = unique("tools")
    kafka_cluster.create_topic(topic, 4)
    return Group(kafka_cluster, capsys, unique("group"), topic)


def until_counts(*members: CooperativeConsumer) -> None:
    """Wait until the members share evenly."""
    share = 4 // len(members)
    wait_for(lambda: all(len(one.assignment()) == share for one in members), f"{share} each")


def check_mixed(group: Group, new: CooperativeConsumer) -> None:
    """Check the description of a member of each protocol, called "new" and "old"."""
    wait_for(lambda: group.described()["state"] == "stable", "a settled group")
    found = group.described()
    assert (found["kind"], found["assignor"]) == ("consumer", "uniform")
    told = [(one["client_id"], one["protocol"], one["partitions"]) for one in found["members"]]
    assert told == [("new", "consumer", 2), ("old", "classic", 2)]
    epochs = {one["member_id"]: one["generation"] for one in found["members"]}
    health = new.health()
    assert epochs[new.memberid()] == health.generation
    assert (health.leads, health.broker_assigns) == (False, True)
    owned = {one["partition"] for one in found["partitions"] if one["owner"] == new.memberid()}
    assert owned == {one.partition for one in new.assignment()}
    shown = group.said("describe", group.name)
    assert "the broker assigns (KIP-848)" in shown
    assert "not known, classic protocol" in shown


def test_group_moves_to_consumer_and_back_as_the_tools_say(
    group: Group, caplog: pytest.LogCaptureFixture
) -> None:
    """A member that chose the protocol itself is not warned that the broker assigns."""
    with ExitStack() as to_end, ExitStack() as first, ExitStack() as second:
        old = first.enter_context(group.member("old", "classic"))
        until_counts(old)
        assert group.step(*CONSUMER) == "next: restart the member as coopgroup with"
        new = second.enter_context(group.member("new", "consumer"))
        until_counts(old, new)
        check_mixed(group, new)
        assert group.step(*CONSUMER) == "next: restart the member with group.protocol=classic"
        assert group.step() == "next: restart the member with group.protocol=consumer"
        first.close()
        until_counts(new)
        assert group.step(*CONSUMER) == "done: all members have group.protocol=consumer"
        chose = str(new.memberid())
        back = to_end.enter_context(group.member("back", "classic"))
        until_counts(back, new)
        second.close()
        until_counts(back)
        wait_for(lambda: group.step() == "done: all members are coopgroup", "a classic group")
    warned = [one.getMessage() for one in caplog.records if "assigning_moved" in one.getMessage()]
    assert warned
    assert not [one for one in warned if chose in one]


def test_assignment_interval_of_a_group_is_set(
    kafka_cluster: KafkaCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    group, server = unique("group"), kafka_cluster.client_config()["bootstrap.servers"]
    assert app.run(["setup", "--group", group, "--bootstrap-server", server]) == 0
    assert f"{ASSIGNMENT_INTERVAL} of group {group} is 0" in capsys.readouterr().out
    admin = AdminClient({**kafka_cluster.client_config()})
    resource = ConfigResource(ResourceType.GROUP, group)

    def is_set() -> bool:
        settings = admin.describe_configs([resource])[resource].result()
        return bool(settings[ASSIGNMENT_INTERVAL].value == "0")

    wait_for(is_set, "the broker has learned it from the controller")


@pytest.mark.verify
def test_brokers_without_kip_848_are_in_the_way(capsys: pytest.CaptureFixture[str]) -> None:
    """With `group.version` 0, a broker of Kafka 4 refuses as brokers of Kafka 3 do."""
    with KafkaCluster() as cluster:
        cluster.run_tool("kafka-features", "downgrade", "--feature", "group.version=0")
        cluster.create_topic("t", 4)
        group = Group(cluster, capsys, "g", "t")
        with group.member("a", "classic") as member:
            until_counts(member)
            assert group.described()["kind"] == "classic"
            server = cluster.client_config()["bootstrap.servers"]
            words = ["group", "migrate", "g", "--check", *CONSUMER, "--bootstrap-server", server]
            assert app.run(words) == 1
            assert "in the way: these brokers refuse group.protocol=consumer" in (
                capsys.readouterr().out
            )
