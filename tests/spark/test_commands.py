"""Commands on a broker: all jobs in one call, and again; a password that appears nowhere."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from coopgroup.cli.app import run
from coopgroup.errors import PipelineError
from coopgroup.pipeline.tables import Tables
from coopgroup.testing import KafkaCluster
from tests.spark.frames import rows
from tests.spark.stories import watched
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ADVICE = "coopgroup.cli.pipeline.run.advice_for"
RECORDS = 5
YEAR_2100_MS = 4_102_444_800_000


def produce(cluster: KafkaCluster, topic: str) -> dict[str, str]:
    """Create a topic with some records, and return the configuration of a client."""
    cluster.create_topic(topic, 1)
    config = dict(cluster.client_config())
    producer = Producer(config)
    for _ in range(RECORDS):
        producer.produce(topic, b"x")
    producer.flush()
    return config


def consume(config: dict[str, str], group: str, topic: str) -> None:
    """Commit all records, and leave."""
    consumer = Consumer({**config, "group.id": group, "enable.auto.commit": False})
    consumer.subscribe([topic])
    wait_for(consumer.assignment, "an assignment", poll=lambda: consumer.poll(0.2))
    consumer.commit(offsets=[TopicPartition(topic, 0, RECORDS)], asynchronous=False)
    consumer.close()


def _without_replays(_: Tables, groups: Sequence[str], **__: object) -> dict[str, PipelineError]:
    return {group: PipelineError(f"{group} has its advice") for group in groups}


@pytest.mark.parametrize("is_whole", [False, pytest.param(True, marks=pytest.mark.verify)])
def test_one_call_runs_all_jobs_and_prints_a_summary(
    is_whole: bool,
    spark: SparkSession,
    kafka_cluster: KafkaCluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The advice on one group, and then what is new in another group, take a minute more."""
    kind = "whole" if is_whole else "brief"
    group, later, topic = (f"run-{kind}-{name}" for name in ("all", "later", "orders"))
    config = produce(kafka_cluster, topic)
    consume(config, group, topic)
    asked = ["pipeline", "run", "--tables", str(tmp_path), "--group", group, "--group", later]
    asked += ["--bootstrap-server", kafka_cluster.bootstrap_servers]

    def summary() -> dict[str, Any]:
        assert run(asked) == 0
        out, err = capsys.readouterr()
        steps = ("spark", "history", "lag", "episodes", "advice")
        told = [line.split(": ")[1] for line in err.splitlines() if line.startswith("coopgroup: ")]
        assert told == list(steps)
        found: dict[str, Any] = json.loads(out)
        assert set(found["seconds"]) == set(steps)
        of_topic = Tables(spark=spark, folder=str(tmp_path)).read("lag").where(f"topic = '{topic}'")
        assert {row[0] for row in rows(of_topic, "lag")} == {0}
        return found

    with monkeypatch.context() as patched:
        if not is_whole:
            patched.setattr(ADVICE, _without_replays)
        first = summary()
    assert first["rows"]["commits"] >= 1
    assert first["rows"]["rebalances"] >= 1
    ours, others = first["advice"]  # by name
    assert ours["group"] == group
    assert others["group"] == later
    if not is_whole:
        assert ours["error"] == f"{group} has its advice"
        return
    assert "headline" in ours or "nothing to advise on" in ours["error"]
    assert f"no history of group '{later}'" in others["error"]
    # The advice would be the same.
    monkeypatch.setattr(ADVICE, _without_replays)
    computed = watched(monkeypatch)
    assert summary()["rows"]["rebalances"] == first["rows"]["rebalances"]
    assert computed == []
    consume(config, later, topic)
    last = summary()
    assert last["rows"]["commits"] > first["rows"]["commits"]
    assert last["rows"]["rebalances"] > first["rows"]["rebalances"]
    assert computed == [(later,)]


@pytest.mark.verify
def test_lags_that_cannot_be_known_are_unknown_and_told(
    spark: SparkSession,
    kafka_cluster: KafkaCluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The third of five records has a timestamp of the year 2100; the first is of 1970.

    The other topic is deleted. A third one is made again, with one partition in place of two.
    """
    config = dict(kafka_cluster.client_config())
    counts = {"ahead": 1, "gone": 1, "again": 2}
    producer = Producer(config)
    for topic, count in counts.items():
        kafka_cluster.create_topic(topic, count)
        for partition in range(count):
            for timestamp in (1, 0, YEAR_2100_MS if topic == "ahead" else 0, 0, 0):
                producer.produce(topic, b"x", partition=partition, timestamp=timestamp)
    producer.flush()
    consumer = Consumer({**config, "group.id": "unsure"})
    places = [TopicPartition(topic, one, 4) for topic, n in counts.items() for one in range(n)]
    consumer.commit(offsets=places, asynchronous=False)
    admin = AdminClient({**config})
    for done in admin.delete_topics(["gone", "again"]).values():
        done.result()
    wait_for(lambda: not {"gone", "again"} & {*admin.list_topics(timeout=5).topics}, "a deletion")
    kafka_cluster.create_topic("again", 1)
    where = ["--tables", str(tmp_path), "--bootstrap-server", kafka_cluster.bootstrap_servers]
    assert run(["pipeline", "history", *where]) == 0
    capsys.readouterr()
    assert run(["pipeline", "lag", *where, "--group", "unsure", "--every", "1"]) == 0
    found = rows(Tables(spark=spark, folder=str(tmp_path)).read("lag"), "topic", "lag", "rule")
    assert {*found} == {("ahead", None, "unknown")}
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("coopgroup: lag of gone is unknown: the topic does not exist")
    assert second.startswith("coopgroup: lag of ahead[0] is unknown at ")


# --- a broker with TLS and a password -------------------------------------------------------------


@pytest.fixture(scope="module")
def secured() -> Iterator[KafkaCluster]:
    """Run a broker with SCRAM over TLS, with one commit of the group "secured"."""
    with KafkaCluster(security="SASL_SSL") as cluster:
        cluster.create_topic("orders", 1)
        consumer = Consumer({**cluster.client_config(), "group.id": "secured"})
        consumer.commit(offsets=[TopicPartition("orders", 0, 7)], asynchronous=False)
        consumer.close()
        yield cluster


def arguments_of(config: dict[str, str], folder: Path) -> list[str]:
    """Return arguments of a job whose security settings are in a file."""
    file = folder / "broker.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
    return ["--tables", str(folder / "tables"), "--config", f"@{file}"]


@pytest.mark.verify
def test_history_of_a_secured_broker_is_read_and_the_password_is_kept(
    spark: SparkSession,
    secured: KafkaCluster,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The Java client gets the same settings as librdkafka, and no file contains them."""
    config = secured.client_config()
    assert run(["pipeline", "history", *arguments_of(config, tmp_path)]) == 0
    tables = Tables(spark=spark, folder=str(tmp_path / "tables"))
    assert rows(tables.read("commits"), "group", "topic", "committed") == [("secured", "orders", 7)]
    password = config["sasl.password"]
    written = [path for path in (tmp_path / "tables").rglob("*") if path.is_file()]
    assert any(path.parent.name == "offsets" for path in written)  # including Spark's checkpoint
    assert [path for path in written if password.encode() in path.read_bytes()] == []
    said = capfd.readouterr()
    assert password not in said.out + said.err


@pytest.mark.verify
def test_a_wrong_password_is_one_line_without_it(
    secured: KafkaCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The line says that the broker refused, not that no broker was found."""
    monkeypatch.setattr("coopgroup.pipeline.ends._ANSWER_S", 3.0)
    config = {**secured.client_config(), "sasl.password": "pass-word"}
    (tmp_path / "tables").mkdir()
    assert run(["pipeline", "lag", *arguments_of(config, tmp_path)]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "uthentication failed" in err
    assert "pass-word" not in err
