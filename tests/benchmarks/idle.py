"""What an idle consumer costs, beside confluent_kafka: CPU, wake-ups, threads, descriptors, memory.

States that last: stable without records, alone (a leader) and as the second member (a follower),
and no broker at all. The CPU time is that of the process without the thread that measures, in
percent of a core. Stable members of both kinds are measured at the same time, several times: the
CPU time of an idle process depends on what else fills the caches.

Goals: a stable member costs at most 4 times as much as confluent_kafka, and without a broker 1.5
times. The process has at most 8 threads.

A consumer waits in `poll(1.0)` in a process of its own, as an idle application does, and measures
its own process. It prints one JSON object for each line of its input:

    python -m tests.benchmarks.idle KIND BOOTSTRAP GROUP
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

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
    from coopgroup.testing import KafkaCluster  # noqa: PLC0415 - no part of a consumer's process

    found: dict[str, Any] = {"no_broker": {}}
    for kind in KINDS:
        with _worker(kind, "127.0.0.1:1", "idle") as worker:
            time.sleep(5.0)
            found["no_broker"][kind] = _ask(worker, seconds)
    with KafkaCluster() as cluster:
        cluster.create_topic("records", partitions=PARTITIONS)
        return found | _stable(cluster.bootstrap_servers, pair_seconds, pairs)


def _stable(bootstrap: str, seconds: float, pairs: int) -> dict[str, Any]:
    """Measure a leader of each kind at the same time, and then a follower of each kind."""
    found = {}
    with ExitStack() as workers:
        for state, share in (("leader", PARTITIONS), ("follower", PARTITIONS // 2)):
            both = {}
            for kind in KINDS:
                worker = workers.enter_context(_worker(kind, bootstrap, kind))
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


@contextmanager
def _worker(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.benchmarks.idle", *arguments],
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


# --- in the process of a consumer -----------------------------------------------------------------


def main() -> None:
    """Consume until the input ends; measure for each line of it: a number of seconds."""
    kind, bootstrap, group = sys.argv[1:]
    configuration = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "log_level": 0,
    }
    assigned: list[object] = []
    # Only one of the two libraries is imported.
    name = "Consumer" if kind == "confluent_kafka" else "CooperativeConsumer"
    consumer = getattr(importlib.import_module(kind), name)(configuration)
    consumer.subscribe(["records"], on_assign=lambda _, partitions: assigned.extend(partitions))
    threading.Thread(target=_measure, args=(assigned,), daemon=True).start()
    while True:
        consumer.poll(1.0)


def _measure(assigned: list[object]) -> None:
    for line in sys.stdin:
        before, began, cpu_s = _threads(), time.monotonic(), _cpu_s()
        time.sleep(float(line))
        seconds = time.monotonic() - began
        row = _measured(before, _threads(), seconds)
        row["cpu_percent"] = round(100 * (_cpu_s() - cpu_s) / seconds, 3)
        row["partitions"] = len(assigned)
        print(json.dumps(row), flush=True)
    os._exit(0)


def _cpu_s() -> float:
    """Return the CPU time of the process without this thread, with threads that have ended.

    Without a broker, librdkafka ends and starts threads all the time.
    """
    return time.process_time() - time.thread_time()


def _measured(
    before: dict[str, tuple[str, float, int]],
    after: dict[str, tuple[str, float, int]],
    seconds: float,
) -> dict[str, Any]:
    cpu: dict[str, float] = {}
    wakes: dict[str, float] = {}
    for thread, (name, cpu_s, switches) in after.items():
        _, cpu_0, switches_0 = before.get(thread, (name, 0.0, 0))
        cpu[name] = cpu.get(name, 0.0) + 100 * (cpu_s - cpu_0) / seconds
        wakes[name] = wakes.get(name, 0.0) + (switches - switches_0) / seconds
    return {
        "wakes_per_s": round(sum(wakes.values()), 1),
        "threads": len(after),
        "descriptors": sum(1 for _ in Path("/proc/self/fd").iterdir()) - 1,
        "memory_mib": round(_memory_mib(), 1),
        "cpu_by_thread": {name: round(value, 3) for name, value in sorted(cpu.items())},
        "wakes_by_thread": {name: round(value, 1) for name, value in sorted(wakes.items())},
    }


def _threads() -> dict[str, tuple[str, float, int]]:
    """Return name, CPU seconds and voluntary switches of each thread; not of the measuring one."""
    found = {}
    own = str(threading.get_native_id())
    names = {str(one.native_id): one.name for one in threading.enumerate()}
    for path in Path("/proc/self/task").iterdir():
        if path.name == own:
            continue
        try:
            # in nanoseconds, unlike the ticks of `stat`
            cpu_s = int((path / "schedstat").read_text().split()[0]) / 1e9
            name = (path / "comm").read_text().strip()
            status = (path / "status").read_text()
        except OSError:
            continue  # the thread has ended
        switches = int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])
        found[path.name] = names.get(path.name, name), cpu_s, switches
    return found


def _memory_mib() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


if __name__ == "__main__":
    main()
