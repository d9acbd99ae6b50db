"""Arguments and states of a cluster that need no broker."""

import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from coopgroup.errors import ConfigurationError
from coopgroup.testing import ClusterError, KafkaCluster, ToolMissingError
from coopgroup.testing.properties import (
    BrokerAddress,
    Security,
    broker_properties,
    check_user_properties,
    voters,
)


@pytest.mark.parametrize("brokers", [0, 4, -1, True])
def test_brokers_out_of_range_are_refused(brokers: int) -> None:
    with pytest.raises(ConfigurationError, match=r"brokers: got .*, expected a number from 1 to 3"):
        KafkaCluster(brokers)


@pytest.mark.parametrize("heap", ["512", "much", "", "m", "-1m"])
def test_heap_that_java_would_not_read_is_refused(heap: str) -> None:
    with pytest.raises(ConfigurationError, match=r"heap: got .*, expected a size such as '512m'"):
        KafkaCluster(heap=heap)


def test_bad_settings_are_refused_before_anything_starts() -> None:
    with pytest.raises(ConfigurationError, match="security: got 'TLS'"):
        KafkaCluster(security=cast("Any", "TLS"))
    with pytest.raises(ConfigurationError, match=r"properties: got 'node.id'"):
        KafkaCluster(properties={"node.id": "7"})


def test_calls_are_refused_when_the_cluster_is_not_started() -> None:
    cluster = KafkaCluster(2)
    cluster.stop()
    assert cluster.brokers == (1, 2)
    assert cluster.running == ()
    for call in (
        lambda: cluster.bootstrap_servers,
        cluster.client_config,
        cluster.wait_ready,
        lambda: cluster.kill(1),
        lambda: cluster.start_broker(2),
        lambda: cluster.create_topic("orders", 1),
        lambda: cluster.run_tool("kafka-topics", "--list"),
    ):
        with pytest.raises(ClusterError, match=r"^the cluster is not started$"):
            call()


def test_unknown_broker_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"broker: got 3, expected one of \(1, 2\)"):
        KafkaCluster(2).kill(3)


def test_start_leaves_nothing_when_java_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    cluster = KafkaCluster()
    with pytest.raises(ToolMissingError, match=r"^Java \(java\) is missing"):
        cluster.start()
    assert cluster.running == ()


def test_package_does_not_import_pytest() -> None:
    code = "import sys, coopgroup.testing; sys.exit('pytest' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


# --- settings of test brokers, as values ----------------------------------------------------------


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
    expected = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": "1@127.0.0.1:301",
        "listeners": "INTERNAL://127.0.0.1:101,CONTROLLER://127.0.0.1:301",
        "advertised.listeners": "INTERNAL://127.0.0.1:101",
        "offsets.topic.replication.factor": "1",
        "log.dirs": "/d/data",
    }
    assert settings_of(1, 1).items() >= expected.items()


def test_three_brokers_are_all_controllers() -> None:
    assert voters(ADDRESSES) == ADDRESSES
    assert settings_of(3, 3)["controller.quorum.voters"] == (
        "1@127.0.0.1:301,2@127.0.0.1:302,3@127.0.0.1:303"
    )
    assert settings_of(3, 3)["offsets.topic.replication.factor"] == "3"


STORES = [
    *("ssl.keystore.location", "ssl.keystore.type"),
    *("ssl.truststore.location", "ssl.truststore.type"),
]


@pytest.mark.parametrize(
    ("security", "keys"),
    [
        (None, []),
        ("SSL", ["ssl.client.auth", *STORES]),
        ("SASL_SSL", ["sasl.enabled.mechanisms", *STORES]),
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
