"""Throughput of consumers for asyncio, beside the synchronous ones.

All read the same topic from its beginning on one broker, in turns, each run in its own process.
Records have 100 bytes. Time runs from the first record to the last, so joining the group does not
count. So does the CPU time of the process, which hardly depends on other work of the machine.

Goals, of the medians: `async for` of `AsyncCooperativeConsumer` is at least 4 times as fast as that
of aiokafka. Its `getmany` has at least 0.7 of the rate of confluent_kafka's `consume`, and is
faster than aiokafka's.

aiokafka is a development dependency; without it (`pip install aiokafka`) its rows are left out.

    python -m tests.benchmarks.run aio
    python -m tests.benchmarks.aio --write     # the last result into docs/asyncio.md
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

from attrs import define, field
from confluent_kafka import Consumer
from confluent_kafka.aio import AIOConsumer

from coopgroup import CooperativeConsumer
from coopgroup.aio import AsyncCooperativeConsumer
from coopgroup.testing import KafkaCluster
from tests.benchmarks.results import RESULTS, write_between
from tests.benchmarks.throughput import BATCH, FETCH, PARTITIONS, TOPIC, fill, time_consume

__all__ = ["run"]

Read: TypeAlias = tuple[float, float]
"""Records per second, and microseconds of CPU time for each record."""

RECORDS: Final = 1_500_000
RUNS: Final = 3
RUN_S_MAX: Final = 180
PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "asyncio.md"
CONSUME: Final = "confluent_kafka.Consumer, consume"
OURS: Final = "coopgroup.CooperativeConsumer, consume"
GETMANY: Final = "coopgroup.aio, getmany"
ITERATE: Final = "coopgroup.aio, async for"
AIO_POLL: Final = "confluent_kafka.aio.AIOConsumer, poll"
AIO_CONSUME: Final = "confluent_kafka.aio.AIOConsumer, consume"
THEIR_GETMANY: Final = "aiokafka, getmany"
THEIR_ITERATE: Final = "aiokafka, async for"
# The part of the records that a run reads: a slow consumer would take minutes.
SHARES: Final = {
    CONSUME: 1.0,
    OURS: 1.0,
    GETMANY: 1.0,
    ITERATE: 1.0,
    AIO_CONSUME: 0.5,
    AIO_POLL: 0.02,
    THEIR_GETMANY: 1.0,
    THEIR_ITERATE: 0.3,
}


def run(*, records: int = RECORDS, runs: int = RUNS) -> dict[str, Any]:
    """Measure all consumers.

    Returns:
        Records per second of every run by consumer, their medians, and the ratios of the goals; and
        the medians of the CPU time in microseconds for each record.
    """
    kinds = [one for one in SHARES if not one.startswith("aiokafka") or _has_aiokafka()]
    rates: dict[str, list[float]] = {kind: [] for kind in kinds}
    costs: dict[str, list[float]] = {kind: [] for kind in kinds}
    with KafkaCluster() as cluster:
        cluster.create_topic(TOPIC, PARTITIONS)
        fill(cluster.client_config(), records)
        for number in range(runs):
            # The order alternates, so no consumer always reads after the same other one.
            for kind in kinds if number % 2 else reversed(kinds):
                group = f"aio-{number}-{kinds.index(kind)}"
                config = {**cluster.client_config(), "group.id": group}
                rate, cpu_us = measure_apart(config, kind, round(records * SHARES[kind]))
                print(f"aio: {kind}: {rate:,.0f}/s, {cpu_us:.2f} µs of CPU each", flush=True)
                rates[kind].append(rate)
                costs[kind].append(cpu_us)
    medians = {kind: statistics.median(found) for kind, found in rates.items()}
    ratios = {"getmany to consume": medians[GETMANY] / medians[CONSUME]}
    if THEIR_GETMANY in medians:
        ratios["getmany to aiokafka's"] = medians[GETMANY] / medians[THEIR_GETMANY]
        ratios["async for to aiokafka's"] = medians[ITERATE] / medians[THEIR_ITERATE]
    return {
        "cpu_us": {kind: round(statistics.median(found), 3) for kind, found in costs.items()},
        "median_per_s": medians,
        "ratios": {name: round(ratio, 2) for name, ratio in ratios.items()},
        "records_per_s": rates,
    }


def _has_aiokafka() -> bool:
    return importlib.util.find_spec("aiokafka") is not None


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


@define
class Stopwatch:
    """Time since it was made: of the clock, and CPU time of this process."""

    _began_s: float = field(factory=time.perf_counter, init=False)
    _cpu_began_s: float = field(factory=_cpu_s, init=False)

    def read(self, seen: int) -> Read:
        """Return records per second, and microseconds of CPU time for each record."""
        rate = seen / (time.perf_counter() - self._began_s)
        return rate, (_cpu_s() - self._cpu_began_s) / seen * 1e6


def measure_apart(config: Mapping[str, Any], kind: str, records: int) -> Read:
    """Return the records per second, and the CPU time for each, of one run in a new process."""
    answer = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.aio", kind, str(records)],
        input=json.dumps(config),
        stdout=subprocess.PIPE,
        text=True,
        timeout=RUN_S_MAX,
        check=True,
    )
    rate, cpu_us = json.loads(answer.stdout)
    return rate, cpu_us


def measure(kind: str, config: Mapping[str, Any], records: int) -> Read:
    """Read records; return the rate per second from the first one on, and the CPU time for each."""
    ours = {**config, "auto.offset.reset": "earliest", **FETCH}
    match kind:
        case _ if kind in (CONSUME, OURS):
            consumer = Consumer(ours) if kind == CONSUME else CooperativeConsumer(ours)
            consumer.subscribe([TOPIC])
            while not consumer.consume(1, 1.0):
                continue
            watch = Stopwatch()
            _, seen = time_consume(consumer, records - 1)
            found = watch.read(seen)
            consumer.close()
            return found
        case _ if kind in (GETMANY, ITERATE):
            return asyncio.run(_measure(_open_ours(ours), WAYS[kind], records))
        case _ if kind in (AIO_POLL, AIO_CONSUME):
            return asyncio.run(_measure(_open_aio(ours), WAYS[kind], records))
        case _:
            return asyncio.run(_measure(_open_aiokafka(config), WAYS[kind], records))


async def _measure(opened: Any, way: Callable[..., Awaitable[Read]], records: int) -> Read:  # noqa: ANN401
    async with opened as consumer:
        return await way(consumer, records)


@asynccontextmanager
async def _open_ours(config: Mapping[str, Any]) -> AsyncIterator[Any]:
    async with AsyncCooperativeConsumer(config, TOPIC) as consumer:
        yield consumer


@asynccontextmanager
async def _open_aio(config: Mapping[str, Any]) -> AsyncIterator[Any]:
    consumer = AIOConsumer(dict(config))
    await consumer.subscribe([TOPIC])
    yield consumer
    await consumer.close()


@asynccontextmanager
async def _open_aiokafka(config: Mapping[str, Any]) -> AsyncIterator[Any]:
    consumer = importlib.import_module("aiokafka").AIOKafkaConsumer(
        TOPIC,
        bootstrap_servers=config["bootstrap.servers"],
        group_id=config["group.id"],
        auto_offset_reset="earliest",
    )
    await consumer.start()
    yield consumer
    await consumer.stop()


async def _getmany(consumer: Any, records: int) -> Read:  # noqa: ANN401  (ours or aiokafka's)
    await consumer.getone()
    watch, seen = Stopwatch(), 0
    while seen < records - 1:
        batch = await consumer.getmany(timeout_ms=1000)
        seen += sum(map(len, batch.values()))
    return watch.read(seen)


async def _iterate(consumer: Any, records: int) -> Read:  # noqa: ANN401  (ours or aiokafka's)
    await consumer.getone()
    watch, seen = Stopwatch(), 0
    async for _ in consumer:
        seen += 1
        if seen >= records - 1:
            break
    return watch.read(seen)


async def _consume(consumer: Any, records: int) -> Read:  # noqa: ANN401  (an AIOConsumer)
    while not await consumer.consume(BATCH, 1.0):
        continue
    watch, seen = Stopwatch(), 0
    while seen < records - BATCH:
        seen += len(await consumer.consume(BATCH, 1.0))
    return watch.read(seen)


async def _poll(consumer: Any, records: int) -> Read:  # noqa: ANN401  (an AIOConsumer)
    while await consumer.poll(1.0) is None:
        continue
    watch, seen = Stopwatch(), 0
    while seen < records - 1:
        seen += await consumer.poll(1.0) is not None
    return watch.read(seen)


WAYS: Final[Mapping[str, Callable[[Any, int], Awaitable[Read]]]] = {
    GETMANY: _getmany,
    ITERATE: _iterate,
    AIO_CONSUME: _consume,
    AIO_POLL: _poll,
    THEIR_GETMANY: _getmany,
    THEIR_ITERATE: _iterate,
}


def write() -> None:
    """Write the last result into docs/asyncio.md."""
    found = json.loads(RESULTS.read_text())["aio"]
    rates, costs = found["median_per_s"], found["cpu_us"]
    rows = [
        f"| {kind} | {rates[kind]:,.0f} | {costs[kind]:.2f} |" for kind in SHARES if kind in rates
    ]
    ratios = ", ".join(f"{name} {ratio}" for name, ratio in found["ratios"].items())
    table = "\n".join(
        ["| consumer | records per second | µs of CPU for each |", "|---|---:|---:|", *rows]
    )
    marks = "<!-- throughput:begin -->", "<!-- throughput:end -->"
    write_between(PAGE, *marks, f"{table}\n\nRatios: {ratios}.")


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        write()
    else:
        found = measure(sys.argv[1], json.loads(sys.stdin.read()), int(sys.argv[2]))
        print(json.dumps(found))
