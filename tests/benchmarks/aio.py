"""Throughput of consumers for asyncio, beside the synchronous ones.

Goals, of the medians: `async for` of `AsyncCooperativeConsumer` is at least 4 times as fast as that
of aiokafka. Its `getmany` has at least 0.7 of the rate of confluent_kafka's `consume`, and is
faster than aiokafka's.

aiokafka is a development dependency; without it (`pip install aiokafka`) its rows are left out.

    python -m tests.benchmarks.aio --write     # the last result into docs/asyncio.md
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from confluent_kafka.aio import AIOConsumer

from coopgroup.aio import AsyncCooperativeConsumer
from docs.sections import DOCS
from tests.benchmarks.reading import FETCH, TOPIC, Read, Stopwatch, race
from tests.benchmarks.results import show_table
from tests.benchmarks.throughput import BATCH, read_synchronously

RECORDS: Final = 1_500_000
RUNS: Final = 3
SHARES: Final = {
    "confluent_kafka.Consumer, consume": 1.0,
    "coopgroup.CooperativeConsumer, consume": 1.0,
    "coopgroup.aio, getmany": 1.0,
    "coopgroup.aio, async for": 1.0,
    "confluent_kafka.aio.AIOConsumer, consume": 0.5,
    "confluent_kafka.aio.AIOConsumer, poll": 0.02,
    "aiokafka, getmany": 1.0,
    "aiokafka, async for": 0.3,
}
RATIOS: Final = {
    "getmany to consume": ("coopgroup.aio, getmany", "confluent_kafka.Consumer, consume"),
    "getmany to aiokafka's": ("coopgroup.aio, getmany", "aiokafka, getmany"),
    "async for to aiokafka's": ("coopgroup.aio, async for", "aiokafka, async for"),
}


def run(*, records: int = RECORDS, runs: int = RUNS) -> dict[str, Any]:
    """Return `kinds`, the result of `race`, and the `ratios` of the goals."""
    is_there = importlib.util.find_spec("aiokafka") is not None
    shares = {kind: one for kind, one in SHARES.items() if is_there or "aiokafka" not in kind}
    kinds = race("tests.benchmarks.aio", shares, records=records, runs=runs)
    ratios = {
        name: round(kinds[ours]["per_s"] / kinds[other]["per_s"], 2)
        for name, (ours, other) in RATIOS.items()
        if other in kinds
    }
    return {"kinds": kinds, "ratios": ratios}


def measure(kind: str, config: dict[str, Any], records: int) -> Read:
    """Read records; return the rate from the first one on, and the CPU time for each."""
    client, _, method = kind.partition(", ")
    if client in ("confluent_kafka.Consumer", "coopgroup.CooperativeConsumer"):
        return read_synchronously(client.partition(".")[0], method, config, records)
    return asyncio.run(_measure(client, method, config, records))


async def _measure(client: str, method: str, config: Mapping[str, Any], records: int) -> Read:
    async with _OPENED[client]({**config, "auto.offset.reset": "earliest", **FETCH}) as consumer:
        while not await _first(consumer, client):
            continue
        watch, seen = Stopwatch(), 0
        if method == "async for":
            async for _ in consumer:
                seen += 1
                if seen >= records - BATCH:
                    break
        while seen < records - BATCH:
            if method == "getmany":
                batch = await consumer.getmany(timeout_ms=1000)
                seen += sum(map(len, batch.values()))
            elif method == "consume":
                seen += len(await consumer.consume(BATCH, 1.0))
            else:
                seen += await consumer.poll(1.0) is not None
        return watch.read(seen)


async def _first(consumer: Any, client: str) -> object:  # noqa: ANN401 - of any client
    if client == "confluent_kafka.aio.AIOConsumer":
        return await consumer.consume(1, 1.0)
    return await consumer.getone()


@asynccontextmanager
async def _ours(config: Mapping[str, Any]) -> AsyncIterator[Any]:
    async with AsyncCooperativeConsumer(config, TOPIC) as consumer:
        yield consumer


@asynccontextmanager
async def _aio(config: Mapping[str, Any]) -> AsyncIterator[Any]:
    consumer = AIOConsumer(dict(config))
    await consumer.subscribe([TOPIC])
    yield consumer
    await consumer.close()


@asynccontextmanager
async def _aiokafka(config: Mapping[str, Any]) -> AsyncIterator[Any]:
    consumer = importlib.import_module("aiokafka").AIOKafkaConsumer(
        TOPIC,
        bootstrap_servers=config["bootstrap.servers"],
        group_id=config["group.id"],
        auto_offset_reset="earliest",
    )
    await consumer.start()
    yield consumer
    await consumer.stop()


_OPENED: Final[Mapping[str, Any]] = {
    "coopgroup.aio": _ours,
    "confluent_kafka.aio.AIOConsumer": _aio,
    "aiokafka": _aiokafka,
}


def table(found: Mapping[str, Any]) -> str:
    """Return the result of `run` as Markdown."""
    rows = ["| consumer | records per second | µs of CPU for each |", "|---|---:|---:|"]
    for kind in SHARES:
        if kind in found["kinds"]:
            one = found["kinds"][kind]
            rows.append(f"| {kind} | {one['per_s']:,.0f} | {one['cpu_us']:.2f} |")
    ratios = ", ".join(f"{name} {ratio}" for name, ratio in found["ratios"].items())
    return "\n".join([*rows, "", f"Ratios: {ratios}."])


if __name__ == "__main__":
    if sys.argv[1:] in ([], ["--write"]):
        show_table("aio", table, DOCS / "asyncio.md")
    else:
        print(json.dumps(measure(sys.argv[1], json.load(sys.stdin), int(sys.argv[2]))))
