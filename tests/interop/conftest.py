"""What the tests beside other clients share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from coopgroup.testing import KafkaCluster
from tests.support.java_members import JavaMembers, java_members
from tests.support.mixed_group import MixedGroup


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
