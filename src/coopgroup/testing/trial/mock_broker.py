"""The broker inside the confluent-kafka wheel, in its own process.

Run as `python -m coopgroup.testing.trial.mock_broker`: it prints its address and serves until its
standard input ends. It needs neither Java nor a network, but is a fallback only. It supports the
classic group protocol, and has 4 partitions per topic (topics appear when a record is produced).
Its rebalances are slow, and it stores nothing.
"""

from __future__ import annotations

import sys
from typing import Final

from confluent_kafka import Producer

__all__ = ["PARTITIONS_PER_TOPIC", "main"]

PARTITIONS_PER_TOPIC: Final = 4
"""Number of partitions of every topic of the mock; librdkafka has no setting for it."""

METADATA_S: Final = 10.0


def main() -> None:
    """Run the broker until standard input ends."""
    producer = Producer({"test.mock.num.brokers": 1, "log_level": 3})
    brokers = producer.list_topics(timeout=METADATA_S).brokers
    address = ",".join(f"{broker.host}:{broker.port}" for broker in brokers.values())
    sys.stdout.write(f"{address}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
