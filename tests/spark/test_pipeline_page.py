"""docs/pipeline.md and `tests.lab.pipeline_demo`: history of real groups, and its results.

The demonstration runs once, on its own broker, with the commands that the page shows. The tests
read its tables. Its members join and leave once, where users see it twice.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from coopgroup.cli.app import run
from coopgroup.pipeline.schemas import TABLES
from coopgroup.pipeline.tables import Tables
from tests.lab import pipeline_demo
from tests.lab.pipeline_demo import EAGER, OURS, PARTITIONS, TOPIC
from tests.lab.rollouts import GROUP
from tests.spark.frames import rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from coopgroup.testing import KafkaCluster

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "pipeline.md").read_text()
FOREIGN = "pipeline-foreign"


def page_commands() -> list[list[str]]:
    blocks = PAGE.split("```console\n")[1:]
    lines = [line for block in blocks for line in block.partition("```")[0].splitlines()]
    return [shlex.split(line.removeprefix("$ ")) for line in lines if line.startswith("$ ")]


@pytest.fixture(scope="module")
def folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the output of the demonstration: tables and a page of advice."""
    before = Path.cwd()
    where = tmp_path_factory.mktemp("demo")
    os.chdir(where)
    try:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(pipeline_demo, "REPETITIONS", 1)
            arguments = ["--tables", "history", "--html", "advice.html"]
            assert pipeline_demo.command.main(arguments, standalone_mode=False) == 0
        # Nothing else is left in the working directory.
        assert {one.name for one in where.iterdir()} == {"history", "advice.html"}
        yield where
    finally:
        os.chdir(before)


@pytest.fixture
def tables(spark: SparkSession, folder: Path) -> Tables:
    return Tables(spark=spark, folder=str(folder / "history"))


def test_page_shows_the_jobs_that_the_demonstration_runs() -> None:
    """From the history to the episodes, in the order of their dependencies."""
    expected = pipeline_demo.jobs("history", "localhost:9092", "telemetry.jsonl")
    assert page_commands() == [["coopgroup", "pipeline", *one] for one in expected]


def test_page_names_every_table() -> None:
    assert [name for name in TABLES if f"`{name}`" not in PAGE] == []


@pytest.mark.verify
def test_no_row_is_there_twice(tables: Tables) -> None:
    """The key of each row is unique in its table."""
    twice = {
        name: tables.read(name).groupBy(*table.key).count().where("count > 1").count()
        for name, table in TABLES.items()
    }
    assert twice == dict.fromkeys(TABLES, 0)


@pytest.mark.verify
def test_history_has_the_groups_of_both_clients(tables: Tables) -> None:
    """Members, protocol, and last committed offsets."""
    generations = tables.read("generations").where("member_count = 3")
    assert rows(generations.select("group", "protocol_type").distinct()) == [
        (OURS, "consumer"),
        (EAGER, "consumer"),
    ]
    members = tables.read("members").where(f"group = '{EAGER}'")
    assert rows(members.select("client_id", "client_host", "topics").distinct()) == [
        (name, "/127.0.0.1", [TOPIC]) for name in ("m1", "m2", "m3")
    ]
    held = tables.read("assignments").where(f"group = '{OURS}'")
    assert {row[0] for row in rows(held, "partition")} == set(range(PARTITIONS))
    assert rows(tables.read("rejected").where("source != '__consumer_offsets'")) == []


@pytest.mark.verify
def test_nothing_lags_in_the_end(tables: Tables) -> None:
    """Both groups committed all records, so their last lag is 0."""
    commits = tables.read("commits").where(f"topic = '{TOPIC}'").groupBy("group", "partition")
    last = rows(commits.agg({"committed": "max"}))
    assert len(last) == 2 * PARTITIONS
    ends = [offset for _, _, offset in last]
    assert ends[:PARTITIONS] == ends[PARTITIONS:]
    assert min(ends) > 0
    lag = tables.read("lag").where(f"topic = '{TOPIC}'")
    newest = lag.groupBy("group", "partition").agg({"at_ms": "max"})
    newest = newest.withColumnRenamed("max(at_ms)", "at_ms")
    found = lag.join(newest, ["group", "partition", "at_ms"])
    assert rows(found, "group", "lag") == [(OURS, 0)] * PARTITIONS + [(EAGER, 0)] * PARTITIONS


@pytest.mark.verify
@pytest.mark.parametrize("group", [OURS, EAGER])
def test_episodes_tell_the_story(group: str, tables: Tables) -> None:
    """m1 left and returned, m3 left permanently; all left at the end.

    The telemetry of our group proves both returns. Without telemetry the return of m1 is likely.
    The killed m2 came back before its session had ended. The group was never smaller, so its new
    member may be another process.
    """
    history = tables.read("rebalances").where(f"group = '{group}' AND source = 'history'")
    found = history.orderBy("begin_ms").collect()
    # Rebalances within a few seconds may count as one.
    assert found[0].trigger == "created"
    assert found[-1].members_after == 0
    gone = rows(tables.read("absences").where(f"group = '{group}'"), "client_id", "returned_as")
    m1, m2 = ("telemetry", "telemetry") if group == OURS else ("client_and_host", "never")
    assert gone == sorted(
        [("m1", m1), ("m1", "never"), ("m2", m2), ("m2", "never"), ("m3", "never")]
    )


@pytest.mark.verify
def test_demonstration_advises_on_a_group_with_a_past(folder: Path, tables: Tables) -> None:
    """All its returns are proven; the replays cost what it shows, and broke no rule."""
    ours = tables.read("rebalances").where("source = 'telemetry'")
    assert {row[0] for row in rows(ours, "group")} == {OURS}
    assert sum(row[0] for row in rows(ours, "moved")) >= 2
    page = (folder / "advice.html").read_text()
    assert f"Advice for group {GROUP}" in page
    assert "60 of 60 absences (100%) ended with a proven return" in page
    assert "Not enough history (" not in page
    assert "invariant" not in page


@pytest.mark.parametrize(
    ("topic", "said"),
    [
        (FOREIGN, f"{FOREIGN} holds no history: none of its records is a commit or a group"),
        pytest.param(
            "pipeline-nothing",
            "pipeline-nothing is empty: no group has committed or joined yet",
            marks=pytest.mark.verify,
        ),
        ("pipeline-gone", "there is no topic pipeline-gone: no group has ever committed"),
    ],
)
def test_a_foreign_topic_is_one_line(
    topic: str,
    said: str,
    spark: SparkSession,
    kafka_cluster: KafkaCluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A topic of another kind is distinguished from an empty history."""
    if topic != "pipeline-gone":
        kafka_cluster.create_topic(topic, 1)
    if topic == FOREIGN:
        producer = Producer(kafka_cluster.client_config())
        producer.produce(topic, b"x")
        producer.flush()
    broker = ["--bootstrap-server", kafka_cluster.bootstrap_servers]
    assert run(["pipeline", "history", "--tables", str(tmp_path), *broker, "--topic", topic]) == 1
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1
    # The job joins no group, so it writes nothing into the cluster that it watches.
    groups = AdminClient(dict(kafka_cluster.client_config())).list_consumer_groups().result().valid
    assert [one.group_id for one in groups if one.group_id.startswith("spark")] == []
