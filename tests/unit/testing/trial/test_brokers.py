"""The broker of a trial: mock, Kafka, or an address."""

from __future__ import annotations

from pathlib import Path

import pytest

from coopgroup.testing.errors import ToolMissingError
from coopgroup.testing.trial import brokers
from coopgroup.testing.trial.brokers import open_stage


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
