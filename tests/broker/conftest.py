"""A broker for members of KIP-848 with sessions and intervals shorter than Kafka's minimum."""

from collections.abc import Iterator

import pytest

from coopgroup.testing import KafkaCluster


@pytest.fixture(scope="session")
def consumer_cluster() -> Iterator[KafkaCluster]:
    """Provide one broker with rare heartbeats, unless a group has settings of its own.

    They are 15 s apart. So only a bell, or a request of another kind, makes a group quick. The
    coordinator may make a new target at any time, so no test waits for that interval.
    """
    properties = {
        "group.consumer.assignment.interval.ms": "0",
        "group.consumer.min.assignment.interval.ms": "0",
        "group.consumer.min.session.timeout.ms": "1000",
        "group.consumer.heartbeat.interval.ms": "15000",
        "group.consumer.min.heartbeat.interval.ms": "100",
        "group.initial.rebalance.delay.ms": "0",
    }
    with KafkaCluster(properties=properties) as cluster:
        yield cluster
