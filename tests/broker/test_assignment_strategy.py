"""A configuration with `partition.assignment.strategy` joins a group of other clients at work."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from coopgroup.testing import KafkaCluster
from tests.support.mixed_group import MixedGroup


@pytest.fixture
def mixed(kafka_cluster: KafkaCluster, tmp_path: Path) -> Iterator[MixedGroup]:
    """Return a group without Java."""
    with MixedGroup(kafka_cluster, None, tmp_path) as group:
        yield group


def test_first_member_with_the_same_configuration_joins_a_group_at_work(
    mixed: MixedGroup, caplog: pytest.LogCaptureFixture
) -> None:
    """When the other client has left, the group speaks our protocol."""
    strategy = "range"
    mixed.librdkafka("k", strategy)
    mixed.settle("k", protocol=strategy)
    mixed.ours("a", partition_assignment_strategy=strategy)
    mixed.settle("k", "a", protocol=strategy)
    mixed.stop("k")
    mixed.settle("a", protocol="coopgroup")
    assert "assignment_strategy_read" in caplog.text


def test_member_without_the_protocol_of_the_group_is_told_the_remedy(mixed: MixedGroup) -> None:
    mixed.librdkafka("k", "range,roundrobin")
    mixed.settle("k", protocol="range")
    mixed.ours("a")
    mixed.until(lambda: "a" in mixed.ledger.failed, "the group refuses the member")
    said = mixed.ledger.failed["a"]
    assert '"coopgroup.protocols": "coopgroup,range"' in said
    assert f"coopgroup group migrate --check {mixed.group_id}" in said
