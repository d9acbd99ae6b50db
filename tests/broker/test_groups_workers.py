"""The worked example: a small cluster of worker processes that scales, dies and bounces."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from coopgroup.report import read_files, write_history_page
from coopgroup.testing import KafkaCluster
from tests.support.worker_cluster import (
    HEAVY,
    WorkerCluster,
    longest_gap_s,
    two_at_once,
)

pytestmark = pytest.mark.verify

FLUSH_S = 2.5
PLAN = {
    "orders": {"tasks": 4, "weight": 1, "flush_ms": 10},
    "users": {"tasks": 4, "weight": 1, "flush_ms": 10},
    HEAVY: {"tasks": 3, "weight": 4, "flush_ms": int(FLUSH_S * 1000)},
}
RESOURCES = {(name, index) for name, one in PLAN.items() for index in range(-1, one["tasks"])}


def _light_outage_s(
    cluster: WorkerCluster, resources: set[tuple[str, int]], begin_s: float
) -> float:
    moments = cluster.moments()
    light = [one for one in resources if one[0] != HEAVY]
    end_s = min(moments[one][-1].at_s for one in light)
    return max(longest_gap_s(moments[one], begin_s, end_s) for one in light)


def _share(resources: set[tuple[str, int]]) -> bool:
    return any(index < 0 for _, index in resources) and any(index >= 0 for _, index in resources)


def test_workers_that_scale_die_bounce_and_freeze_run_everything_once(
    kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    """Connectors appear and vanish; no resource ever has two workers; the report shows it."""
    with WorkerCluster(kafka_cluster, tmp_path, "incremental") as cluster:
        cluster.plan(**PLAN)
        cluster.start("w1", "w2")
        cluster.settle(RESOURCES, "w1", "w2", fair=_share)
        # Scale up: light resources pause for as long as two members need to hand them over.
        begin_s = time.monotonic()
        cluster.start("w3")
        cluster.settle(RESOURCES, "w1", "w2", "w3", fair=_share)
        cluster.pause(1.5)
        heavy_moved = any(name == HEAVY and index >= 0 for name, index in cluster.works()["w3"])
        assert heavy_moved, "the heavy connector had no part in it"
        assert _light_outage_s(cluster, RESOURCES, begin_s) < FLUSH_S
        # One connector is added with its tasks, another one loses tasks.
        changed = {**PLAN, "new": {"tasks": 2}, "users": {**PLAN["users"], "tasks": 1}}
        cluster.plan(**changed)
        now = {(name, index) for name, one in changed.items() for index in range(-1, one["tasks"])}
        cluster.settle(now, "w1", "w2", "w3")
        # Scale down: light resources move immediately, even if heavy ones still flush.
        begin_s = time.monotonic()
        cluster.signal("w3", signal.SIGUSR1)
        cluster.settle(now, "w1", "w2")
        assert _light_outage_s(cluster, now, begin_s) < FLUSH_S
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
        cluster.settle(now, "w1", "w2", fair=_share)
        assert [two for one in cluster.moments().values() for two in two_at_once(one)] == []
    page = tmp_path / "report.html"
    envelopes = read_files([tmp_path / "telemetry.jsonl"]).envelopes
    write_history_page(envelopes, page, title="workers")
    assert HEAVY in page.read_text()
