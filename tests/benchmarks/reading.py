"""What the benchmarks of throughput share: readers of one topic, in turns, each in its own process.

All read the same topic from its beginning on one broker. Time runs from the first record to the
last, so joining the group does not count. On a busy machine rates depend on what else runs. The CPU
time per record, of all threads of the process, does not.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from attrs import define, field
from confluent_kafka import Producer

from coopgroup.testing import KafkaCluster

Read: TypeAlias = tuple[float, float]
"""Records per second, and microseconds of CPU time for each record."""

TOPIC: Final = "throughput"
PARTITIONS: Final = 12
PAYLOAD: Final = bytes(100)
# By default librdkafka pauses for a second when its queue is full, which makes figures random.
FETCH: Final = {"fetch.queue.backoff.ms": 5}
RUN_S_MAX: Final = 180


@define
class Stopwatch:
    """Time since it was made: of the clock, and CPU time of this process."""

    _began_s: float = field(factory=time.perf_counter, init=False)
    _cpu_began_s: float = field(factory=time.process_time, init=False)

    def read(self, seen: int) -> Read:
        rate = seen / (time.perf_counter() - self._began_s)
        return rate, (time.process_time() - self._cpu_began_s) / seen * 1e6


def race(module: str, shares: Mapping[str, float], *, records: int, runs: int) -> dict[str, Any]:
    """Let all kinds of reader read a topic, in turns.

    Args:
        module: benchmark that reads, given the configuration of a client as JSON on standard input,
            and two arguments: the kind and the number of records. It prints a `Read`.
        shares: part of the records that each kind reads: a slow consumer would take minutes.
        records: number in the topic.
        runs: runs of each kind.

    Returns:
        By kind: medians of the rate and of the CPU time, the least CPU time, and all rates.
    """
    found: dict[str, list[Read]] = {kind: [] for kind in shares}
    with KafkaCluster() as cluster:
        cluster.create_topic(TOPIC, PARTITIONS)
        _fill(cluster, records)
        for number in range(runs):
            # The order alternates, so no kind always reads after the same other kind.
            for kind in list(shares)[:: 1 if number % 2 else -1]:
                config = {**cluster.client_config(), "group.id": f"{kind.split()[0]}-{time.time()}"}
                answer = subprocess.run(
                    [sys.executable, "-m", module, kind, str(round(records * shares[kind]))],
                    input=json.dumps(config),
                    stdout=subprocess.PIPE,
                    text=True,
                    timeout=RUN_S_MAX,
                    check=True,
                )
                rate, cpu_us = json.loads(answer.stdout)
                print(f"{module}: {kind}: {rate:,.0f}/s, {cpu_us:.2f} µs of CPU each", flush=True)
                found[kind].append((rate, cpu_us))
    return {
        kind: {
            "per_s": statistics.median(rate for rate, _ in reads),
            "cpu_us": round(statistics.median(cost for _, cost in reads), 3),
            "cpu_us_least": round(min(cost for _, cost in reads), 3),
            "runs_per_s": [rate for rate, _ in reads],
        }
        for kind, reads in found.items()
    }


def _fill(cluster: KafkaCluster, records: int) -> None:
    """Write records, spread evenly over the partitions."""
    settings = {"linger.ms": 20, "queue.buffering.max.messages": 200_000}
    producer = Producer({**cluster.client_config(), **settings})
    for number in range(records):
        while True:
            try:
                producer.produce(TOPIC, PAYLOAD, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.05)
    if producer.flush(RUN_S_MAX):
        raise RuntimeError("the broker did not acknowledge all records")
