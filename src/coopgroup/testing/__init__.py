"""Real Kafka brokers for tests, for this project and its users.

    from coopgroup.testing import KafkaCluster

    with KafkaCluster() as cluster:
        cluster.create_topic("orders", partitions=4)

The pytest fixture is in `coopgroup.testing.plugin`. This package does not import pytest.
"""

from coopgroup.errors import (
    ClusterError,
    ClusterStartError,
    KafkaFetchError,
    ToolError,
    ToolMissingError,
)
from coopgroup.testing.cluster import KafkaCluster
from coopgroup.testing.releases import KafkaRelease

__all__ = [
    "ClusterError",
    "ClusterStartError",
    "KafkaCluster",
    "KafkaFetchError",
    "KafkaRelease",
    "ToolError",
    "ToolMissingError",
]
