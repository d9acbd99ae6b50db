"""Throughput of consumers for asyncio, beside the synchronous ones.

All read the same topic from its beginning on one broker, in turns, each run in its own process.
Records have 100 bytes. Time runs from the first record to the last, so joining the group does not
count. Goals, of the medians: `async for` of `AsyncCooperativeConsumer` is at least 4 times as fast
as that of aiokafka. Its `getmany` has at least 0.7 of the rate of confluent_kafka's `consume`, and
is faster than aiokafka's.

aiokafka is a development dependency; without it (`pip install aiokafka`) its rows are left out.

    python -m tests.benchmarks.run aio
    python -m tests.benchmarks.aio --write     # the last result into docs/asyncio.md
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer
from confluent_kafka.aio import AIOConsumer

from coopgroup import CooperativeConsumer
from coopgroup.aio import AsyncCooperativeConsumer
from coopgroup.testing import KafkaCluster
from tests.benchmarks.results import RESULTS, write_between
from tests.benchmarks.throughput import BATCH, FETCH, PARTITIONS, TOPIC, fill, time_consume

__all__ = ["run"]

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
        Records per second of every run by consumer, their medians, and the ratios of the goals.
    """
    kinds = [one for one in SHARES if not one.startswith("aiokafka") or _has_aiokafka()]
    rates: dict[str, list[float]] = {kind: [] for kind in kinds}
    with KafkaCluster() as cluster:
        cluster.create_topic(TOPIC, PARTITIONS)
        fill(cluster.client_config(), records)
        for number in range(runs):
            # The order alternates, so no consumer always reads after the same other one.
            for kind in kinds if number % 2 else reversed(kinds):
                group = f"aio-{number}-{kinds.index(kind)}"
                config = {**cluster.client_config(), "group.id": group}
                rate = measure_apart(config, kind, round(records * SHARES[kind]))
                print(f"aio: {kind}: {rate:,.0f}/s", flush=True)
                rates[kind].append(rate)
    medians = {kind: statistics.median(found) for kind, found in rates.items()}
    ratios = {"getmany to consume": medians[GETMANY] / medians[CONSUME]}
    if THEIR_GETMANY in medians:
        ratios["getmany to aiokafka's"] = medians[GETMANY] / medians[THEIR_GETMANY]
        ratios["async for to aiokafka's"] = medians[ITERATE] / medians[THEIR_ITERATE]
    return {
        "median_per_s": medians,
        "ratios": {name: round(ratio, 2) for name, ratio in ratios.items()},
        "records_per_s": rates,
    }


def _has_aiokafka() -> bool:
    return importlib.util.find_spec("aiokafka") is not None


def measure_apart(config: Mapping[str, Any], kind: str, records: int) -> float:
    """Return the records per second of one run, in a new process."""
    answer = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.aio", kind, str(records)],
        input=json.dumps(config),
        stdout=subprocess.PIPE,
        text=True,
        timeout=RUN_S_MAX,
        check=True,
    )
    return float(json.loads(answer.stdout))


def measure(kind: str, config: Mapping[str, Any], records: int) -> float:
    """Read `records` records, and return the rate per second from the first one on."""
    ours = {**config, "auto.offset.reset": "earliest", **FETCH}
    match kind:
        case _ if kind in (CONSUME, OURS):
            consumer = Consumer(ours) if kind == CONSUME else CooperativeConsumer(ours)
            consumer.subscribe([TOPIC])
            began, seen = time_consume(consumer, records)
            took_s = time.perf_counter() - began
            consumer.close()
            return seen / took_s
        case _ if kind in (GETMANY, ITERATE):
            return asyncio.run(_measure(_open_ours(ours), WAYS[kind], records))
        case _ if kind in (AIO_POLL, AIO_CONSUME):
            return asyncio.run(_measure(_open_aio(ours), WAYS[kind], records))
        case _:
            return asyncio.run(_measure(_open_aiokafka(config), WAYS[kind], records))


async def _measure(opened: Any, way: Callable[..., Awaitable[float]], records: int) -> float:  # noqa: ANN401
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


async def _getmany(consumer: Any, records: int) -> float:  # noqa: ANN401  (ours or aiokafka's)
    await consumer.getone()
    began, seen = time.perf_counter(), 0
    while seen < records - 1:
        batch = await consumer.getmany(timeout_ms=1000)
        seen += sum(map(len, batch.values()))
    return seen / (time.perf_counter() - began)


async def _iterate(consumer: Any, records: int) -> float:  # noqa: ANN401  (ours or aiokafka's)
    await consumer.getone()
    began, seen = time.perf_counter(), 0
    async for _ in consumer:
        seen += 1
        if seen >= records - 1:
            break
    return seen / (time.perf_counter() - began)


async def _consume(consumer: Any, records: int) -> float:  # noqa: ANN401  (an AIOConsumer)
    while not await consumer.consume(BATCH, 1.0):
        continue
    began, seen = time.perf_counter(), 0
    while seen < records - BATCH:
        seen += len(await consumer.consume(BATCH, 1.0))
    return seen / (time.perf_counter() - began)


async def _poll(consumer: Any, records: int) -> float:  # noqa: ANN401  (an AIOConsumer)
    while await consumer.poll(1.0) is None:
        continue
    began, seen = time.perf_counter(), 0
    while seen < records - 1:
        seen += await consumer.poll(1.0) is not None
    return seen / (time.perf_counter() - began)


WAYS: Final[Mapping[str, Callable[[Any, int], Awaitable[float]]]] = {
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
    rates = found["median_per_s"]
    rows = [f"| {kind} | {rates[kind]:,.0f} |" for kind in SHARES if kind in rates]
    ratios = ", ".join(f"{name} {ratio}" for name, ratio in found["ratios"].items())
    table = "\n".join(["| consumer | records per second |", "|---|---:|", *rows])
    marks = "<!-- throughput:begin -->", "<!-- throughput:end -->"
    write_between(PAGE, *marks, f"{table}\n\nRatios: {ratios}.")


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        write()
    else:
        print(measure(sys.argv[1], json.loads(sys.stdin.read()), int(sys.argv[2])))
