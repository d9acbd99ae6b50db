"""What an idle consumer costs, beside confluent_kafka: CPU, wake-ups, threads, descriptors, memory.

States that last: stable without records, alone (a leader) and as the second member (a follower); no
broker at all; a broker that stops while the member owns partitions; and, only with coopgroup, a
revocation that `revoke_later` postpones. The CPU time is that of the process without the thread
that measures, in percent of a core. Stable members of both kinds are measured at the same time,
several times: the CPU time of an idle process depends on what else fills the caches.

Goals: a stable member costs at most 1.5 times as much as confluent_kafka, and without a broker no
more. The process has at most 8 threads.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from coopgroup.testing import KafkaCluster

__all__ = ["run"]

PARTITIONS: Final = 24
SECONDS: Final = 10.0
PAIR_SECONDS: Final = 60.0
PAIRS: Final = 5
KINDS: Final = ("confluent_kafka", "coopgroup")
_JOIN_S: Final = 60.0
# After this time, look-ups of a new leader are done, and its second client of librdkafka is gone.
_AT_REST_S: Final = 20.0


def run(
    *, seconds: float = SECONDS, pair_seconds: float = PAIR_SECONDS, pairs: int = PAIRS
) -> dict[str, Any]:
    """Measure each kind of consumer in each state; stable members of both kinds in `pairs`.

    Returns:
        By state and kind of consumer: CPU in percent of a core, wake-ups per second, threads,
        descriptors, memory in MiB, and CPU and wake-ups of each thread. For the stable states
        also the ratios of the CPU time, ascending.
    """
    states = ("follower", "leader", "no_broker", "broker_away")
    found: dict[str, Any] = {state: {} for state in states}
    for kind in KINDS:
        with _worker(kind, "127.0.0.1:1", "idle", "records") as worker:
            time.sleep(5.0)
            found["no_broker"][kind] = _ask(worker, seconds)
    with KafkaCluster() as cluster:
        cluster.create_topic("records", partitions=PARTITIONS)
        found |= _stable(cluster.bootstrap_servers, pair_seconds, pairs)
        found["revoke_later"] = {"coopgroup": _revoking(cluster.bootstrap_servers, seconds)}
        for kind in KINDS:
            with _worker(kind, cluster.bootstrap_servers, f"{kind}-2", "records") as worker:
                _wait_owned(worker, PARTITIONS)
                cluster.pause(1)
                try:
                    time.sleep(5.0)
                    found["broker_away"][kind] = _ask(worker, seconds)
                finally:
                    cluster.resume(1)
    return found


def _stable(bootstrap: str, seconds: float, pairs: int) -> dict[str, Any]:
    """Measure a leader of each kind at the same time, and then a follower of each kind."""
    found = {}
    with ExitStack() as workers:
        for state, share in (("leader", PARTITIONS), ("follower", PARTITIONS // 2)):
            both = {}
            for kind in KINDS:
                worker = workers.enter_context(_worker(kind, bootstrap, kind, "records"))
                _wait_owned(worker, share)
                both[kind] = worker
            time.sleep(_AT_REST_S)
            found[state] = _side_by_side(both, seconds, pairs)
    return found


def _side_by_side(
    workers: dict[str, subprocess.Popen[str]], seconds: float, pairs: int
) -> dict[str, Any]:
    rows: dict[str, list[dict[str, Any]]] = {kind: [] for kind in workers}
    for _ in range(pairs):
        for worker in workers.values():
            _request(worker, seconds)
        for kind, worker in workers.items():
            rows[kind].append(_answer(worker))
    own, other = rows["coopgroup"], rows["confluent_kafka"]
    ratios = sorted(
        round(one["cpu_percent"] / two["cpu_percent"], 2)
        for one, two in zip(own, other, strict=True)
    )
    medians = {
        kind: sorted(of_kind, key=lambda row: float(row["cpu_percent"]))[pairs // 2]
        for kind, of_kind in rows.items()
    }
    return {**medians, "ratios": ratios}


def _revoking(bootstrap: str, seconds: float) -> dict[str, Any]:
    """Measure a member that stops half of its partitions slowly, because another has joined."""
    arguments = (bootstrap, "revoking", "records")
    with _worker("coopgroup-revoking", *arguments) as worker:
        _wait_owned(worker, PARTITIONS)
        with _worker("coopgroup", *arguments):
            time.sleep(8.0)  # two heartbeats
            return _ask(worker, seconds)


@contextmanager
def _worker(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.benchmarks.idle_worker", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _ask(worker: subprocess.Popen[str], seconds: float) -> dict[str, Any]:
    _request(worker, seconds)
    return _answer(worker)


def _request(worker: subprocess.Popen[str], seconds: float) -> None:
    assert worker.stdin is not None
    worker.stdin.write(f"{seconds}\n")
    worker.stdin.flush()


def _answer(worker: subprocess.Popen[str]) -> dict[str, Any]:
    assert worker.stdout is not None
    found: dict[str, Any] = json.loads(worker.stdout.readline())
    return found


def _wait_owned(worker: subprocess.Popen[str], partitions: int) -> None:
    deadline = time.monotonic() + _JOIN_S
    while _ask(worker, 0.2)["partitions"] < partitions:
        assert time.monotonic() < deadline, "the consumer did not get its partitions"
    time.sleep(2.0)
