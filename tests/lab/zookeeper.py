"""Clusters of releases of Kafka before 3.3, whose brokers need a ZooKeeper: for `make brokers`.

No test has run with 2.4. Earlier releases have a ZooKeeper 3.4 client, which cannot resolve
addresses on Java 14 and newer (ZOOKEEPER-3779): Kafka 2.1.1 did not start.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from coopgroup.errors import ConfigurationError
from coopgroup.testing import ClusterStartError, KafkaCluster, KafkaRelease
from coopgroup.testing.brokers import LOG_OPTIONS, Broker, Started, broker_address
from coopgroup.testing.maven import KafkaRuntime, build_once, copy_kafka_jars, kafka_runtime
from coopgroup.testing.processes import (
    BrokerProcess,
    Reaper,
    free_ports,
    is_listening,
    log_tail,
    make_folder,
)
from coopgroup.testing.properties import broker_properties, render_properties
from coopgroup.testing.releases import FIRST_LINE, read_version

SESSION_TIMEOUT_MS: Final = 3_000
"""ZooKeeper drops a broker without a process after this time; until then its id is in use."""
_START_TIMEOUT_S: Final = 30.0
_CONFIG: Final = """\
admin.enableServer=false
clientPort={port}
clientPortAddress=127.0.0.1
dataDir={folder}
maxClientCnxns=0
tickTime=500
"""
_OF_KRAFT: Final = (
    "controller.listener.names",
    "controller.quorum.voters",
    "node.id",
    "process.roles",
)


def cluster_of(version: str, brokers: int, start_timeout_ms: int) -> KafkaCluster:
    """Return a cluster of a release from 2.5 on, not yet started."""
    line = read_version(version)
    kind = KafkaCluster if line >= FIRST_LINE else ZooKeeperCluster
    return kind(brokers, version=version, start_timeout_ms=start_timeout_ms)


class ZooKeeperCluster(KafkaCluster):
    """As `KafkaCluster`, with a ZooKeeper; plaintext only."""

    _zookeeper: BrokerProcess | None = None

    @staticmethod
    def _read_release(version: str) -> KafkaRelease:
        read_version(version)  # refuses what is no release
        return KafkaRelease(version=version)

    def start_broker(self, broker: int, version: str | None = None) -> None:
        """Wait until ZooKeeper has dropped the broker, and start it again.

        Raises:
            ConfigurationError: another release.
        """
        if version is not None:
            raise ConfigurationError("version", version, "none: these brokers are not upgraded")
        time.sleep(SESSION_TIMEOUT_MS / 1000)
        super().start_broker(broker)

    def stop(self) -> None:
        """Kill ZooKeeper, too."""
        if self._zookeeper is not None:
            self._zookeeper.kill()
            self._zookeeper = None
        super().stop()

    def _prepare(self) -> Started:
        runtime = kafka_runtime(self._release)
        build_once(
            runtime.folder, lambda maven, folder: copy_kafka_jars(maven, folder, self._release)
        )
        folder = make_folder(None, len(self._broker_ids))
        started = Started(runtime=runtime, folder=folder, reaper=Reaper(folder))
        try:
            (port,) = free_ports(1)
            self._zookeeper = launch_zookeeper(runtime, folder, port, started.reaper)
            add_brokers_with_zookeeper(started, len(self._broker_ids), port)
        except BaseException:
            started.remove()
            raise
        return started


def launch_zookeeper(
    runtime: KafkaRuntime, folder: Path, port: int, reaper: Reaper
) -> BrokerProcess:
    """Start ZooKeeper and wait until it listens."""
    kept = folder / "zookeeper"
    kept.mkdir()
    config = folder / "zookeeper.properties"
    config.write_text(_CONFIG.format(port=port, folder=kept))
    log = folder / "zookeeper.log"
    command = [
        *(runtime.java, "-Xmx64m", *LOG_OPTIONS, "-cp", runtime.classpath),
        *("org.apache.zookeeper.server.ZooKeeperServerMain", str(config)),
    ]
    process = BrokerProcess(command, log, reaper)
    deadline_s = time.monotonic() + _START_TIMEOUT_S
    while not is_listening(port):
        if not process.is_running or time.monotonic() >= deadline_s:
            process.kill()
            said = (log_tail(log) or ["it logged nothing"])[-1]
            raise ClusterStartError(f"ZooKeeper did not come up: {said.strip()}")
        time.sleep(0.02)
    return process


def add_brokers_with_zookeeper(started: Started, count: int, port: int) -> None:
    """Add brokers with empty data."""
    ports = iter(free_ports(2 * count))
    addresses = tuple(
        broker_address(broker_id, next(ports), next(ports), 0, None)
        for broker_id in range(1, count + 1)
    )
    for address in addresses:
        folder = started.folder / f"broker-{address.broker_id}"
        (folder / "data").mkdir(parents=True)
        started.brokers[address.broker_id] = Broker(
            address=address, folder=folder, runtime=started.runtime
        )
        of_kraft = broker_properties(
            address,
            addresses,
            log_dir=folder / "data",
            security=None,
            tls_folder=folder,
            user_properties={},
        )
        properties = {key: of_kraft[key] for key in of_kraft if key not in _OF_KRAFT} | {
            "broker.id": str(address.broker_id),
            "listeners": of_kraft["advertised.listeners"],
            "zookeeper.connect": f"127.0.0.1:{port}",
            "zookeeper.connection.timeout.ms": "30000",
            "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
        }
        (folder / "server.properties").write_text(render_properties(properties))
