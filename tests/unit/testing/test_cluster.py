"""Arguments and states of a cluster that need no broker."""

import subprocess
import sys
from typing import Any, cast

import pytest

from coopgroup.errors import ConfigurationError
from coopgroup.testing import ClusterError, KafkaCluster, ToolMissingError


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
