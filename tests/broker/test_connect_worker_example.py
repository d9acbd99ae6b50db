"""The example of a Connect worker: processes that come, go, die and freeze, and changed lists."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import define
from confluent_kafka import Producer

from coopgroup.testing import KafkaCluster
from tests.support.live_group import unique
from tests.support.waiting import wait_for
from tests.support.worker_logs import Crew, Task

pytestmark = pytest.mark.verify

CONNECTORS: Final[dict[str, dict[str, Any]]] = {
    "orders": {"plugin": "jdbc", "tasks": 4, "flush_ms": 10},
    "users": {"plugin": "file", "tasks": 4, "flush_ms": 10},
    "archive": {"plugin": "file", "tasks": 2, "flush_ms": 2_000},
}


def tasks(connectors: Mapping[str, Mapping[str, Any]]) -> set[Task]:
    return {(name, index) for name, one in connectors.items() for index in range(-1, one["tasks"])}


@define(eq=False)
class Stage:
    """Workers of one topic of connectors."""

    kafka: KafkaCluster
    topic: str
    crew: Crew

    def write(self, **connectors: object) -> None:
        producer = Producer(self.kafka.client_config())
        for name, one in connectors.items():
            value = None if one is None else json.dumps(one)
            producer.produce(self.topic, key=name, value=value)
        assert producer.flush(60) == 0


@pytest.fixture
def stage(kafka_cluster: KafkaCluster, tmp_path: Path) -> Iterator[Stage]:
    topic = unique("connectors")
    kafka_cluster.create_topic(topic, 1, config={"cleanup.policy": "compact"})
    bootstrap = kafka_cluster.client_config()["bootstrap.servers"]
    arguments = [f"--bootstrap={bootstrap}", f"--topic={topic}"]
    with Crew(tmp_path, "connect_worker.py", arguments) as crew:
        yield Stage(kafka_cluster, topic, crew)
        crew.check_single_workers()


def test_definitions_are_followed_where_their_plugin_is(stage: Stage) -> None:
    """Only changed tasks stop, and what is deleted says so."""
    crew, wanted = stage.crew, tasks(CONNECTORS)
    stage.write(**CONNECTORS)
    crew.start("w1")
    crew.start("w2")
    crew.settle(wanted, "w1", "w2")
    crew.start("w3", "--plugins=file")  # it declines the tasks of jdbc
    before = crew.settle(wanted, "w1", "w2", "w3")
    assert {before[task] for task in wanted if task[0] == "orders"} <= {"w1", "w2"}
    since_s, changed = time.monotonic(), {**CONNECTORS["users"], "flush_ms": 20}
    stage.write(users=changed)
    users = {task for task in wanted if task[0] == "users"}

    def follow() -> bool:
        starts = crew.rows("start")
        return {row["task"] for row in starts if row["definition"] == changed} == users

    wait_for(follow, "the tasks follow the definition", 60.0)
    assert crew.settle(wanted, "w1", "w2", "w3") == before
    assert crew.stopped(since_s) == users
    since_s = time.monotonic()
    stage.write(archive=None, new={"plugin": "file", "tasks": 2})
    now = {"orders": CONNECTORS["orders"], "users": changed, "new": {"tasks": 2}}
    crew.settle(tasks(now), "w1", "w2", "w3")
    stops = [row for row in crew.rows("stop") if row["at_s"] > since_s]
    deleted = {row["task"] for row in stops if row["reason"] == "deleted"}
    assert deleted == {task for task in wanted if task[0] == "archive"}


def test_workers_run_each_task_once_when_workers_return_freeze_and_die(stage: Stage) -> None:
    """A restart moves nothing, and what a frozen or killed worker had is not left out."""
    crew, wanted = stage.crew, tasks(CONNECTORS)
    stage.write(**CONNECTORS)
    for name in ("w1", "w2", "w3"):
        crew.start(name)
    before = crew.settle(wanted, "w1", "w2", "w3")
    since_s = time.monotonic()
    crew.end("w2")
    crew.start("w2")
    assert crew.settle(wanted, "w1", "w2", "w3") == before
    assert crew.stopped(since_s) == {task for task, worker in before.items() if worker == "w2"}
    crew.signal("w2", signal.SIGSTOP)
    crew.settle(wanted, "w1", "w3")
    crew.signal("w2", signal.SIGCONT)
    crew.settle(wanted, "w1", "w2", "w3")
    crew.signal("w3", signal.SIGKILL)
    crew.settle(wanted, "w1", "w2")
