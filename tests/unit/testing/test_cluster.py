"""Arguments and states of a cluster that need no broker."""

import subprocess
import sys
from typing import Any

import pytest

from coopgroup.errors import ConfigurationError
from coopgroup.testing import ClusterError, KafkaCluster
from coopgroup.testing.properties import (
    check_user_properties,
)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        *(
            ({"brokers": one}, "brokers: got .*, expected a number from 1 to 3")
            for one in (0, 4, True)
        ),
        *(
            ({"heap": one}, "heap: got .*, expected a size such as '512m'")
            for one in ("512", "", "-1m")
        ),
        ({"security": "TLS"}, "security: got 'TLS'"),
        ({"host": "::"}, "host: got '::', expected one of 127.0.0.1, ::1"),
        ({"properties": {"node.id": "7"}}, "properties: got 'node.id'"),
    ],
)
def test_bad_arguments_are_refused_before_anything_starts(
    arguments: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said):
        KafkaCluster(**arguments)


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
        lambda: cluster.start_broker(2, version="4.3.0"),
        lambda: cluster.create_topic("orders", 1),
        lambda: cluster.run_tool("kafka-topics", "--list"),
    ):
        with pytest.raises(ClusterError, match=r"^the cluster is not started$"):
            call()


def test_unknown_broker_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"broker: got 3, expected one of \(1, 2\)"):
        KafkaCluster(2).kill(3)


def test_package_does_not_import_pytest() -> None:
    code = "import sys, coopgroup.testing; sys.exit('pytest' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


# --- settings of test brokers, as values ----------------------------------------------------------


def test_user_properties_of_two_lines_are_refused() -> None:
    """A line break would add a second setting."""
    with pytest.raises(ConfigurationError, match="a string of one line"):
        check_user_properties({"log.retention.ms": "1\nlisteners=x"})
