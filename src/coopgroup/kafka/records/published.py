"""Positions of librdkafka, for threads that must not ask librdkafka.

While one thread is in `poll` or `consume` of a client of confluent_kafka 2.16, no other thread may
call any method of that client. The other call takes a lock with the GIL held, and the first call
needs the GIL to give the lock back: the whole process stands still for ever. So the polling thread
of `coopgroup.aio` publishes the positions after each batch.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from attrs import define, field
from confluent_kafka import TopicPartition

from coopgroup.kafka.records.record_buffer import Partition

__all__ = ["PublishedPositions"]


@define(eq=False)
class PublishedPositions:
    """Positions after all records that are in the record buffer, or were in it."""

    _positions: dict[Partition, TopicPartition] = field(factory=dict, init=False)

    def publish(self, positions: Iterable[TopicPartition]) -> None:
        """Replace all positions."""
        self._positions = {(one.topic, one.partition): one for one in positions}

    def keep(self, partitions: Container[Partition]) -> None:
        """Forget other partitions: a position of an earlier assignment must not be committed."""
        self._positions = {key: one for key, one in self._positions.items() if key in partitions}

    def forget(self, partition: Partition) -> None:
        """Forget the position of a partition that continues elsewhere."""
        self._positions = {key: one for key, one in self._positions.items() if key != partition}

    def of(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return the position of each partition, without an offset if it is not known."""
        keys = [(one.topic, one.partition) for one in partitions]
        found = self._positions
        return [found[key] if key in found else TopicPartition(*key) for key in keys]
