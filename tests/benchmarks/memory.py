"""Memory of a consumer that owns many partitions, beside confluent_kafka.

Each measurement is a process without a broker: a consumer gets partitions of one topic at explicit
offsets, and the growth of its resident memory counts. The memory of records is not included.
Without a broker, librdkafka's time grows with the square of the partitions. So with 100,000 of them
only our own structures are measured (`coopgroup-own`): a stand-in takes librdkafka's place. A
leader's memory is part of the benchmark `leader`.

Goal: a consumer needs at most twice as much for its partitions as librdkafka alone.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

__all__ = ["run"]

COUNTS: Final = (1_000, 10_000)
OWN_COUNTS: Final = (1_000, 10_000, 100_000)
KINDS: Final = ("confluent_kafka", "coopgroup", "coopgroup-own")
_CONFIGURATION: Final = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0}


def run(
    *, counts: tuple[int, ...] = COUNTS, own_counts: tuple[int, ...] = OWN_COUNTS
) -> dict[str, Any]:
    """Measure both consumers with each number of partitions.

    Args:
        counts: numbers of partitions.
        own_counts: numbers of partitions without librdkafka.

    Returns:
        By kind of consumer: resident memory in MiB without partitions (`0`) and with each number.
    """
    return {
        kind: _measured(kind, own_counts if kind == "coopgroup-own" else counts) for kind in KINDS
    }


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
    if kind == "confluent_kafka":
        before, after = _hold_plain(count)
    else:
        before, after = _hold_ours(count, with_librdkafka=kind == "coopgroup")
    print(json.dumps({"0": round(before, 1), str(count): round(after, 1)}))
    sys.stdout.flush()
    import os  # noqa: PLC0415 - nothing of the measurement needs it

    os._exit(0)


def _hold_plain(count: int) -> tuple[float, float]:
    from confluent_kafka import Consumer, TopicPartition  # noqa: PLC0415 - measured

    consumer = Consumer(_CONFIGURATION)
    consumer.poll(0.5)
    before = _memory_mib()
    consumer.incremental_assign([TopicPartition("records", one, 0) for one in range(count)])
    consumer.poll(1.0)
    return before, _memory_mib()


class _NoLibrdkafka:
    """Takes partitions, and has no records."""

    def incremental_assign(self, partitions: list[Any]) -> None:
        """Take them."""

    def list_topics(self, topic: str, timeout: float) -> None:
        """Know each topic."""

    def position(self, partitions: list[Any]) -> list[Any]:
        return partitions

    def poll(self, timeout: float) -> None:
        time.sleep(timeout)

    def consume(self, _count: int, _timeout: float) -> list[Any]:
        return []


def _hold_ours(count: int, *, with_librdkafka: bool) -> tuple[float, float]:
    from coopgroup import CooperativeConsumer, ResourceSet  # noqa: PLC0415 - measured
    from coopgroup.kafka.callbacks.subscribed import Callbacks  # noqa: PLC0415 - measured
    from coopgroup.member.effects import GrantResources  # noqa: PLC0415 - measured

    consumer = CooperativeConsumer(_CONFIGURATION)

    def begin(consumer: Any, partitions: list[Any]) -> None:  # noqa: ANN401  (as it is called)
        for one in partitions:
            one.offset = 0
        consumer.incremental_assign(partitions)

    if not with_librdkafka:
        consumer._fetching.consumer = _NoLibrdkafka()  # noqa: SLF001
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
