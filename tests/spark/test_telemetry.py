"""Our own telemetry to tables."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from coopgroup.cli.app import run
from coopgroup.core.model import ResourceSet
from coopgroup.pipeline.tables import Tables
from coopgroup.pipeline.telemetry import file_lines, write_telemetry
from coopgroup.telemetry import (
    Envelope,
    MemberReported,
    MembershipLost,
    Record,
    ResourcesStarted,
    ResourcesStopped,
    RoundDecided,
    StopReason,
    to_json,
)
from tests.spark.frames import rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from coopgroup.testing import KafkaCluster

HELD = ResourceSet({"orders": [0, 2], "paid": [1]})
LED = RoundDecided(
    policy="deferred",
    assignor="sticky",
    members=("a-1", "b-1"),
    granted=HELD,
    lost=ResourceSet({"orders": [5]}),
    follow_up=True,
    rejoin_in_ms=30_000,
)


def line(at_ms: int, record: Record, **changes: Any) -> str:  # noqa: ANN401 - any field
    envelope = Envelope(
        at_ms=at_ms, group="g", member="a-1", generation=7, client="pod-1", record=record
    )
    return json.dumps({**to_json(envelope), **changes})


LINES = (
    line(10, ResourcesStarted(resources=HELD)),
    line(20, ResourcesStopped(resources=HELD, reason=StopReason.REVOKED, duration_ms=9)),
    line(30, LED),
    line(40, MembershipLost(resources=HELD, cause="lease expired"), client=""),
)
BAD = (
    ("{half a li", "not JSON"),
    ("[1]", "not JSON"),
    (line(50, LED, schema=2), "schema: expected 1"),
    (line(60, LED, kind="dance"), "kind: not known"),
    (line(70, LED, generation="7"), "generation: missing, or of another type"),
    (line(-1, LED), "at_ms: not ms since 1970"),
    (line(2**62, LED), "at_ms: not ms since 1970"),
    (line(80, LED, members=3), "members: missing, or of another type"),
    (line(80, LED, follow_up="no"), "follow_up: missing, or of another type"),
    (
        line(90, ResourcesStarted(resources=HELD), resources=7),
        "resources: missing, or of another type",
    ),
)


def test_lines_become_rows_of_their_tables(spark: SparkSession, tmp_path: Path) -> None:
    """Every record but a report is an event; rounds and work have columns of their own."""
    report = line(35, MemberReported(state="stable", interval_ms=10_000))
    (tmp_path / "a.jsonl").write_text("\n".join([*LINES, report, "", *(bad for bad, _ in BAD)]))
    tables = Tables(spark=spark, folder=str(tmp_path / "out"))
    write_telemetry(file_lines(spark, [str(tmp_path / "a.jsonl")]), tables)
    assert rows(tables.read("events"), "at_ms", "group", "member", "client", "kind") == [
        (10, "g", "a-1", "pod-1", "resources_started"),
        (20, "g", "a-1", "pod-1", "resources_stopped"),
        (30, "g", "a-1", "pod-1", "round_decided"),
        (40, "g", "a-1", "", "membership_lost"),
    ]
    columns = ("generation", "policy", "members", "granted", "lost", "revoked", "follow_up")
    assert rows(tables.read("rounds"), *columns, "rejoin_in_ms") == [
        (7, "deferred", ["a-1", "b-1"], 3, 1, 0, True, 30_000)
    ]
    work = rows(tables.read("work"), "at_ms", "topic", "partition", "is_start", "reason")
    assert work == [
        (10, "orders", 0, True, None),
        (10, "orders", 2, True, None),
        (10, "paid", 1, True, None),
        (20, "orders", 0, False, "revoked"),
        (20, "orders", 2, False, "revoked"),
        (20, "paid", 1, False, "revoked"),
    ]
    refused = rows(tables.read("rejected"), "value", "reason", "part")
    assert refused == sorted((bytearray(bad.encode()), why, "line") for bad, why in BAD)


@pytest.mark.verify
def test_a_line_is_a_row_once(spark: SparkSession, tmp_path: Path) -> None:
    """A longer file, a copy of it and a late line add only the new lines."""
    tables = Tables(spark=spark, folder=str(tmp_path / "out"))
    log = tmp_path / "a.jsonl"
    log.write_text("\n".join([LINES[2], LINES[2], "broken"]))
    write_telemetry(file_lines(spark, [str(log)]), tables)
    log.write_text("\n".join([LINES[2], LINES[2], "broken", LINES[3], LINES[0]]))
    (tmp_path / "copy.jsonl").write_text("\n".join(LINES))
    write_telemetry(file_lines(spark, [str(log), str(tmp_path / "copy.jsonl")]), tables)
    assert rows(tables.read("events"), "at_ms") == [(10,), (20,), (30,), (40,)]
    assert len(rows(tables.read("work"))) == 6
    assert len(rows(tables.read("rejected"))) == 1


def test_a_topic_is_read_as_files_are(
    tables: Tables, kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    """The next run reads later records; rejected records are stored with their position.

    A line that a producer sent twice is one row.
    """
    kafka_cluster.create_topic("telemetry", 1)
    command = ["pipeline", "telemetry", "--topic", "telemetry", "--tables", str(tmp_path)]
    command += ["--bootstrap-server", kafka_cluster.bootstrap_servers]
    producer = Producer(kafka_cluster.client_config())
    sent_ms = time.time_ns() // 1_000_000  # brokers delete records that are older than a week
    for chosen in ((*LINES[:3], "broken"), (LINES[2], LINES[3], "broken", None, " ")):
        for one in chosen:
            producer.produce("telemetry", one, timestamp=sent_ms)
        producer.flush()
        assert run(command) == 0
    assert rows(tables.read("events"), "at_ms") == [(10,), (20,), (30,), (40,)]
    assert len(rows(tables.read("work"))) == 6
    assert rows(tables.read("rejected"), "source", "source_offset", "at_ms", "reason") == [
        ("telemetry", 3, sent_ms, "not JSON"),
        ("telemetry", 6, sent_ms, "not JSON"),
        ("telemetry", 7, sent_ms, "the record has no value"),
        ("telemetry", 8, sent_ms, "not JSON"),
    ]
