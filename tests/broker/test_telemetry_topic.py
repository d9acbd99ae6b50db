"""`coopgroup.telemetry.topic` on a real broker: what members write there, and what they survive."""

import asyncio
import json
from pathlib import Path

import pytest

from coopgroup import CooperativeGroup
from coopgroup.aio import AsyncCooperativeConsumer
from coopgroup.cli import app
from coopgroup.telemetry import ResourcesStarted, from_json
from coopgroup.testing import KafkaCluster
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
    kafka_cluster: KafkaCluster, tmp_path: Path, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the first join to the last stop, in the order of each member; and reports."""
    shared = unique("T")
    kafka_cluster.create_topic(shared, PARTITIONS)
    with Crew(kafka_cluster, tmp_path) as crew:
        for name in ("a", "b"):
            more = {KEY: topic, "coopgroup.telemetry.report.interval.ms": 1_000}
            crew.add(name, configuration=more).subscribe([shared])
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
    shared = unique("T")
    kafka_cluster.create_topic(shared, PARTITIONS)
    configuration = {**kafka_cluster.client_config(), KEY: topic}
    started: list[object] = []
    with CooperativeGroup(
        {**configuration, "group.id": "of-resources"},
        catalogue=[("job", 0), ("job", 1)],
        start=started.append,
        stop=lambda _: None,
    ):
        wait_for(lambda: len(started) >= 2, "the resources")

    async def consume() -> None:
        settings = {**configuration, "group.id": "of-asyncio"}
        async with AsyncCooperativeConsumer(settings) as consumer:
            assigned = asyncio.Event()
            consumer.subscribe([shared], on_assign=lambda *_: assigned.set())
            await asyncio.wait_for(assigned.wait(), 30.0)

    asyncio.run(consume())
    found = [from_json(json.loads(one)) for one in read(kafka_cluster, topic, capsys)]
    writers = {one.group for one in found if isinstance(one.record, ResourcesStarted)}
    assert writers == {"of-resources", "of-asyncio"}
