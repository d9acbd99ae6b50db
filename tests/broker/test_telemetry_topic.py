"""`coopgroup.telemetry.topic` on a real broker: what members write there, and what they survive."""

import asyncio
import json
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from coopgroup import CooperativeGroup
from coopgroup.aio import AsyncCooperativeConsumer
from coopgroup.cli import app
from coopgroup.errors import ConfigurationError
from coopgroup.kafka.config.connection_settings import read_connection_settings
from coopgroup.kafka.membership import telemetry_sink
from coopgroup.kafka.rpc.transport import GroupTransport
from coopgroup.telemetry import ResourcesStarted, from_json
from coopgroup.testing import KafkaCluster
from coopgroup.watch.telemetry_topics import TelemetryReader
from tests.support.growing_file import whole_lines
from tests.support.live_group import Crew, unique
from tests.support.waiting import wait_for

PARTITIONS = 4
KEY = "coopgroup.telemetry.topic"


@pytest.fixture
def topic(kafka_cluster: KafkaCluster, capsys: pytest.CaptureFixture[str]) -> str:
    """Return a topic made by `coopgroup setup`."""
    name = unique("telemetry")
    arguments = ["--telemetry-topic", name, "--bell-topic", f"{name}-bell"]
    arguments += ["--bootstrap-server", kafka_cluster.bootstrap_servers]
    assert app.run(["setup", *arguments]) == 0
    assert f"{name} is created" in capsys.readouterr().out
    return name


def read(
    cluster: KafkaCluster, topic: str, capsys: pytest.CaptureFixture[str], *more: str
) -> list[bytes]:
    """Return the lines that `coopgroup telemetry read` prints."""
    capsys.readouterr()
    server = ["--bootstrap-server", cluster.bootstrap_servers]
    assert app.run(["telemetry", "read", topic, *server, *more]) == 0
    return capsys.readouterr().out.encode().splitlines()


def in_files(crew: Crew, *names: str) -> list[list[bytes]]:
    return [whole_lines(crew.folder / f"{name}.jsonl") for name in names]


@pytest.mark.verify
def test_topic_has_the_lines_of_the_files(
    kafka_cluster: KafkaCluster,
    tmp_path: Path,
    topic: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From the first join to the last stop, in the order of each member; and reports."""
    monkeypatch.setattr(telemetry_sink, "REPORT_MS", 1_000)
    shared = unique("T")
    kafka_cluster.create_topic(shared, PARTITIONS)
    with Crew(kafka_cluster, tmp_path) as crew:
        for name in ("a", "b"):
            crew.add(name, configuration={KEY: topic}).subscribe([shared])
            crew.until(lambda: crew.share((shared, PARTITIONS)), "a share for each")
        server = ["--bootstrap-server", kafka_cluster.bootstrap_servers]
        watch = ["watch", crew.group_id, "--json", "--telemetry-topic", topic, *server]

        def shows_why() -> bool:
            assert app.run(watch) == 0
            moves = json.loads(capsys.readouterr().out)["moves"]
            return any(one["kind"] == "round" and "New: b" in one["why"] for one in moves)

        crew.until(shows_why, "the round of the second member")
        describe = ["group", "describe", *watch[1:]]

        def shows_leases() -> bool:
            assert app.run(describe) == 0
            members = json.loads(capsys.readouterr().out)["members"]
            return len(members) == 2 and all(
                one["since_poll_s"] is not None and 0 < (one["lease_s"] or 0) <= 6
                for one in members
            )

        crew.until(shows_leases, "the reports of both")
        crew.remove("b")
        crew.until(lambda: crew.share((shared, PARTITIONS)), "all for the first")
        crew.remove("a")
    files = in_files(crew, "a", "b")
    everything = read(kafka_cluster, topic, capsys)
    found = [one for one in everything if b'"kind":"member_reported"' not in one]
    assert len(everything) > len(found)
    assert [[one for one in found if one in lines] for lines in files] == files
    assert len(found) == sum(map(len, files)) > 20
    assert read(kafka_cluster, topic, capsys, "--group", crew.group_id) == everything
    assert read(kafka_cluster, topic, capsys, "--group", "another") == []
    assert read(kafka_cluster, topic, capsys, "--minutes", "5") == everything


def test_groups_and_asyncio_write_there_too(
    kafka_cluster: KafkaCluster, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both are read while their member runs: a closing member has one second for its records."""
    shared = unique("T")
    kafka_cluster.create_topic(shared, PARTITIONS)
    configuration = {**kafka_cluster.client_config(), KEY: topic}

    def wait_until_told(group: str) -> None:
        def is_told() -> bool:
            found = [from_json(json.loads(one)) for one in read(kafka_cluster, topic, capsys)]
            return any(
                one.group == group and isinstance(one.record, ResourcesStarted) for one in found
            )

        wait_for(is_told, f"the started resources of {group}")

    with CooperativeGroup(
        {**configuration, "group.id": "of-resources"},
        catalogue=[("job", 0), ("job", 1)],
        start=lambda _: None,
        stop=lambda _: None,
    ):
        wait_until_told("of-resources")

    async def consume() -> None:
        settings = {**configuration, "group.id": "of-asyncio"}
        async with AsyncCooperativeConsumer(settings) as consumer:
            consumer.subscribe([shared])
            await asyncio.to_thread(wait_until_told, "of-asyncio")

    asyncio.run(consume())


def test_topic_that_was_made_again_is_read_from_its_beginning(kafka_cluster: KafkaCluster) -> None:
    """The new topic has more records, so a reader at the old offset would not notice."""
    name, config = unique("telemetry"), kafka_cluster.client_config()
    admin, producer = AdminClient(dict(config)), Producer(dict(config))
    settings = {**config, "group.id": name}

    def make(word: str, count: int) -> set[bytes]:
        kafka_cluster.create_topic(name, 1)
        lines = {f"{word} {number}".encode() for number in range(count)}
        for line in lines:
            producer.produce(name, line, key=b"g")
        assert producer.flush(30.0) == 0
        return lines

    old = make("old", 3)
    transport = GroupTransport(read_connection_settings(config), lambda _: None)
    transport.start()
    with (
        closing(transport),
        TelemetryReader(settings, name, "g", None, 30.0, transport) as reader,
    ):
        found = set(reader.read_to_end())
        assert found == old
        assert list(reader.read_now()) == []  # it takes the id of the old topic
        admin.delete_topics([name])[name].result()
        wait_for(lambda: name not in admin.list_topics().topics, "the end of the topic")
        new = make("new", 5)

        def has_all() -> bool:
            try:
                found.update(reader.read_now())
            except ConfigurationError:  # while the topic is missing
                return False
            return found == old | new

        wait_for(has_all, "the records of the new topic")
        assert reader.times_made_again == 1
