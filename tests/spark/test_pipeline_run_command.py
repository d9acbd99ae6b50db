"""`coopgroup pipeline run`: all jobs in one call, and again."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from coopgroup.cli.app import run
from coopgroup.pipeline.errors import PipelineError
from coopgroup.pipeline.tables import Tables
from tests.spark.frames import rows
from tests.spark.stories import watched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from coopgroup.testing import KafkaCluster

ADVICE = "coopgroup.cli.pipeline.run.advice_for"
RECORDS = 5


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
    deadline = time.monotonic() + 60
    while not consumer.assignment():
        consumer.poll(0.2)
        assert time.monotonic() < deadline
    consumer.commit(offsets=[TopicPartition(topic, 0, RECORDS)], asynchronous=False)
    consumer.close()


def _without_replays(_: Tables, group: str, **__: object) -> None:
    raise PipelineError(f"{group} has its advice")


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
