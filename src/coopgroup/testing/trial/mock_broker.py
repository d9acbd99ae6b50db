"""The broker inside the confluent-kafka wheel, in a process of its own.

Run as `python -m coopgroup.testing.trial.mock_broker`: it prints its address and serves until its
standard input ends. It needs neither Java nor a network, and is a fallback only: it has the classic
group protocol, 4 partitions a topic (topics appear when something is produced), slow rebalances,
and forgets everything.
"""

from __future__ import annotations

import sys
from typing import Final

from confluent_kafka import Producer

__all__ = ["PARTITIONS_PER_TOPIC", "main"]

PARTITIONS_PER_TOPIC: Final = 4
"""What every topic of the mock has; librdkafka offers no setting for it."""

METADATA_S: Final = 10.0


def main() -> None:
    """Hold the broker until standard input ends."""
    producer = Producer({"test.mock.num.brokers": 1, "log_level": 3})
    brokers = producer.list_topics(timeout=METADATA_S).brokers
    address = ",".join(f"{broker.host}:{broker.port}" for broker in brokers.values())
    sys.stdout.write(f"{address}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
