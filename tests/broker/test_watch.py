"""The snapshot of real groups: ours, and one of KIP-848."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import IO, Any
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer

from coopgroup import CooperativeConsumer, CooperativeGroup, GroupResource, StartFailed
from coopgroup.assignors import GroupMember, PlacementAssignor, ResourceToPlace
from coopgroup.cli import app
from coopgroup.kafka.membership import telemetry_sink
from coopgroup.testing import KafkaCluster
from tests.broker.test_transport import Member
from tests.support.live_group import polling, produce, unique
from tests.support.waiting import wait_for

WAIT_S = 30.0


def _snapshot(
    cluster: KafkaCluster, group: str, capsys: pytest.CaptureFixture[str], *command: str
) -> dict[str, Any]:
    server = cluster.client_config()["bootstrap.servers"]
    words = command or ("watch",)
    assert app.run([*words, group, "--json", "--bootstrap-server", server]) == 0
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def test_group_of_ours_is_shown_with_owners_lags_and_generation(
    kafka_cluster: KafkaCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, group = unique("watched"), unique("group")
    kafka_cluster.create_topic(topic, 2)
    produce(kafka_cluster, topic, [3, 4])
    settings = {
        **kafka_cluster.client_config(),
        "group.id": group,
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": 100,
    }
    first = CooperativeConsumer(settings | {"client.id": "a", "group.instance.id": "pod-a"})
    second = CooperativeConsumer(settings | {"client.id": "b"})
    with first, second:
        first.subscribe([topic])
        second.subscribe([topic])
        with polling(first, second):
            wait_for(lambda: len(first.assignment()) == len(second.assignment()) == 1, "", WAIT_S)

            def committed() -> bool:
                found = _snapshot(
                    kafka_cluster, group, capsys
                )  # `lag` is the sum of the known ones
                return [one["lag"] for one in found["partitions"]] == [0, 0]

            wait_for(committed, "the commits", WAIT_S)
            found = _snapshot(kafka_cluster, group, capsys, "group", "describe")
            server = kafka_cluster.client_config()["bootstrap.servers"]
            assert app.run(["group", "describe", group, "--bootstrap-server", server]) == 0
            text = capsys.readouterr().out
    assert (found["state"], found["kind"], found["assignor"]) == ("stable", "classic", "coopgroup")
    members = {one["client_id"]: one for one in found["members"]}
    assert members["a"]["instance_id"] == "pod-a"
    assert all(one["is_coopgroup"] for one in members.values())
    assert sorted(one["end"] for one in found["partitions"]) == [3, 4]
    owners = {one["owner"] for one in found["partitions"]}
    assert owners == {one["member_id"] for one in members.values()}
    assert f"{group}: stable, coopgroup, 2 members, 2 partitions, lag 0" in text
    assert "pod-a (static)" in text


class Places(PlacementAssignor):
    """Members have places; the resource `odd` fits no member."""

    name = "places"

    def fits(self, member: GroupMember, resource: ResourceToPlace) -> bool:
        return resource.name != "odd"

    def places(self, member: GroupMember) -> int:
        return int(member.traits["places"])


def test_group_of_named_resources_shows_who_runs_what_and_what_has_no_room(
    kafka_cluster: KafkaCluster,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(telemetry_sink, "REPORT_MS", 1_000)
    topic, group = unique("telemetry"), unique("group")
    kafka_cluster.create_topic(topic, 1)
    settings: dict[str, Any] = {**kafka_cluster.client_config(), "group.id": group}
    settings |= {"coopgroup.telemetry.topic": topic}

    def member(name: str, places: int) -> CooperativeGroup:
        return CooperativeGroup(
            settings | {"client.id": name},
            catalogue=[("even", 0), ("even", 1), ("even", 2), ("odd", 0)],
            start=lambda _: None,
            stop=lambda _: None,
            assignor=Places(),
            member={"places": places},
        )

    with member("w1", 1) as first, member("w2", 1) as second:
        wait_for(lambda: len(first.held()) == len(second.held()) == 1, "each has one", WAIT_S)
        told = {one.client_id: one for one in first.members()}
        assert [told[name].traits for name in ("w1", "w2")] == [{"places": 1}] * 2
        assert told["w1"].resources == first.held()

        def shown() -> dict[str, Any]:
            words = ("group", "describe", "--telemetry-topic", topic)
            return _snapshot(kafka_cluster, group, capsys, *words)

        def is_complete() -> bool:
            found = shown()
            owned = [one for one in found["resources"] if one["owner"] and one["since_ms"]]
            return len(found["resources"]) == 4 and len(owned) == 2

        wait_for(is_complete, "telemetry", WAIT_S)
        found = shown()
        server = kafka_cluster.client_config()["bootstrap.servers"]
        told_topic = ("--telemetry-topic", topic, "--bootstrap-server", server)
        assert app.run(["group", "describe", group, *told_topic]) == 0
        text = capsys.readouterr().out
        leads = {"w1": first.leads, "w2": second.leads}
    rows = {f"{one['name']}-{one['index']}": one for one in found["resources"]}
    assert rows["odd-0"]["state"] == "no room"
    assert "it fits no member" in rows["odd-0"]["why"]
    assert {one["client_id"]: one["leads"] for one in found["members"]} == leads
    assert [one["resources"] for one in found["members"]] == [1, 1]
    assert "4 resources (2 without owner), leader w" in text
    assert '{"places":1}' in text
    assert not [word for word in ("partition", "topic", "lag") if word in text.lower()]


def test_start_that_failed_permanently_is_seen_from_outside(
    kafka_cluster: KafkaCluster,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(telemetry_sink, "REPORT_MS", 1_000)
    topic, group = unique("telemetry"), unique("group")
    kafka_cluster.create_topic(topic, 1)

    def fail(_: GroupResource) -> None:
        raise StartFailed("no such table")

    settings: dict[str, Any] = {**kafka_cluster.client_config(), "group.id": group}
    settings |= {"coopgroup.telemetry.topic": topic}
    member = CooperativeGroup(settings, catalogue=[("audit", 0)], start=fail, stop=lambda _: None)
    with member:

        def states() -> list[tuple[str, str]]:
            words = ("group", "describe", "--telemetry-topic", topic)
            rows = _snapshot(kafka_cluster, group, capsys, *words)["resources"]
            return [(row["state"], row["why"]) for row in rows]

        wait_for(member.failed, "the failure", WAIT_S)  # before, there may be no group to describe
        failed = [("failed", "StartFailed: no such table")]
        wait_for(lambda: states() == failed, "its report", WAIT_S)
        time.sleep(2.5)  # the next reports keep it
        assert states() == failed


def _event(events: IO[bytes], is_wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Return the first event about the group that is wanted."""
    deadline_s = time.monotonic() + WAIT_S
    while time.monotonic() < deadline_s:
        name, _, text = events.readline().decode().partition(": ")
        found: dict[str, Any] = json.loads(text) if name == "data" else {}
        if "members" in found and is_wanted(found):
            return found
    raise AssertionError("no such event")


@pytest.mark.verify
def test_member_with_an_unreadable_assignment_ends_no_tool(kafka_cluster: KafkaCluster) -> None:
    """An assertion in librdkafka ended the process (SIGABRT)."""
    group, config = unique("unreadable"), kafka_cluster.client_config()
    server = config["bootstrap.servers"]
    program = [sys.executable, "-m", "coopgroup"]
    member = Member(config, group)
    member.protocol_type, member.work = "consumer", b"\0"
    try:
        member.find()
        member.sync(member.join(), member.member_id).get(timeout=WAIT_S)

        def said(*command: str) -> str:
            arguments = [*program, *command, "--bootstrap-server", server]
            ended = subprocess.run(
                arguments, check=False, capture_output=True, text=True, timeout=60
            )
            assert ended.returncode >= 0, ended.stderr
            return ended.stdout

        (shown,) = json.loads(said("watch", group, "--json"))["members"]
        assert (shown["member_id"], shown["is_readable"]) == (member.member_id, False)
        assert "unreadable" in said("group", "describe", group)
        assert group in said("group", "migrate", group, "--check")
        command = [*program, "watch", group, "--http", "0", "--bootstrap-server", server]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as page:
            try:
                assert page.stdout is not None
                url = page.stdout.readline().partition(" ")[0]
                with urlopen(f"{url}events", timeout=WAIT_S) as events:  # noqa: S310 - our own URL
                    _event(events, lambda one: "unreadable" in str(one["members"]["rows"]))
            finally:
                page.send_signal(signal.SIGINT)
        assert page.returncode == 0
    finally:
        assert member.transport.close()


def test_group_of_kip_848_is_shown(
    kafka_cluster: KafkaCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, group = unique("kip848"), unique("group")
    kafka_cluster.create_topic(topic, 2)
    consumer = Consumer(
        {
            **kafka_cluster.client_config(),
            "group.id": group,
            "client.id": "new",
            "group.protocol": "consumer",
        }
    )
    assigned: list[object] = []
    # Not `assignment`: a second thread in the same client may wait for ever.
    consumer.subscribe([topic], on_assign=lambda _, parts: assigned.extend(parts))
    try:
        with polling(consumer):
            wait_for(lambda: len(assigned) == 2, "the partitions", WAIT_S)
            found = _snapshot(kafka_cluster, group, capsys)
    finally:
        consumer.close()
    assert (found["kind"], found["state"]) == ("consumer", "stable")
    (member,) = found["members"]
    assert (member["client_id"], member["partitions"]) == ("new", 2)
    assert {one["state"] for one in found["partitions"]} == {"owned"}


def test_group_that_does_not_exist_is_one_line(
    kafka_cluster: KafkaCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    server = kafka_cluster.client_config()["bootstrap.servers"]
    assert app.run(["watch", "nobody", "--json", "--bootstrap-server", server]) == 2
    assert "GROUP: got 'nobody', expected a group that exists" in capsys.readouterr().err
