"""Settings of test brokers, as values."""

from pathlib import Path

import pytest

from coopgroup.errors import ConfigurationError
from coopgroup.testing.properties import (
    BrokerAddress,
    Security,
    broker_properties,
    check_user_properties,
    voters,
)

ADDRESSES = tuple(
    BrokerAddress(
        broker_id=broker_id,
        internal_port=100 + broker_id,
        client_port=200 + broker_id,
        controller_port=300 + broker_id,
    )
    for broker_id in (1, 2, 3)
)


def settings_of(
    broker_id: int,
    count: int,
    security: Security | None = None,
    user_properties: dict[str, str] | None = None,
) -> dict[str, str]:
    return broker_properties(
        ADDRESSES[broker_id - 1],
        ADDRESSES[:count],
        log_dir=Path("/d/data"),
        security=security,
        tls_folder=Path("/d/tls"),
        user_properties=user_properties or {},
    )


def test_single_broker_is_broker_and_controller() -> None:
    settings = settings_of(1, 1)
    assert settings["process.roles"] == "broker,controller"
    assert settings["node.id"] == "1"
    assert settings["controller.quorum.voters"] == "1@127.0.0.1:301"
    assert settings["listeners"] == "INTERNAL://127.0.0.1:101,CONTROLLER://127.0.0.1:301"
    assert settings["advertised.listeners"] == "INTERNAL://127.0.0.1:101"
    assert settings["offsets.topic.replication.factor"] == "1"
    assert settings["log.dirs"] == "/d/data"


def test_three_brokers_are_all_controllers() -> None:
    assert voters(ADDRESSES) == ADDRESSES
    assert settings_of(3, 3)["controller.quorum.voters"] == (
        "1@127.0.0.1:301,2@127.0.0.1:302,3@127.0.0.1:303"
    )
    assert settings_of(3, 3)["offsets.topic.replication.factor"] == "3"


@pytest.mark.parametrize(
    ("security", "keys"),
    [
        (None, []),
        (
            "SSL",
            [
                "ssl.client.auth",
                "ssl.keystore.location",
                "ssl.keystore.type",
                "ssl.truststore.location",
                "ssl.truststore.type",
            ],
        ),
        (
            "SASL_SSL",
            [
                "sasl.enabled.mechanisms",
                "ssl.keystore.location",
                "ssl.keystore.type",
                "ssl.truststore.location",
                "ssl.truststore.type",
            ],
        ),
        ("SASL_PLAINTEXT", ["sasl.enabled.mechanisms"]),
    ],
)
def test_security_sets_what_its_listener_needs(security: Security | None, keys: list[str]) -> None:
    settings = settings_of(1, 1, security)
    assert sorted(key for key in settings if key.startswith(("ssl.", "sasl."))) == keys
    assert ("CLIENT://127.0.0.1:201" in settings["listeners"]) == (security is not None)


@pytest.mark.parametrize("key", ["listeners", "node.id", "log.dirs", "process.roles"])
def test_user_properties_of_the_cluster_are_refused(key: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        check_user_properties({key: "1"})
    assert str(caught.value) == (
        f"properties: got {key!r}, expected a setting that the cluster does not decide itself"
    )


def test_user_properties_of_two_lines_are_refused() -> None:
    """A line break would add a second setting."""
    with pytest.raises(ConfigurationError, match="a string of one line"):
        check_user_properties({"log.retention.ms": "1\nlisteners=x"})
