"""Topic partitions of confluent-kafka to resources and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import TopicPartition

from coopgroup.model import ResourceSet

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["to_partitions", "to_resources"]


def to_partitions(resources: ResourceSet) -> list[TopicPartition]:
    """Partitions without offsets, ascending by topic and number."""
    return [TopicPartition(topic, partition) for topic, partition in resources]


def to_resources(partitions: Iterable[TopicPartition]) -> ResourceSet:
    """The set of partitions, offsets dropped."""
    return ResourceSet.from_pairs((one.topic, one.partition) for one in partitions)
