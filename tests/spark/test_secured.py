"""History from a broker with TLS and a password, and the password appears nowhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, TopicPartition

from coopgroup.cli.app import run
from coopgroup.pipeline.tables import Tables
from coopgroup.testing import KafkaCluster
from tests.spark.frames import rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.verify


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
