"""The worked example: a small cluster of worker processes that scales, dies and bounces."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import pytest
from attrs import define, field

from coopgroup.report import read_files, write_history_page
from coopgroup.testing import KafkaCluster
from tests.architecture.tree import ROOT
from tests.support.live_group import unique
from tests.support.waiting import wait_for

pytestmark = pytest.mark.verify

HEAVY = "archive"
PLAN = {
    "orders": {"tasks": 4, "weight": 1, "flush_ms": 10},
    "users": {"tasks": 4, "weight": 1, "flush_ms": 10},
    HEAVY: {"tasks": 3, "weight": 4, "flush_ms": 2_500},
}
SETTINGS = {
    "session.timeout.ms": 3_000,
    "heartbeat.interval.ms": 300,
    "coopgroup.catalogue.refresh.ms": 250,
}
END_S = 30.0
LINE_BYTES_MAX = 16_384
Resource = tuple[str, int]


def resources(plan: dict[str, dict[str, int]]) -> set[Resource]:
    return {(name, index) for name, one in plan.items() for index in range(-1, one["tasks"])}


@define(eq=False)
class WorkerCluster:
    """Workers that share one list of connectors; `folder` has the list and their logs."""

    kafka: KafkaCluster
    folder: Path
    group: str = field(factory=lambda: unique("workers"))
    workers: dict[str, subprocess.Popen[bytes]] = field(factory=dict, init=False)
    _version: int = field(default=0, init=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.workers.values():
            with suppress(subprocess.TimeoutExpired):
                process.send_signal(signal.SIGCONT)
                process.terminate()
                process.wait(END_S)
            process.kill()
            process.wait()

    def plan(self, connectors: dict[str, dict[str, int]]) -> None:
        self._version += 1
        fresh = self.folder / "connectors.new"
        fresh.write_text(json.dumps({"version": self._version, "connectors": connectors}))
        fresh.replace(self.folder / "connectors.json")

    def start(self, name: str) -> None:
        settings = {**SETTINGS, "coopgroup.telemetry.file": self.folder / "telemetry.jsonl"}
        command: list[str | Path] = [
            *(sys.executable, ROOT / "examples" / "workers.py", self.folder / "connectors.json"),
            *(f"--bootstrap={self.kafka.bootstrap_servers}", f"--group={self.group}"),
            *(f"--name={name}", "--policy=incremental", f"--log={self.folder / name}.log"),
            *(f"--set={key}={value}" for key, value in settings.items()),
        ]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        self.workers[name] = subprocess.Popen(command, env=environment)

    def signal(self, name: str, number: signal.Signals) -> None:
        self.workers[name].send_signal(number)

    def end(self, name: str) -> None:
        self.workers[name].terminate()
        assert self.workers[name].wait(END_S) == 0

    def settle(self, wanted: Iterable[Resource], *names: str) -> None:
        """Wait until exactly these workers work on all wanted resources, each on a share."""
        expected = sorted(wanted)

        def is_settled() -> bool:
            works = self.works()
            shares = [works.get(name, set()) for name in names]
            return all(shares) and sorted(one for share in shares for one in share) == expected

        wait_for(is_settled, f"{', '.join(names)} share the work")

    def works(self) -> dict[str, set[Resource]]:
        """Return the resources in each worker's last report."""
        rows = [row for row in map(_last_row, self.folder.glob("*.log")) if row is not None]
        return {row["worker"]: {(one[0], one[1]) for one in row["works"]} for row in rows}

    def check_single_workers(self) -> None:
        """Fail if a worker used an older token of a resource, or another worker's token."""
        moments: dict[Resource, list[tuple[float, int, str]]] = {}
        for path in self.folder.glob("*.log"):
            for row in map(json.loads, path.read_text().split("\n")[:-1]):
                for name, index, token in row["works"]:
                    moment = (row["at_s"], token, row["worker"])
                    moments.setdefault((name, index), []).append(moment)
        for work in moments.values():
            for (_, token, worker), (_, after, other) in pairwise(sorted(work)):
                assert after > token or (after, other) == (token, worker)


def _last_row(path: Path) -> dict[str, Any] | None:
    """Return the last whole line of a log, or None. Only the end is read: logs are long."""
    with path.open("rb") as log:
        log.seek(max(0, log.seek(0, os.SEEK_END) - LINE_BYTES_MAX))
        whole = log.read().split(b"\n")[-2:-1]
    row: dict[str, Any] | None = json.loads(whole[0]) if whole else None
    return row


def test_workers_that_scale_die_bounce_and_freeze_run_everything_once(
    kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    """Connectors appear and vanish; no resource ever has two workers; the report shows it."""
    with WorkerCluster(kafka_cluster, tmp_path) as cluster:
        cluster.plan(PLAN)
        for name in ("w1", "w2"):
            cluster.start(name)
        cluster.settle(resources(PLAN), "w1", "w2")
        cluster.start("w3")
        cluster.settle(resources(PLAN), "w1", "w2", "w3")
        # One connector is added with its tasks, another one loses tasks.
        changed = {**PLAN, "new": {"tasks": 2}, "users": {**PLAN["users"], "tasks": 1}}
        cluster.plan(changed)
        now = resources(changed)
        cluster.settle(now, "w1", "w2", "w3")
        cluster.signal("w3", signal.SIGUSR1)  # it leaves for good
        cluster.settle(now, "w1", "w2")
        cluster.end("w3")
        # Bounce, and a death with a successor: the lost resources wait for the returning worker.
        cluster.end("w2")
        cluster.start("w2")
        cluster.settle(now, "w1", "w2")
        cluster.signal("w2", signal.SIGKILL)
        cluster.workers["w2"].wait()
        cluster.start("w2")
        cluster.settle(now, "w1", "w2")
        cluster.signal("w2", signal.SIGSTOP)
        cluster.settle(now, "w1")
        cluster.signal("w2", signal.SIGCONT)
        cluster.settle(now, "w1", "w2")
        cluster.check_single_workers()
    page = tmp_path / "report.html"
    write_history_page(read_files([tmp_path / "telemetry.jsonl"]).envelopes, page, title="workers")
    assert HEAVY in page.read_text()
