"""The broker of a trial: mock, Kafka, or an address."""

from __future__ import annotations

from pathlib import Path

import pytest

from coopgroup.testing.errors import ClusterError, ToolMissingError
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


def test_open_stage_when_nobody_listens_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brokers, "ANSWER_S", 1.0)
    with (
        pytest.raises(ClusterError, match=r"127\.0\.0\.1:1"),
        open_stage("127.0.0.1:1", 4, lambda _line: None),
    ):
        pass
