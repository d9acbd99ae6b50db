"""Positions of librdkafka, for threads that must not ask librdkafka.

A client of confluent_kafka 2.16 serves one thread at a time. While one thread is in `poll` or
`consume`, a call by another thread waits, and each new `poll` can overtake it, so it may wait for
ever. An event loop must not wait like that. So the polling thread of `coopgroup.aio` publishes the
positions after each batch.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import groupby

from attrs import define, field
from confluent_kafka import Message, TopicPartition

from coopgroup.kafka.records.record_buffer import Partition

__all__ = ["PublishedPositions", "runs_of"]


@define(eq=False)
class PublishedPositions:
    """Positions after all records that are in the record buffer, or were in it.

    Attributes:
        paused: partitions that `coopgroup.aio` has paused in librdkafka. It pauses there only for
            many records, and resumes no others: a new client must not pause more of them.
    """

    paused: AbstractSet[Partition] = frozenset()
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


def runs_of(messages: Sequence[Message]) -> Iterator[tuple[Partition, Sequence[Message]]]:
    """Yield each run of records of one partition; leave events out."""
    # Without Python code for each record: a partition's records arrive in long runs.
    records = messages
    if any(map(Message.error, messages)):
        records = [one for one in messages if one.error() is None]
    for topic, of_topic in groupby(records, Message.topic):
        for number, run in groupby(of_topic, Message.partition):
            yield ("" if topic is None else topic, -1 if number is None else number), tuple(run)
