"""The ZooKeeper of a cluster whose release of Kafka needs one: one process on loopback."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from coopgroup.testing.errors import ClusterStartError
from coopgroup.testing.maven import KafkaRuntime
from coopgroup.testing.processes import BrokerProcess, Reaper, is_listening, log_tail

__all__ = ["SESSION_TIMEOUT_MS", "launch_zookeeper"]

SESSION_TIMEOUT_MS: Final = 3_000
"""ZooKeeper drops a broker without a process after this time; until then its id is in use."""
_START_TIMEOUT_S: Final = 30.0
_POLL_S: Final = 0.02
_CONFIG: Final = """\
admin.enableServer=false
clientPort={port}
clientPortAddress=127.0.0.1
dataDir={folder}
maxClientCnxns=0
tickTime=500
"""


def launch_zookeeper(
    runtime: KafkaRuntime, folder: Path, port: int, reaper: Reaper, options: tuple[str, ...]
) -> BrokerProcess:
    """Start ZooKeeper and wait until it listens.

    Raises:
        ClusterStartError: it does not listen in time.
    """
    kept = folder / "zookeeper"
    kept.mkdir()
    config = folder / "zookeeper.properties"
    config.write_text(_CONFIG.format(port=port, folder=kept))
    log = folder / "zookeeper.log"
    command = [
        *(runtime.java, "-Xmx64m", *options, "-cp", runtime.classpath),
        *("org.apache.zookeeper.server.ZooKeeperServerMain", str(config)),
    ]
    process = BrokerProcess(command, log, reaper)
    deadline_s = time.monotonic() + _START_TIMEOUT_S
    while not is_listening(port):
        if not process.is_running or time.monotonic() >= deadline_s:
            process.kill()
            said = (log_tail(log) or ["it logged nothing"])[-1]
            raise ClusterStartError(f"ZooKeeper did not come up: {said.strip()}")
        time.sleep(_POLL_S)
    return process
