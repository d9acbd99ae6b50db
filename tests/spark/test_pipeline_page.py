"""docs/pipeline.md: its commands, run against a real broker with real groups."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer

from coopgroup import CooperativeConsumer, SimplePolicy
from coopgroup.cli.app import run
from coopgroup.pipeline.schemas import TABLES
from coopgroup.pipeline.tables import Tables
from tests.spark.frames import rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from coopgroup.testing import KafkaCluster

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "pipeline.md").read_text()
TOPIC, PARTITIONS, RECORDS = "pipeline-orders", 4, 400
OURS, THEIRS = "pipeline-ours", "pipeline-theirs"
WAIT_S = 90.0


def page_commands() -> list[list[str]]:
    """The commands that the page shows at a prompt."""
    blocks = PAGE.split("```console\n")[1:]
    lines = [line for block in blocks for line in block.partition("```")[0].splitlines()]
    return [shlex.split(line.removeprefix("$ ")) for line in lines if line.startswith("$ ")]


def poll_until(consumers: list[Any], is_over: Callable[[], bool]) -> None:
    """Let consumers work, committing as they go."""
    deadline = time.monotonic() + WAIT_S
    while not is_over():
        assert time.monotonic() < deadline
        for consumer in consumers:
            consumer.poll(0.02)


def is_shared(consumers: list[Any]) -> bool:
    """Whether all partitions are assigned, evenly."""
    counts = [len(one.assignment()) for one in consumers]
    return sum(counts) == PARTITIONS and max(counts) - min(counts) <= 1


def is_through(consumers: list[Any]) -> bool:
    """Whether everything is committed."""
    places = [place for one in consumers for place in one.committed(one.assignment())]
    return sum(max(0, int(place.offset)) for place in places) == RECORDS


def live(config: dict[str, str], telemetry: Path) -> None:
    """Two groups, of librdkafka's consumers and of ours: one member goes and comes back in each."""
    common = {
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": 200,
        "session.timeout.ms": 6_000,
        "heartbeat.interval.ms": 500,
    }

    def theirs(name: str) -> Consumer:
        own = {"group.id": THEIRS, "client.id": name, **common}
        consumer = Consumer({**config, **own})
        consumer.subscribe([TOPIC])
        return consumer

    def ours(name: str) -> CooperativeConsumer:
        own = {"group.id": OURS, "client.id": name, "coopgroup.telemetry.file": str(telemetry)}
        consumer = CooperativeConsumer({**config, **own, **common}, policy=SimplePolicy())
        consumer.subscribe([TOPIC])
        return consumer

    with ExitStack() as closing:
        makers: tuple[Callable[[str], Any], ...] = (theirs, ours)
        groups = [[make("m1"), make("m2")] for make in makers]
        everybody = [one for group in groups for one in group]
        for one in everybody:
            closing.callback(one.close)
        poll_until(everybody, lambda: all(map(is_shared, groups)))
        started = time.monotonic()
        poll_until(everybody, lambda: time.monotonic() > started + 1)
        for group, make in zip(groups, makers, strict=True):
            group.pop().close()
            poll_until(groups[0] + groups[1], partial(is_shared, group))
            back = make("m2")
            closing.callback(back.close)
            group.append(back)
        poll_until(groups[0] + groups[1], lambda: all(map(is_shared, groups)))
        poll_until(groups[0] + groups[1], lambda: all(map(is_through, groups)))


@pytest.fixture(scope="module")
def tables(
    spark: SparkSession,
    kafka_cluster: KafkaCluster,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Tables]:
    """Tables that the page's commands made, in its order."""
    folder = tmp_path_factory.mktemp("page")
    before = Path.cwd()
    config = kafka_cluster.client_config()
    kafka_cluster.create_topic(TOPIC, PARTITIONS)
    producer = Producer(config)
    for number in range(RECORDS):
        producer.produce(TOPIC, b"x", partition=number % PARTITIONS)
    producer.flush()
    live(config, folder / "telemetry.jsonl")
    os.chdir(folder)
    try:
        for command in page_commands():
            arguments = [
                kafka_cluster.bootstrap_servers if one == "localhost:9092" else one
                for one in command[1:]
            ]
            assert run(arguments) == 0, command
        yield Tables(spark=spark, folder=str(folder / "history"))
    finally:
        os.chdir(before)


def test_page_shows_every_job() -> None:
    """From the history to the episodes, in the order in which they need each other."""
    names = [command[2] for command in page_commands()]
    assert names == ["history", "lag", "telemetry", "episodes"]


@pytest.mark.parametrize("name", sorted(TABLES))
def test_page_names_every_table(name: str) -> None:
    """With the columns that a reader needs; sources of records are described once."""
    assert f"`{name}`" in PAGE


def test_no_row_is_there_twice(tables: Tables) -> None:
    """What a table says makes a row, makes one row."""
    twice = {
        name: tables.read(name).groupBy(*table.key).count().where("count > 1").count()
        for name, table in TABLES.items()
    }
    assert twice == dict.fromkeys(TABLES, 0)


def test_history_has_the_groups_of_both_clients(tables: Tables) -> None:
    """Who they are, what they agreed on, and what they had committed in the end."""
    generations = tables.read("generations")
    agreed = generations.where("member_count = 2").select("group", "protocol_type").distinct()
    assert rows(agreed.where(f"group IN ('{OURS}', '{THEIRS}')")) == [
        (OURS, "consumer"),
        (THEIRS, "consumer"),
    ]
    members = tables.read("members").where(f"group = '{THEIRS}'")
    assert rows(members.select("client_id", "client_host", "topics").distinct()) == [
        ("m1", "/127.0.0.1", [TOPIC]),
        ("m2", "/127.0.0.1", [TOPIC]),
    ]
    commits = tables.read("commits").where(f"topic = '{TOPIC}'").groupBy("group", "partition")
    assert {row[2] for row in rows(commits.agg({"committed": "max"}))} == {RECORDS // PARTITIONS}
    held = tables.read("assignments").where(f"group = '{OURS}'")
    assert {row[0] for row in rows(held, "partition")} == set(range(PARTITIONS))
    assert rows(tables.read("rejected").where("source != '__consumer_offsets'")) == []


def test_nothing_lags_in_the_end(tables: Tables) -> None:
    """The last moment is now, and everything was committed."""
    lag = tables.read("lag").where(f"topic = '{TOPIC}'")
    last = lag.groupBy("group", "partition").agg({"at_ms": "max"})
    last = last.withColumnRenamed("max(at_ms)", "at_ms")
    found = lag.join(last, ["group", "partition", "at_ms"])
    assert {row[0] for row in rows(found, "lag")} == {0}
    assert rows(found, "group") == [(OURS,)] * PARTITIONS + [(THEIRS,)] * PARTITIONS


@pytest.mark.parametrize("group", [OURS, THEIRS])
def test_episodes_tell_the_story(group: str, tables: Tables) -> None:
    """Members joined, m2 went and came back as the same client, all went."""
    history = tables.read("rebalances").where(f"group = '{group}' AND source = 'history'")
    found = history.orderBy("begin_ms").collect()
    # It all happens within a few seconds, which may make it one rebalance.
    assert found[0].trigger == "created"
    assert found[-1].members_after == 0
    gone = tables.read("absences").where(f"group = '{group}' AND returned_as != 'never'")
    assert rows(gone, "client_id", "returned_as") == [("m2", "client_and_host")]


def test_telemetry_knows_more_than_the_history(tables: Tables) -> None:
    """Our group's leaders say what they decided, and its members when they worked."""
    ours = tables.read("rebalances").where("source = 'telemetry'")
    assert {row[0] for row in rows(ours, "group")} == {OURS}
    assert sum(row[0] for row in rows(ours, "moved")) >= 2


@pytest.mark.parametrize(
    ("topic", "said"),
    [
        (TOPIC, f"{TOPIC} holds no history: none of its records is a commit or a group"),
        ("pipeline-nothing", "pipeline-nothing is empty: no group has committed or joined yet"),
        ("pipeline-gone", "there is no topic pipeline-gone: no group has ever committed"),
    ],
)
def test_a_foreign_topic_is_one_line(
    topic: str,
    said: str,
    spark: SparkSession,
    kafka_cluster: KafkaCluster,
    tables: Tables,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What has no history in it is told from what has none yet."""
    if topic == "pipeline-nothing":
        kafka_cluster.create_topic(topic, 1)
    broker = ["--bootstrap-server", kafka_cluster.bootstrap_servers]
    assert run(["pipeline", "history", "--tables", str(tmp_path), *broker, "--topic", topic]) == 1
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1
