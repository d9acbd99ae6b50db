"""Throughput of a FastStream service on coopgroup, beside FastStream's own broker.

The handler does nothing. Goal: the processor time for each record is at most 1.1 times that of
FastStream's own broker, with two acknowledgement policies.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any, Final

from faststream import AckPolicy
from faststream.confluent import KafkaBroker as TheirBroker

from coopgroup.integrations.faststream import KafkaBroker
from tests.benchmarks.reading import TOPIC, Read, Stopwatch, race

RECORDS: Final = 20_000
RUNS: Final = 5
POLICIES: Final = (AckPolicy.ACK_FIRST.value, AckPolicy.ACK.value)
BROKERS: Final[dict[str, Any]] = {"coopgroup": KafkaBroker, "faststream": TheirBroker}


def run(*, records: int = RECORDS, runs: int = RUNS) -> dict[str, Any]:
    """Return the result of `race`, and for each policy the ratios, ours to theirs."""
    shares = {f"{kind} {policy}": 1.0 for policy in POLICIES for kind in BROKERS}
    found = race("tests.benchmarks.faststream", shares, records=records, runs=runs)
    return found | {
        f"ratios, {policy}": {
            name: round(found[f"coopgroup {policy}"][name] / found[f"faststream {policy}"][name], 3)
            for name in ("per_s", "cpu_us", "cpu_us_least")
        }
        for policy in POLICIES
    }


async def measure(kind: str, policy: str, config: dict[str, Any], records: int) -> Read:
    """Read records with one broker."""
    broker = BROKERS[kind](config["bootstrap.servers"], logger=None)
    is_over, watches, seen = asyncio.Event(), list[Stopwatch](), 0
    reads: list[Read] = []

    async def handle(record: bytes) -> None:
        nonlocal seen
        seen += 1
        if seen == 1:
            watches.append(Stopwatch())
        elif seen == records:
            reads.append(watches[0].read(records - 1))
            is_over.set()

    settings = {"auto_offset_reset": "earliest", "ack_policy": AckPolicy(policy)}
    broker.subscriber(TOPIC, group_id=config["group.id"], **settings)(handle)
    async with broker:
        await broker.start()
        await is_over.wait()
    return reads[0]


if __name__ == "__main__":
    (kind, policy), count = sys.argv[1].split(), int(sys.argv[2])
    print(json.dumps(asyncio.run(measure(kind, policy, json.load(sys.stdin), count))))
