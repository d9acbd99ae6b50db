"""Many partitions, many members, and Kafka's own tools on the group."""

import json
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient

from coopgroup.telemetry import AssignmentReceived, MembershipLost, RoundRefused
from coopgroup.testing import KafkaCluster
from coopgroup.testing.trial.analysis import measure
from tests.support.live_group import Crew, playing, unique

pytestmark = pytest.mark.verify

MEMBERS = tuple(f"m{number}" for number in range(1, 9))
PARTITIONS = 200


def test_two_hundred_partitions_are_shared_when_eight_members_come_and_go(
    kafka_cluster: KafkaCluster,
) -> None:
    """Eight processes own each partition once, 25 each; then one process owns all."""
    with playing(kafka_cluster, partitions=PARTITIONS, rate=4.0, commit_interval_ms=500) as player:
        player.group.prepare(*MEMBERS)
        with player.trial.window() as opened:
            player.group.start(*MEMBERS)
            player.settle()
            player.group.watch.refresh()
            held = [sorted(log.owned) for log in player.group.watch.logs]
            assert [len(one) for one in held] == [PARTITIONS // len(MEMBERS)] * len(MEMBERS)
            assert sorted(one for owned in held for one in owned) == list(range(PARTITIONS))
            player.group.stop(*MEMBERS[1:])
            player.settle()
        player.group.watch.refresh()
        assert sorted(player.group.watch.logs[0].owned) == list(range(PARTITIONS))
        assert player.telemetry(RoundRefused) == []
        assert player.telemetry(MembershipLost) == []
        player.trial.finish()
        facts = measure(player.log(), opened.window)
        assert (facts.lost, facts.duplicated, facts.double_owner_transitions) == (0, 0, 0)
        assert facts.failed_commits == 0


def test_kafkas_own_tools_understand_the_group(kafka_cluster: KafkaCluster, tmp_path: Path) -> None:
    topic = unique("described")
    kafka_cluster.create_topic(topic, 4)
    with Crew(kafka_cluster, tmp_path) as crew:
        crew.add("a").subscribe([topic])
        crew.add("b", configuration={"group.instance.id": "static-b"}).subscribe([topic])
        crew.until(lambda: crew.share((topic, 4)), "a fair share")
        group_id = crew.group_id
        wanted = {
            (crew.members[name].memberid(), number)
            for name in ("a", "b")
            for _, number in crew.held(name)
        }
        state = kafka_cluster.run_tool(
            "kafka-consumer-groups", "--describe", "--group", group_id, "--state"
        ).stdout
        shown = kafka_cluster.run_tool(
            "kafka-consumer-groups", "--describe", "--group", group_id
        ).stdout
        rows = [line.split() for line in shown.splitlines() if topic in line]
        assert {(row[6], int(row[2])) for row in rows} == wanted
        assert "coopgroup" in state
        assert "Stable" in state
        admin = AdminClient({**kafka_cluster.client_config()})
        described = admin.describe_consumer_groups([group_id])[group_id].result(20)
        assert described.state == ConsumerGroupState.STABLE
        assert described.partition_assignor == "coopgroup"
        assert {
            (member.member_id, one.partition)
            for member in described.members
            for one in member.assignment.topic_partitions
        } == wanted
        assert {member.group_instance_id for member in described.members} == {None, "static-b"}
        assert {member.client_id for member in described.members} == {"a", "b"}


def test_telemetry_is_one_json_object_a_line(kafka_cluster: KafkaCluster, tmp_path: Path) -> None:
    """The gains in the file are those that the application received."""
    topic = unique("told")
    kafka_cluster.create_topic(topic, 3)
    told: list[tuple[str, int]] = []
    with Crew(kafka_cluster, tmp_path) as crew:
        crew.add("a").subscribe(
            [topic], on_assign=lambda _, parts: told.extend((p.topic, p.partition) for p in parts)
        )
        crew.until(lambda: crew.counts() == [3], "all is assigned")
        gained = [list(one.gained) for one in crew.telemetry("a", AssignmentReceived)]
        lines = (tmp_path / "a.jsonl").read_text().splitlines()
        assert all(json.loads(line)["group"] == crew.group_id for line in lines)
        assert gained == [told]
