"""The broker inside the confluent-kafka wheel, for tests that need an answer but no Java.

It supports the classic group protocol, and its topics appear when a record is produced. Its
rebalances are slow and lose members, so a test of rebalances needs `KafkaCluster`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from confluent_kafka import Producer

MOCK_PARTITIONS: Final = 4
"""Number of partitions of every topic of the mock; librdkafka has no setting for it."""
MOCK_CONFIG: Final[dict[str, object]] = {
    "api.version.request": False,
    "broker.version.fallback": "2.3.0",
}
"""Further settings of our consumers: kafka-python cannot read the mock's answer about versions."""


@contextmanager
def mock_broker() -> Iterator[str]:
    """Run a mock broker in this process, and yield its address."""
    producer = Producer({"test.mock.num.brokers": 1, "log_level": 0})
    brokers = producer.list_topics(timeout=10).brokers.values()
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    producer.flush(1)
