"""Convert confluent-kafka's partitions to resources and back; Kafka's rules for names, offsets."""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Any, Final, Protocol

from confluent_kafka import TopicPartition

from coopgroup.core.model import ResourceSet

TOPIC_NAME_RULE: Final = (
    "a name of 1 to 249 characters out of a-z, A-Z, 0-9, '.', '_' and '-' "
    "that is neither '.' nor '..'"
)
_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def is_topic_name(name: str) -> bool:
    """Return whether Kafka lets a topic have this name."""
    return _NAME.fullmatch(name) is not None and name not in {".", ".."}


def first_offset(committed: int, begin: int, end: int, reset: str) -> int:
    """Return where a consumer begins to read; the end minus this is its lag.

    A committed offset outside of the log counts for nothing. Retention may have deleted the record,
    or the topic was made again. The consumer then goes where `auto.offset.reset` says.

    Args:
        committed: committed offset, negative without a commit.
        begin: offset of the first record that exists.
        end: log end offset.
        reset: "latest" or "earliest"; "error" counts as "earliest".
    """
    if begin <= committed <= end:
        return committed
    # Retention may have passed the end since it was looked up.
    return end if reset == "latest" else min(begin, end)


def to_partitions(resources: ResourceSet) -> list[TopicPartition]:
    """Return the partitions without offsets, ascending by topic and number."""
    return [TopicPartition(topic, partition) for topic, partition in resources]


def checked_partitions(partitions: Any) -> list[TopicPartition]:  # noqa: ANN401  (checked here)
    """Return an argument that must be a list of partitions.

    Raises:
        TypeError: it is something else; with the text of confluent_kafka.
    """
    if not isinstance(partitions, list):
        raise TypeError("requires list of TopicPartition")
    if not all(isinstance(one, TopicPartition) for one in partitions):
        raise TypeError("expected cimpl.TopicPartition")
    return partitions


def all_but(
    partitions: list[TopicPartition], kept: Container[tuple[str, int]]
) -> list[TopicPartition]:
    """Return a list without some partitions; librdkafka refuses all else that is in it.

    Raises:
        TypeError: the argument is not a list.
    """
    if not isinstance(partitions, list):
        raise TypeError("requires list of TopicPartition")
    return [
        one
        for one in partitions
        if not (isinstance(one, TopicPartition) and (one.topic, one.partition) in kept)
    ]


class AnyOffset(Protocol):
    """An offset of a partition, wherever it is from."""

    @property
    def offset(self) -> int:
        """Return the offset."""
        ...

    @property
    def leader_epoch(self) -> int:
        """Return the leader epoch of the record before it; -1 if unknown."""
        ...

    @property
    def metadata(self) -> str | None:
        """Return the metadata of the commit."""
        ...


def to_partition(topic: str, partition: int, found: AnyOffset) -> TopicPartition:
    """Return an offset of a partition, with the same extra fields as librdkafka's."""
    more: dict[str, Any] = {}
    if found.leader_epoch >= 0:
        more["leader_epoch"] = found.leader_epoch
    if found.metadata:  # librdkafka has no empty metadata
        more["metadata"] = found.metadata
    return TopicPartition(topic, partition, found.offset, **more)
