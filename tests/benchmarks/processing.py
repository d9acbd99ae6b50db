"""Processing: records per second with handlers that wait, beside one at a time and beside Java.

All read the same topic from its beginning: 24 partitions, 1,000 keys, order by key. One at a time
is a loop over `CooperativeConsumer`. Confluent's Parallel Consumer runs on Java with as many
threads. Time runs from the begin of the first handler to the end of the last one.
"""

from __future__ import annotations

import asyncio
import shutil
import statistics
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from attrs import define, field

from coopgroup import CooperativeConsumer
from coopgroup.aio import AsyncCooperativeConsumer
from coopgroup.processing import process
from coopgroup.testing import KafkaCluster
from tests.benchmarks.jars import classpath_of
from tests.benchmarks.reading import FETCH, RUN_S_MAX, fill

__all__ = ["run"]

TOPIC: Final = "processing"
PARTITIONS: Final = 24
KEYS: Final = 1_000
CONCURRENCY: Final = 32
RECORDS: Final = {0: 100_000, 1: 60_000, 20: 6_000}
"""Number of records for each time of a handler, in ms."""
IN_TURN: Final = {0: 100_000, 1: 4_000, 20: 250}
"""The same for one at a time, which takes as long."""
_JAVA: Final = Path(__file__).parent / "java" / "parallel_consumer"


@define(eq=False)
class Handler:
    """Waits, counts, and notes the times."""

    wait_ms: int
    count: int
    begun_s: float = 0.0
    ended_s: float = 0.0
    handled: int = 0
    done: threading.Event = field(factory=threading.Event)
    _lock: threading.Lock = field(factory=threading.Lock)

    def __call__(self, _: object) -> None:
        """Handle a record."""
        self.begun_s = self.begun_s or time.perf_counter()
        if self.wait_ms:
            time.sleep(self.wait_ms / 1000)
        with self._lock:
            self.handled += 1
            if self.handled == self.count:
                self.ended_s = time.perf_counter()
                self.done.set()

    @property
    def rate(self) -> float:
        """Return the handled records per second."""
        return self.count / (self.ended_s - self.begun_s)


def run(*, runs: int = 3) -> dict[str, Any]:
    """Return, by time of a handler, the median rate of each kind, and our ratio to Java."""
    with KafkaCluster() as cluster:
        figures = {}
        for wait_ms, count in RECORDS.items():
            topic = f"{TOPIC}-{wait_ms}"
            cluster.create_topic(topic, PARTITIONS)
            fill(cluster, topic, count, PARTITIONS, keys=KEYS)
            rates: dict[str, list[float]] = {kind: [] for kind in KINDS}
            for _ in range(runs):
                for kind, measure in KINDS.items():
                    rates[kind].append(measure(cluster, topic, wait_ms))
            medians = {kind: round(statistics.median(all_)) for kind, all_ in rates.items()}
            ratio = medians["coopgroup"] / medians["parallel_consumer"]
            figures[f"{wait_ms}_ms"] = {**medians, "ratio_to_java": round(ratio, 2)}
            print(f"handler of {wait_ms} ms: {figures[f'{wait_ms}_ms']}", flush=True)
    return figures


def _config(cluster: KafkaCluster) -> dict[str, Any]:
    return {
        **cluster.client_config(),
        "group.id": f"processing-{time.monotonic_ns()}",
        "auto.offset.reset": "earliest",
        **FETCH,
    }


def _in_turn(cluster: KafkaCluster, topic: str, wait_ms: int) -> float:
    handler = Handler(wait_ms, IN_TURN[wait_ms])
    with CooperativeConsumer(_config(cluster)) as consumer:
        consumer.subscribe([topic])
        for message in consumer:
            handler(message)
            if handler.done.is_set():
                break
    return handler.rate


def _ours(cluster: KafkaCluster, topic: str, wait_ms: int) -> float:
    handler = Handler(wait_ms, RECORDS[wait_ms])
    with CooperativeConsumer(_config(cluster)) as consumer:
        consumer.subscribe([topic])
        process(consumer, handler, order="key", workers=CONCURRENCY, stop=handler.done)
    return handler.rate


def _ours_on_a_loop(cluster: KafkaCluster, topic: str, wait_ms: int) -> float:
    handler = Handler(0, RECORDS[wait_ms])

    async def handle(record: object) -> None:
        handler.begun_s = handler.begun_s or time.perf_counter()
        if wait_ms:
            await asyncio.sleep(wait_ms / 1000)
        handler(record)

    async def main() -> None:
        async with AsyncCooperativeConsumer(_config(cluster), topic) as consumer:
            await process(consumer, handle, order="key", concurrency=CONCURRENCY, stop=handler.done)

    asyncio.run(main())
    return handler.rate


def _java(cluster: KafkaCluster, topic: str, wait_ms: int) -> float:
    java = shutil.which("java")
    assert java is not None
    count = RECORDS[wait_ms]
    found = subprocess.run(
        [
            *(java, "-Xmx512m", "-cp", classpath_of(_JAVA / "pom.xml")),
            str(_JAVA / "ParallelBench.java"),
            str(cluster.client_config()["bootstrap.servers"]),
            *(topic, str(count), str(wait_ms), str(CONCURRENCY)),
        ],
        check=True,
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
    )
    return count / float(found.stdout.split()[-1])


KINDS: Final[dict[str, Callable[[KafkaCluster, str, int], float]]] = {
    "one_at_a_time": _in_turn,
    "coopgroup": _ours,
    "coopgroup_asyncio": _ours_on_a_loop,
    "parallel_consumer": _java,
}
