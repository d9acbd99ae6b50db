"""The broker of a trial: mock, Kafka, or an address."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from coopgroup.testing.errors import ToolMissingError
from coopgroup.testing.trial import brokers
from coopgroup.testing.trial.brokers import open_stage


def answers(address: str) -> bool:
    return bool(AdminClient({"bootstrap.servers": address}).list_topics(timeout=5).brokers)


def test_open_stage_when_mock_serves_topics_of_four_partitions() -> None:
    with open_stage("mock", 24, lambda _line: None) as stage:
        assert answers(stage.client_config["bootstrap.servers"])
        assert (stage.topics, stage.partitions_per_topic, stage.is_mock) == (
            ("orders-0", "orders-1", "orders-2", "orders-3", "orders-4", "orders-5"),
            4,
            True,
        )


def test_open_stage_when_auto_and_java_is_missing_falls_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def no_java() -> None:
        raise ToolMissingError("Java 17", "apt")

    monkeypatch.setattr(brokers, "KafkaCluster", no_java)
    monkeypatch.setenv("COOPGROUP_CACHE_DIR", str(tmp_path))
    told: list[str] = []
    with open_stage("auto", 4, told.append) as stage:
        assert stage.is_mock
    missing = "Java 17 is missing, which the test broker needs; install it with apt"
    assert told == [
        "fetching Apache Kafka with Maven, once; takes a quarter of a minute",
        "starting Apache Kafka",
        f"{missing}; using the mock broker of librdkafka instead, which is slower",
    ]
