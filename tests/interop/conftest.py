"""Fixtures for the tests with other clients."""

import gc
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from coopgroup.testing import KafkaCluster
from tests.support.java_members import JavaMembers, java_members
from tests.support.mixed_group import MixedGroup


@pytest.fixture(autouse=True)
def _sockets_of_kafka_python() -> Iterator[None]:
    """Start one Java process for all members of Kafka's Java client."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "unclosed <socket", ResourceWarning)
        yield
        gc.collect()


@pytest.fixture(scope="session")
def java() -> Iterator[JavaMembers]:
    """Start one Java process for all members of its client."""
    with java_members() as members:
        yield members


@pytest.fixture
def mixed(kafka_cluster: KafkaCluster, java: JavaMembers, tmp_path: Path) -> Iterator[MixedGroup]:
    """Return a group of its own, under load."""
    with MixedGroup(kafka_cluster, java, tmp_path) as group:
        yield group
