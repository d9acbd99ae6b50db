"""Throughput: records per second of `CooperativeConsumer` beside raw confluent_kafka.

Both read the same topic from its beginning on one broker, in turns, each run in its own process.
Time runs from the first record to the last, so joining the group does not count. Goal: the ratio of
the medians (ours to theirs) is at least 0.97, for `consume` and for `poll`.

On a busy machine rates depend on what else runs. The processor time per record, of all threads of
the process, does not.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import Producer

from coopgroup.testing import KafkaCluster
from coopgroup.testing.trial.consumers import build_consumer
from coopgroup.testing.trial.spec import WorkerSpec, dump_spec, load_spec

__all__ = ["run"]

TOPIC: Final = "throughput"
PARTITIONS: Final = 12
RECORDS: Final = 2_000_000
PAYLOAD: Final = bytes(100)
BATCH: Final = 500
# By default librdkafka pauses for a second when its queue is full, which makes figures random.
FETCH: Final = {"fetch.queue.backoff.ms": 5}
RUNS: Final = 5
RUN_S_MAX: Final = 120
OURS: Final = "coopgroup-simple"
THEIRS: Final = "eager"
SHARES: Final = {"consume": 1.0, "poll": 0.5}
"""Part of the records that a run of each method reads: one at a time takes longer."""


def run(*, records: int = RECORDS, runs: int = RUNS) -> dict[str, Any]:
    """Measure both methods.

    Args:
        records: records in the topic; `SHARES` says which share a run reads.
        runs: runs of each kind and method.

    Returns:
        For each method: records per second of every run by kind, the ratio of the medians, and the
        median processor time per record in microseconds by kind.
    """
    with KafkaCluster() as cluster:
        cluster.create_topic(TOPIC, PARTITIONS)
        fill(cluster.client_config(), records)
        rates: dict[str, dict[str, list[float]]] = {
            method: {OURS: [], THEIRS: []} for method in SHARES
        }
        cpu_us: dict[str, dict[str, list[float]]] = {
            method: {OURS: [], THEIRS: []} for method in SHARES
        }
        for number in range(runs):
            for method, share in SHARES.items():
                # The order alternates, so neither kind always reads after the other kind.
                for kind in (OURS, THEIRS) if number % 2 else (THEIRS, OURS):
                    group_id = f"{kind}-{method}-{number}"
                    rate, cost_us = measure_apart(
                        cluster.client_config(), kind, group_id, method, round(records * share)
                    )
                    print(
                        f"throughput: {method} {kind} {rate:,.0f}/s, {cost_us:.2f} us of CPU each",
                        flush=True,
                    )
                    rates[method][kind].append(rate)
                    cpu_us[method][kind].append(cost_us)
    return {
        method: {
            "ratio": round(
                statistics.median(by_kind[OURS]) / statistics.median(by_kind[THEIRS]), 4
            ),
            "records_per_s": by_kind,
            "cpu_us_per_record": {
                kind: round(statistics.median(costs), 3) for kind, costs in cpu_us[method].items()
            },
        }
        for method, by_kind in rates.items()
    }


def fill(client_config: Mapping[str, str], records: int) -> None:
    """Write `records` records, spread evenly over the partitions."""
    producer = Producer({**client_config, "linger.ms": 20, "queue.buffering.max.messages": 200_000})
    for number in range(records):
        while True:
            try:
                producer.produce(TOPIC, PAYLOAD, partition=number % PARTITIONS)
            except BufferError:
                producer.poll(0.05)
            else:
                break
    left = producer.flush(RUN_S_MAX)
    if left:
        raise RuntimeError(f"{left} records were not acknowledged")


def measure_apart(
    client_config: Mapping[str, str], kind: str, group_id: str, method: str, records: int
) -> tuple[float, float]:
    """Return records per second, and microseconds of CPU per record, of one run in a process."""
    spec = WorkerSpec(
        kind=kind,
        name="reader",
        group_id=group_id,
        topics=(TOPIC,),
        partitions_per_topic=PARTITIONS,
        log_path="",
        client_config=dict(client_config),
        extra_config=FETCH,
    )
    answer = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.throughput", method, str(records)],
        input=dump_spec(spec),
        stdout=subprocess.PIPE,
        text=True,
        timeout=RUN_S_MAX,
        check=True,
    )
    rate, cpu_us = json.loads(answer.stdout)
    return float(rate), float(cpu_us)


def read_all(spec: WorkerSpec, method: str, records: int) -> tuple[float, float]:
    """Read `records` records.

    Returns:
        Records per second from the first one on, and microseconds of CPU per record.
    """
    consumer: Any = build_consumer(spec)
    consumer.subscribe(list(spec.topics))
    while not consumer.consume(1, 1.0):  # joining costs CPU, too
        continue
    used_s = time.process_time()
    records -= 1
    began, seen = (time_consume if method == "consume" else time_poll)(consumer, records)
    took_s, used_s = time.perf_counter() - began, time.process_time() - used_s
    consumer.close()
    return seen / took_s, used_s / seen * 1e6


def time_consume(consumer: Any, records: int) -> tuple[float, int]:  # noqa: ANN401 - ours or theirs
    """Read with `consume`; return the time of the first batch, and the number of later records."""
    batch = consumer.consume(BATCH, 1.0)
    while not batch:
        batch = consumer.consume(BATCH, 1.0)
    began = time.perf_counter()
    first = seen = len(batch)
    while seen < records:
        # Never ask for more records than remain: `consume` would wait for them until its time-out.
        seen += len(consumer.consume(min(BATCH, records - seen), 1.0))
    return began, seen - first


def time_poll(consumer: Any, records: int) -> tuple[float, int]:  # noqa: ANN401 - ours or theirs
    """Read with `poll`; return the time of the first record, and the number of later records."""
    while consumer.poll(1.0) is None:
        continue
    began = time.perf_counter()
    seen = 1
    while seen < records:
        if consumer.poll(1.0) is not None:
            seen += 1
    return began, seen - 1


if __name__ == "__main__":
    print(
        json.dumps(
            read_all(load_spec(WorkerSpec, sys.stdin.readline()), sys.argv[1], int(sys.argv[2]))
        )
    )
