"""Move a group's coordinator to another broker."""

from __future__ import annotations

from typing import Final

from kafka import KafkaAdminClient
from kafka.structs import TopicPartition

from coopgroup.testing import KafkaCluster
from tests.support.waiting import wait_for

_TOPIC: Final = "__consumer_offsets"
_PARTITIONS: Final = 4  # set by `coopgroup.testing`
_PREFERRED: Final = 0


def move_coordinator(cluster: KafkaCluster, group_id: str) -> int:
    """Move the leader of the group's partition of `__consumer_offsets` to the next broker.

    The brokers' connections stay, so clients notice only on their next request.

    Returns:
        The new coordinator.
    """
    before = cluster.group_coordinator(group_id)
    brokers = sorted(cluster.running)
    after = brokers[(brokers.index(before) + 1) % len(brokers)]
    partition = partition_of(group_id)
    # The metadata of a broker may be late.
    wait_for(lambda: cluster.leader_of(_TOPIC, partition) == before, "one word of all brokers")
    order = [after, *(one for one in brokers if one != after)]
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers.split(","))
    try:
        admin.alter_partition_reassignments({TopicPartition(_TOPIC, partition): order})
        wait_for(lambda: not admin.list_partition_reassignments(), "the reassignment")
        admin.elect_leaders(_PREFERRED, {_TOPIC: [partition]})
    finally:
        admin.close()
    wait_for(lambda: cluster.group_coordinator(group_id) == after, "the new coordinator")
    return after


def partition_of(group_id: str) -> int:
    """Return the partition of `__consumer_offsets` that Kafka chooses for a group."""
    return abs(java_hash(group_id)) % _PARTITIONS


def java_hash(text: str) -> int:
    """Return Java's `String.hashCode`."""
    value = 0
    for character in text:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value
