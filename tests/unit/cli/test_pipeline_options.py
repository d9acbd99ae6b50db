"""librdkafka's configuration, told to the Java client."""

from __future__ import annotations

from coopgroup.cli.pipeline_options import kafka_options


def test_an_address_is_told() -> None:
    """Without security there is nothing else."""
    assert kafka_options({"bootstrap.servers": "a:1"}, {}) == {"kafka.bootstrap.servers": "a:1"}


def test_a_user_becomes_a_login_module() -> None:
    """With quotes where the password has some."""
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
    """Its own keys are passed on as they are."""
    given = {"bootstrap.servers": "a:1"}
    further = {"bootstrap.servers": "b:2", "ssl.keystore.type": "PEM"}
    assert kafka_options(given, further) == {
        "kafka.bootstrap.servers": "b:2",
        "kafka.ssl.keystore.type": "PEM",
    }
