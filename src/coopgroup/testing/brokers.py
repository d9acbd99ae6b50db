"""Brokers of a started cluster: folders, settings and processes, without waiting or network.

The objects of this file exist from the start of a cluster to its stop. `cluster.py` decides when to
act. This file knows the files of a broker, its launch and its removal.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from attrs import define, evolve, field

from coopgroup.errors import ClusterStartError
from coopgroup.testing.maven import KafkaRuntime
from coopgroup.testing.processes import BrokerProcess, Reaper, free_ports, is_listening, log_tail
from coopgroup.testing.properties import (
    BrokerAddress,
    Security,
    broker_properties,
    render_properties,
)

LOG_OPTIONS: Final = (
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
)
ERROR_LENGTH_MAX: Final = 400


@define(kw_only=True)
class Broker:
    """One broker: its permanent data, its release, and its process, if any."""

    address: BrokerAddress
    folder: Path
    runtime: KafkaRuntime
    process: BrokerProcess | None = None

    @property
    def broker_id(self) -> int:
        """Id, from 1."""
        return self.address.broker_id

    @property
    def is_running(self) -> bool:
        """Whether its process exists, paused or not."""
        return self.process is not None and self.process.is_running

    @property
    def is_answering(self) -> bool:
        """Whether it runs and is not paused."""
        return self.process is not None and self.process.is_running and not self.process.is_paused

    @property
    def log_path(self) -> Path:
        """Log file of the broker, over all its starts."""
        return self.folder / "broker.log"


@define(kw_only=True)
class Started:
    """The folders and processes of a cluster between start and stop."""

    runtime: KafkaRuntime
    folder: Path
    reaper: Reaper
    brokers: dict[int, Broker] = field(factory=dict)
    owner_pid: int = field(factory=os.getpid)

    def remove(self) -> None:
        """Kill every broker and remove all data.

        A forked child runs its parent's exit functions when it ends, so this does nothing in a
        child: it does not own the cluster.
        """
        if os.getpid() != self.owner_pid:
            return
        for broker in self.brokers.values():
            if broker.process is not None:
                broker.process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
        self.reaper.close()


def add_brokers(
    started: Started,
    count: int,
    security: Security | None,
    user_properties: Mapping[str, str],
    host: str = "127.0.0.1",
) -> None:
    """Add brokers to a cluster, each with ports, settings and formatted, empty data.

    Raises:
        ClusterError: too few free ports.
    """
    ports = iter(free_ports(3 * count, host))
    addresses = tuple(
        evolve(
            broker_address(broker_id, next(ports), next(ports), next(ports), security), host=host
        )
        for broker_id in range(1, count + 1)
    )
    cluster_id = random_uuid()
    for address in addresses:
        folder = started.folder / f"broker-{address.broker_id}"
        started.brokers[address.broker_id] = Broker(
            address=address, folder=folder, runtime=started.runtime
        )
        format_storage(started.runtime, folder / "data", cluster_id, address.broker_id)
        properties = broker_properties(
            address,
            addresses,
            log_dir=folder / "data",
            security=security,
            tls_folder=started.folder / "tls",
            user_properties=user_properties,
        )
        (folder / "server.properties").write_text(render_properties(properties))


def launch(started: Started, broker: Broker, java_options: tuple[str, ...]) -> None:
    """Start the process of a stopped broker; does not wait until it is up.

    Raises:
        ClusterStartError: another program listens on one of its ports.
    """
    address = broker.address
    for port in (address.internal_port, address.client_port, address.controller_port):
        if is_listening(port, address.host):
            raise ClusterStartError(f"broker {broker.broker_id}: port {port} is taken")
    command = [
        *(broker.runtime.java, *java_options, *LOG_OPTIONS, "-cp", broker.runtime.classpath),
        *("kafka.Kafka", str(broker.folder / "server.properties")),
    ]
    broker.process = BrokerProcess(command, broker.log_path, started.reaper)


def broker_address(
    broker_id: int, internal_port: int, client_port: int, controller_port: int, security: str | None
) -> BrokerAddress:
    """Return the address of a broker; without security, clients use the internal listener."""
    return BrokerAddress(
        broker_id=broker_id,
        internal_port=internal_port,
        client_port=internal_port if security is None else client_port,
        controller_port=controller_port,
    )


def format_storage(runtime: KafkaRuntime, log_dir: Path, cluster_id: str, node_id: int) -> None:
    """Do the same as `kafka-storage format`, without starting Java for each broker."""
    checkpoint = log_dir / runtime.release.checkpoint_path
    checkpoint.parent.mkdir(parents=True)
    shutil.copyfile(runtime.bootstrap_checkpoint, checkpoint)
    meta = {
        "cluster.id": cluster_id,
        "directory.id": random_uuid(),
        "node.id": str(node_id),
        "version": "1",
    }
    (log_dir / "meta.properties").write_text(render_properties(meta))


def random_uuid() -> str:
    """Return a random id in Kafka's form: 16 bytes as URL-safe base64, without a leading dash."""
    while (text := secrets.token_urlsafe(16)).startswith("-"):
        pass
    return text


def start_error(broker: Broker, what: str) -> ClusterStartError:
    """Return an error for a broker that did not start, with the most useful line of its log."""
    lines = log_tail(broker.log_path)
    telling = [line for line in lines if "ERROR" in line or "Exception" in line or "Error" in line]
    said = (telling or lines[-1:] or ["it logged nothing"])[-1].strip()
    error = ClusterStartError(f"broker {broker.broker_id} {what}: {said[:ERROR_LENGTH_MAX]}")
    error.add_note("\n".join(lines))
    return error
