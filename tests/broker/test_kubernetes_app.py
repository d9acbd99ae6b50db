"""The application of deploy/kubernetes on a real broker: probes, metrics, SIGTERM."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from coopgroup.testing import KafkaCluster
from coopgroup.testing.processes import free_ports
from tests.support.live_group import produce, unique
from tests.support.probes import get
from tests.support.waiting import wait_for

pytestmark = pytest.mark.verify

APP = Path(__file__).parents[2] / "deploy" / "kubernetes" / "app.py"
WAIT_S = 60.0


def test_pod_is_ready_and_ends_at_sigterm(kafka_cluster: KafkaCluster, tmp_path: Path) -> None:
    topic, (port,) = unique("pod"), free_ports(1)
    kafka_cluster.create_topic(topic, 2)
    produce(kafka_cluster, topic, [2, 2])
    environment = os.environ | {
        "BOOTSTRAP_SERVERS": kafka_cluster.client_config()["bootstrap.servers"],
        "GROUP_ID": unique("pods"),
        "TOPIC": topic,
        "POD_NAME": "billing-0",
        "PORT": str(port),
        "STATIC": "1",
        "STATE_DIR": str(tmp_path),
    }
    pod = subprocess.Popen(
        [sys.executable, "-m", "coopgroup.supervisor", sys.executable, APP],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        wait_for(lambda: get(port, "readyz")[0] == 200, "a ready pod", WAIT_S)
        assert get(port, "livez")[0] == 200
        wait_for(
            lambda: "coopgroup_assigned_partitions" in get(port, "metrics")[1], "metrics", WAIT_S
        )
        assert pod.stdout is not None
        handled = {pod.stdout.readline() for _ in range(4)}
        assert len(handled) == 4
        pod.send_signal(signal.SIGTERM)
        assert pod.wait(WAIT_S) == 0
    finally:
        pod.terminate()
        pod.communicate()
