"""Members, commands and probes in a pod: a read-only root, a user without a home, IPv6 only."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from coopgroup import CatalogueTopic, CooperativeGroup
from coopgroup.aio import AsyncCooperativeConsumer
from coopgroup.kafka.config.keys import BELL_TOPIC
from coopgroup.testing import KafkaCluster
from coopgroup.testing.processes import free_ports
from tests.architecture.tree import ROOT
from tests.support.ipv6 import with_ipv6_only
from tests.support.live_group import produce, unique
from tests.support.pod import python_in_pod, state_dir
from tests.support.probes import get
from tests.support.waiting import WAIT_S_MAX, wait_for

APP = ROOT / "deploy" / "kubernetes" / "app.py"
RECORDS = [2, 2]
TELEMETRY = "coopgroup-telemetry"
WORKER = """
import json, os, sys
from coopgroup import CooperativeConsumer
from coopgroup.health import serve
from coopgroup.metrics import PrometheusMetrics
from coopgroup.processing import run

def handle(record):
    print(record.value().decode(), flush=True)

metrics = PrometheusMetrics()
settings = json.loads(sys.argv[1]) | {"coopgroup.telemetry.listener": metrics}
consumer = CooperativeConsumer(settings)
with serve(0, consumer, host="::", metrics=metrics) as server:
    print(json.dumps({"process": os.getpid(), "port": server.port}), flush=True)
    run(consumer, [sys.argv[2]], handle)
"""


@contextmanager
def worker(settings: dict[str, Any], topic: str) -> Iterator[tuple[subprocess.Popen[str], Any]]:
    """Start a supervised consumer in a pod; yield it, and what it says about itself."""
    arguments = ("-m", "coopgroup.supervisor", sys.executable, "-c", WORKER)
    with subprocess.Popen(
        python_in_pod(*arguments, json.dumps(settings), topic),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as pod:
        assert pod.stdout is not None
        try:
            yield pod, json.loads(pod.stdout.readline())
        finally:
            pod.terminate()


def as_texts(files: dict[str, str]) -> dict[str, str]:
    """Return the settings with the content of each certificate and key in place of its file."""
    return {
        key.replace(".location", ".pem"): Path(value).read_text("ascii")
        if key.endswith(".location")
        else value
        for key, value in files.items()
    }


def said(*arguments: str) -> str:
    """Return the output of a command that succeeds in a pod."""
    done = subprocess.run(
        python_in_pod("-m", "coopgroup", *arguments),
        capture_output=True,
        text=True,
        timeout=WAIT_S_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(300)
@with_ipv6_only
def test_whole_consumer_works_in_a_pod(tmp_path: Path) -> None:
    """With certificates as texts, the bell, telemetry in a topic, probes and the supervisor."""
    topic, group = unique("pod"), unique("pods")
    with KafkaCluster(host="::1", security="SSL") as cluster:
        file = tmp_path / "client.properties"
        file.write_text("".join(f"{key}={one}\n" for key, one in cluster.client_config().items()))
        brokers = ("--config", f"@{file}")
        assert f"{TELEMETRY} is created" in said("setup", *brokers)
        cluster.create_topic(topic, len(RECORDS))
        produce(cluster, topic, RECORDS)
        settings = {
            **as_texts(cluster.client_config()),
            "group.id": group,
            "client.id": "billing",
            "auto.offset.reset": "earliest",
            "coopgroup.bell.topic": BELL_TOPIC,
            "coopgroup.telemetry.topic": TELEMETRY,
        }
        with worker(settings, topic) as (pod, about):
            assert pod.stdout is not None
            assert sorted(int(pod.stdout.readline()) for _ in range(sum(RECORDS))) == [0, 0, 1, 1]
            probes = {one: get(about["port"], one, "[::1]") for one in ("livez", "readyz")}
            assert {one: status for one, (status, _) in probes.items()} == dict.fromkeys(
                probes, 200
            )
            assert "coopgroup_assigned_partitions" in get(about["port"], "metrics", "[::1]")[1]
            _commands_work(group, topic, brokers)
            os.kill(about["process"], signal.SIGKILL)
            _, complaints = pod.communicate(timeout=WAIT_S_MAX)
        assert pod.returncode == 128 + signal.SIGKILL
        assert f"left group {group} for billing-" in complaints


def _commands_work(group: str, topic: str, brokers: tuple[str, ...]) -> None:
    seen = json.loads(said("watch", group, "--json", *brokers))
    assert seen["coordinator"].startswith("[::1]:")
    assert [one["client_id"] for one in seen["members"]] == ["billing"]
    assert "2 partitions" in said("group", "describe", group, *brokers)
    assert "all members are coopgroup" in said("group", "migrate", group, "--check", *brokers)
    assert '"billing' in said("telemetry", "read", TELEMETRY, *brokers)
    consume = ("consume", topic, "--group", unique("consume"), "--from-beginning")
    assert said(*consume, "--max-records", "1", "--json", *brokers)
    page = ("watch", group, "--http", "0", "--http-host", "::1", *brokers)
    with subprocess.Popen(
        python_in_pod("-m", "coopgroup", *page), stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            address = server.stdout.readline().removeprefix("http://").partition("/")[0]
            assert address.startswith("[::1]:")
            status, content = get(int(address.rpartition(":")[2]), "", "[::1]")
        finally:
            server.terminate()
    assert status == 200
    assert group in content


@with_ipv6_only
def test_application_of_the_manifests_is_ready_and_keeps_its_identity() -> None:
    topic, (port,) = unique("app"), free_ports(1, "::1")
    with KafkaCluster(host="::1") as cluster:
        cluster.create_topic(topic, 1)
        produce(cluster, topic, [1])
        arguments = ("-m", "coopgroup.supervisor", sys.executable, str(APP))
        environment = {
            "BOOTSTRAP_SERVERS": cluster.bootstrap_servers,
            "GROUP_ID": unique("apps"),
            "TOPIC": topic,
            "POD_NAME": "billing-0",
            "PORT": str(port),
            "STATE_DIR": state_dir(),
        }
        with subprocess.Popen(
            python_in_pod(*arguments, has_volume=True, **environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as pod:
            try:
                assert pod.stdout is not None
                assert pod.stdout.readline() == f"{topic} 0 0\n", pod.communicate()[1]
                wait_for(lambda: get(port, "readyz", "[::1]")[0] == 200, "a ready pod")
            finally:
                pod.terminate()
            complaints = pod.communicate(timeout=WAIT_S_MAX)[1]
        # A state directory that cannot be used would be a warning.
        assert (pod.returncode, complaints) == (0, "")


@with_ipv6_only
def test_resources_the_bell_and_asyncio_work_over_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coopgroup.groups.group._REFRESH_MS", 200)
    name = unique("resources")
    with KafkaCluster(host="::1") as cluster:
        cluster.create_topic(name, 1, config={"cleanup.policy": "compact"})
        producer = Producer(cluster.client_config())
        for one in ("a", "b"):
            producer.produce(name, key=one, value="{}")
        assert producer.flush(WAIT_S_MAX) == 0
        # Members that hear only of heartbeats would not share within the time of the test.
        settings: dict[str, Any] = {
            **cluster.client_config(),
            "group.id": name,
            "session.timeout.ms": 300_000,
            "heartbeat.interval.ms": 100_000,
            "coopgroup.bell.topic": BELL_TOPIC,
        }
        groups = [
            CooperativeGroup(settings, catalogue=CatalogueTopic(name), start=print, stop=print)
            for _ in range(2)
        ]
        with groups[0]:
            wait_for(lambda: len(groups[0].held()) == 2, "both resources")
            with groups[1]:
                wait_for(lambda: [len(one.held()) for one in groups] == [1, 1], "a share for each")
        reader = settings | {"group.id": unique("aio"), "auto.offset.reset": "earliest"}
        assert asyncio.run(_first_key(reader, name)) == b"a"


async def _first_key(settings: dict[str, Any], topic: str) -> object:
    async with asyncio.timeout(WAIT_S_MAX), AsyncCooperativeConsumer(settings) as consumer:
        consumer.subscribe([topic])
        return (await anext(aiter(consumer))).key
