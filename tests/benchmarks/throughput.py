"""Throughput: records per second of `CooperativeConsumer` beside raw confluent_kafka.

Goal: the ratio of the medians (ours to theirs) is at least 0.97, for `consume` and for `poll`.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Final

from confluent_kafka import Consumer

from coopgroup import CooperativeConsumer
from tests.benchmarks.reading import FETCH, TOPIC, Read, Stopwatch, race

RECORDS: Final = 2_000_000
BATCH: Final = 500
RUNS: Final = 5
SHARES: Final = {
    f"{client} {method}": share
    for method, share in (("consume", 1.0), ("poll", 0.5))
    for client in ("coopgroup", "confluent_kafka")
}


def run(*, records: int = RECORDS, runs: int = RUNS) -> dict[str, Any]:
    """Return the result of `race`, and for each method the ratio of the rates."""
    found = race("tests.benchmarks.throughput", SHARES, records=records, runs=runs)
    return found | {
        f"ratio, {method}": round(
            found[f"coopgroup {method}"]["per_s"] / found[f"confluent_kafka {method}"]["per_s"], 4
        )
        for method in ("consume", "poll")
    }


def read_synchronously(client: str, method: str, config: dict[str, Any], records: int) -> Read:
    """Read records with one of the clients."""
    settings = {**config, "auto.offset.reset": "earliest", **FETCH}
    consumer: Any = (CooperativeConsumer if client == "coopgroup" else Consumer)(settings)
    consumer.subscribe([TOPIC])
    while not consumer.consume(1, 1.0):  # joining costs CPU, too
        continue
    watch, seen, records = Stopwatch(), 0, records - 1
    while seen < records:
        if method == "consume":
            # Never ask for more than remain: `consume` would wait for them until its time-out.
            seen += len(consumer.consume(min(BATCH, records - seen), 1.0))
        elif consumer.poll(1.0) is not None:
            seen += 1
    found = watch.read(seen)
    consumer.close()
    return found


if __name__ == "__main__":
    (client, method), count = sys.argv[1].split(), int(sys.argv[2])
    print(json.dumps(read_synchronously(client, method, json.load(sys.stdin), count)))
