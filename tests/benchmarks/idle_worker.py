"""One consumer of the benchmark `idle`, in a process of its own.

It waits in `poll(1.0)` as an idle application does, and measures its own process: CPU time and
wake-ups by thread, threads, open descriptors, memory. It prints one JSON object for each line of
its input, and ends with its input.

    python -m tests.benchmarks.idle_worker KIND BOOTSTRAP GROUP TOPIC
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

__all__ = ["main"]

_STALL_MS: Final = 600_000


def main() -> None:
    """Consume until the input ends; measure for each line of it: a number of seconds."""
    kind, bootstrap, group, topic = sys.argv[1:]
    configuration = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "max.poll.interval.ms": _STALL_MS,
        "log_level": 0,
    }
    assigned: list[object] = []
    consumer = _consumer(kind, configuration, topic, assigned)
    threading.Thread(target=_answer, args=(assigned,), daemon=True).start()
    while True:
        consumer.poll(1.0)


def _consumer(kind: str, configuration: dict[str, Any], topic: str, assigned: list[object]) -> Any:  # noqa: ANN401  (of either client)
    def on_assign(_: object, partitions: list[Any]) -> None:
        assigned.extend(partitions)

    if kind == "confluent_kafka":
        import confluent_kafka  # noqa: PLC0415 - only one of the two is imported

        plain: Any = confluent_kafka.Consumer(configuration)
        plain.subscribe([topic], on_assign=on_assign)
        return plain
    import coopgroup  # noqa: PLC0415 - only one of the two is imported

    consumer = coopgroup.CooperativeConsumer(configuration)

    def on_revoke(consumer: Any, partitions: Any) -> None:  # noqa: ANN401  (as both have it)
        if kind == "coopgroup-revoking":
            consumer.revoke_later(partitions)

    consumer.subscribe([topic], on_assign=on_assign, on_revoke=on_revoke)
    return consumer


def _answer(assigned: list[object]) -> None:
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
