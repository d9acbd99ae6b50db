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

GROUP, LATER, TOPIC, RECORDS = "run-all", "run-later", "run-all-orders", 5


def consume(config: dict[str, str], group: str) -> None:
    """Commit all records, and leave."""
    consumer = Consumer({**config, "group.id": group, "enable.auto.commit": False})
    consumer.subscribe([TOPIC])
    deadline = time.monotonic() + 60
    while not consumer.assignment():
        consumer.poll(0.2)
        assert time.monotonic() < deadline
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, RECORDS)], asynchronous=False)
    consumer.close()


def _without_replays(_: Tables, group: str, **__: object) -> None:
    raise PipelineError(f"{group} has its advice")


def test_one_call_runs_all_jobs_and_prints_a_summary(
    spark: SparkSession,
    kafka_cluster: KafkaCluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kafka_cluster.create_topic(TOPIC, 1)
    config = dict(kafka_cluster.client_config())
    producer = Producer(config)
    for _ in range(RECORDS):
        producer.produce(TOPIC, b"x")
    producer.flush()
    consume(config, GROUP)
    asked = ["pipeline", "run", "--tables", str(tmp_path), "--group", GROUP, "--group", LATER]
    asked += ["--bootstrap-server", kafka_cluster.bootstrap_servers]

    def summary() -> dict[str, Any]:
        assert run(asked) == 0
        out, err = capsys.readouterr()
        steps = ("spark", "history", "lag", "episodes", "advice")
        told = [line.split(": ")[1] for line in err.splitlines() if line.startswith("coopgroup: ")]
        assert told == list(steps)
        found: dict[str, Any] = json.loads(out)
        assert set(found["seconds"]) == set(steps)
        return found

    first = summary()
    assert first["rows"]["commits"] >= 1
    assert first["rows"]["rebalances"] >= 1
    ours, later = first["advice"]  # by name
    assert ours["group"] == GROUP
    assert "headline" in ours or "nothing to advise on" in ours["error"]
    assert f"no history of group '{LATER}'" in later["error"]
    # The advice would be the same, and its replays take longest.
    monkeypatch.setattr("coopgroup.cli.pipeline.run.advice_for", _without_replays)
    computed = watched(monkeypatch)
    assert summary()["rows"]["rebalances"] == first["rows"]["rebalances"]
    assert computed == []
    consume(config, LATER)
    last = summary()
    assert last["rows"]["commits"] > first["rows"]["commits"]
    assert last["rows"]["rebalances"] > first["rows"]["rebalances"]
    assert computed == [(LATER,)]
    of_topic = Tables(spark=spark, folder=str(tmp_path)).read("lag").where(f"topic = '{TOPIC}'")
    assert {row[0] for row in rows(of_topic, "lag")} == {0}
