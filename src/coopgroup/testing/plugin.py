"""The pytest fixture of a broker; use it with `pytest_plugins = ["coopgroup.testing.plugin"]`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from coopgroup.testing.cluster import KafkaCluster


@pytest.fixture(scope="session")
def kafka_cluster() -> Iterator[KafkaCluster]:
    """Provide one broker for the whole session, started when the first test needs it.

    Tests share it: give each its own topics and groups, and leave the broker running.
    """
    with KafkaCluster() as cluster:
        yield cluster
