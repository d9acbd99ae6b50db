"""Throughput of a FastStream service on coopgroup, beside FastStream's own broker.

Both read the same topic from its beginning, in turns, each run in its own process, with a handler
that does nothing. Records have 100 bytes. Time runs from the first record to the last, and so does
the processor time of the process, which depends less on other work of the machine.

Goal: the processor time for each record is at most 1.1 times that of FastStream's own broker.

    python -m tests.benchmarks.run faststream
"""

from __future__ import annotations

import asyncio
import itertools
import json
import statistics
import subprocess
import sys
from typing import Any, Final

from faststream import AckPolicy
from faststream.confluent import KafkaBroker as TheirBroker

from coopgroup.integrations.faststream import KafkaBroker
from coopgroup.testing import KafkaCluster
from tests.benchmarks.aio import Read, Stopwatch
from tests.benchmarks.throughput import TOPIC, fill

__all__ = ["run"]

PARTITIONS: Final = 12
RECORDS: Final = 20_000
RUNS: Final = 5
RUN_S_MAX: Final = 120
OURS: Final = "coopgroup"
THEIRS: Final = "faststream"
POLICIES: Final = (AckPolicy.ACK_FIRST, AckPolicy.ACK)


def run(*, records: int = RECORDS, runs: int = RUNS) -> dict[str, Any]:
    """Measure both brokers with both policies.

    Returns:
        For each acknowledgement policy: records per second and processor time in microseconds for
        each record, of every run by kind, and the ratios of their medians, ours to theirs. The
        least processor time is that of the run which other work disturbed least.
    """
    found: dict[str, dict[str, list[Read]]] = {
        policy.value: {OURS: [], THEIRS: []} for policy in POLICIES
    }
    with KafkaCluster() as cluster:
        cluster.create_topic(TOPIC, PARTITIONS)
        fill(cluster.client_config(), records)
        for number, policy in itertools.product(range(runs), POLICIES):
            # The order alternates, so neither kind always reads after the other kind.
            for kind in (OURS, THEIRS) if number % 2 else (THEIRS, OURS):
                group_id = f"{kind}-{policy.value}-{number}"
                read = measure_apart(
                    kind, cluster.bootstrap_servers, policy.value, group_id, str(records)
                )
                print(
                    f"faststream: {policy.value} {kind} {read[0]:,.0f}/s, {read[1]:.0f} us of CPU",
                    flush=True,
                )
                found[policy.value][kind].append(read)
    return {policy: _summary(by_kind) for policy, by_kind in found.items()}


def _summary(by_kind: dict[str, list[Read]]) -> dict[str, Any]:
    rates = {kind: statistics.median(rate for rate, _ in all_) for kind, all_ in by_kind.items()}
    costs = {kind: statistics.median(cost for _, cost in all_) for kind, all_ in by_kind.items()}
    least = {kind: min(cost for _, cost in all_) for kind, all_ in by_kind.items()}
    return {
        "cpu_us": costs,
        "cpu_ratio": round(costs[OURS] / costs[THEIRS], 3),
        "cpu_us_least": least,
        "cpu_ratio_least": round(least[OURS] / least[THEIRS], 3),
        "median_per_s": rates,
        "rate_ratio": round(rates[OURS] / rates[THEIRS], 3),
        "runs": by_kind,
    }


def measure_apart(*arguments: str) -> Read:
    """Return the records per second, and the CPU time for each, of one run in a new process."""
    answer = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.faststream", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        timeout=RUN_S_MAX,
        check=True,
    )
    rate, cpu_us = json.loads(answer.stdout)
    return rate, cpu_us


async def measure(kind: str, address: str, policy: str, group_id: str, records: int) -> Read:
    """Read records with one broker."""
    broker = (KafkaBroker if kind == OURS else TheirBroker)(address, logger=None)
    is_over, watches = asyncio.Event(), list[Stopwatch]()
    reads: list[Read] = []
    numbers = itertools.count(1)

    @broker.subscriber(
        TOPIC, group_id=group_id, auto_offset_reset="earliest", ack_policy=AckPolicy(policy)
    )
    async def handle(record: bytes) -> None:
        number = next(numbers)
        if number == 1:
            watches.append(Stopwatch())
        elif number == records:
            reads.append(watches[0].read(records - 1))
            is_over.set()

    async with broker:
        await broker.start()
        await is_over.wait()
    return reads[0]


if __name__ == "__main__":
    kind, address, policy, group_id, records = sys.argv[1:]
    print(json.dumps(asyncio.run(measure(kind, address, policy, group_id, int(records)))))
