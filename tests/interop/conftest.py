"""What the tests beside other clients share."""

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
    """Collect what kafka-python's own consumer leaves open, within the test that used it.

    It drops a socket whose connect is cancelled without closing it (kafka/net/inet.py, 3.0.12).
    Collected later, the warning would fail a test that has nothing to do with it.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "unclosed <socket", ResourceWarning)
        yield
        gc.collect()


@pytest.fixture(scope="session")
def java() -> Iterator[JavaMembers]:
    """One process of Java for all members of its client."""
    with java_members() as members:
        yield members


@pytest.fixture
def mixed(kafka_cluster: KafkaCluster, java: JavaMembers, tmp_path: Path) -> Iterator[MixedGroup]:
    """A group of its own under load."""
    with MixedGroup(kafka_cluster, java, tmp_path) as group:
        yield group
