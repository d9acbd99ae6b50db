"""Configuration of librdkafka, translated for the Java client."""

from __future__ import annotations

from pathlib import Path

import pytest

from coopgroup.cli.pipeline.options import kafka_options, pairs
from coopgroup.errors import ConfigurationError


def test_an_address_is_told() -> None:
    assert kafka_options({"bootstrap.servers": "a:1"}, {}) == {"kafka.bootstrap.servers": "a:1"}


def test_a_user_becomes_a_login_module() -> None:
    given = {
        "bootstrap.servers": "a:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "me",
        "sasl.password": 'pass"word',
        "ssl.ca.location": "ca.pem",
    }
    assert kafka_options(given, {}) == {
        "kafka.bootstrap.servers": "a:1",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-256",
        "kafka.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required"
            ' username="me" password="pass\\"word";'
        ),
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": "ca.pem",
    }
    plain = kafka_options({"sasl.mechanisms": "PLAIN"}, {})
    assert "plain.PlainLoginModule" in plain["kafka.sasl.jaas.config"]


def test_what_the_java_client_is_told_wins() -> None:
    given = {"bootstrap.servers": "a:1"}
    further = {"bootstrap.servers": "b:2", "ssl.keystore.type": "PEM"}
    assert kafka_options(given, further) == {
        "kafka.bootstrap.servers": "b:2",
        "kafka.ssl.keystore.type": "PEM",
    }


def test_pairs_stand_in_a_file_that_nobody_else_reads(tmp_path: Path) -> None:
    file = tmp_path / "broker.properties"
    file.write_text("# ours\n\nsasl.username = me\nsasl.password=a=b#c \n")
    assert pairs(["sasl.username=you", f"@{file}", "log_level=0"], "--config") == {
        "sasl.username": "me",
        "sasl.password": "a=b#c",
        "log_level": "0",
    }


@pytest.mark.parametrize(
    "content", [b"user=me\npass-word\n", b"user=me\n=pass-word\n", b"pass-word\xff"]
)
def test_a_file_without_pairs_is_named_and_not_shown(content: bytes, tmp_path: Path) -> None:
    """The message must not show a password that is in the wrong place."""
    file = tmp_path / "broker.properties"
    file.write_bytes(content)
    with pytest.raises(ConfigurationError, match=f"--config: got .@{file}") as caught:
        pairs([f"@{file}"], "--config")
    assert "pass-word" not in str(caught.value)
    with pytest.raises(ConfigurationError, match="No such file"):
        pairs(["@none"], "--config")
