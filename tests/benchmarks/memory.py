"""Memory of a consumer that owns many partitions, beside confluent_kafka.

Each measurement is a process without a broker: a consumer gets partitions of one topic at explicit
offsets, and the growth of its resident memory counts. The memory of records is not included. A
leader's memory is part of the benchmark `leader`.

Goal: a consumer needs at most twice as much for its partitions as librdkafka alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

__all__ = ["run"]

COUNTS: Final = (1_000, 10_000)
KINDS: Final = ("confluent_kafka", "coopgroup")
_CONFIGURATION: Final = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0}


def run(*, counts: tuple[int, ...] = COUNTS) -> dict[str, dict[str, float]]:
    """Return, by kind, resident memory in MiB without partitions (`0`) and with each number."""
    return {kind: _measured(kind, counts) for kind in KINDS}


def _measured(kind: str, counts: tuple[int, ...]) -> dict[str, float]:
    found: dict[str, float] = {}
    for count in counts:
        row = subprocess.run(
            [sys.executable, "-m", "tests.benchmarks.memory", kind, str(count)],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        found |= json.loads(row)
    return found


def main() -> None:
    """Print the memory before and after the partitions came: the process of one measurement."""
    kind, count = sys.argv[1], int(sys.argv[2])
    before, after = (_hold_plain if kind == "confluent_kafka" else _hold_ours)(count)
    print(json.dumps({"0": round(before, 1), str(count): round(after, 1)}))
    sys.stdout.flush()
    os._exit(0)


def _hold_plain(count: int) -> tuple[float, float]:
    from confluent_kafka import Consumer, TopicPartition  # noqa: PLC0415 - measured

    consumer = Consumer(_CONFIGURATION)
    consumer.poll(0.5)
    before = _memory_mib()
    consumer.incremental_assign([TopicPartition("records", one, 0) for one in range(count)])
    consumer.poll(1.0)
    return before, _memory_mib()


def _hold_ours(count: int) -> tuple[float, float]:
    from coopgroup import CooperativeConsumer, ResourceSet  # noqa: PLC0415 - measured
    from coopgroup.kafka.callbacks.subscribed import Callbacks  # noqa: PLC0415 - measured
    from coopgroup.member.effects import GrantResources  # noqa: PLC0415 - measured

    consumer = CooperativeConsumer(_CONFIGURATION)

    def begin(consumer: Any, partitions: list[Any]) -> None:  # noqa: ANN401  (as it is called)
        for one in partitions:
            one.offset = 0
        consumer.incremental_assign(partitions)

    # No coordinator grants partitions here, so the group's thread is left out.
    consumer._listener.callbacks = Callbacks(begin, None, None, None, None)  # noqa: SLF001
    consumer.poll(0.5)
    before = _memory_mib()
    granted = ResourceSet({"records": range(count)})
    consumer._driver.inbox.put(GrantResources(resources=granted))  # noqa: SLF001
    consumer.poll(1.0)
    assert len(consumer.assignment()) == count
    return before, _memory_mib()


def _memory_mib() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


if __name__ == "__main__":
    main()
