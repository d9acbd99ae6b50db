"""Which offsets a commit without arguments commits.

With `enable.auto.offset.store` that is the position after the last record handed out, without it
what the application stored. librdkafka keeps the same two, but its own records what it gave to
us and not what we gave to the application, so the store is here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import define, field
from confluent_kafka import TopicPartition

from coopgroup.kafka.partitions import to_partitions
from coopgroup.member.events import Offset

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from coopgroup.kafka.handout import HandOut, Partition
    from coopgroup.model import ResourceSet

__all__ = ["OffsetStore", "offset_of_message", "offsets_of_partitions"]


def offset_of_message(message: Any) -> Offset:  # noqa: ANN401  (Message has no public type)
    """The offset to commit once a record is done: that of the next one."""
    epoch = message.leader_epoch()
    return Offset(
        message.topic(), message.partition(), message.offset() + 1, -1 if epoch is None else epoch
    )


def offsets_of_partitions(partitions: Iterable[TopicPartition]) -> tuple[Offset, ...]:
    """Offsets that the application gives as partitions; those without an offset are left out."""
    return tuple(
        Offset(
            one.topic,
            one.partition,
            one.offset,
            -1 if one.leader_epoch is None else one.leader_epoch,
            one.metadata or "",
        )
        for one in partitions
        if one.offset >= 0
    )


@define(eq=False)
class OffsetStore:
    """Offsets to commit next; only the application's thread touches it.

    Attributes:
        fetcher: librdkafka's consumer.
        hand_out: records that it gave and the application has not got yet.
        automatic: whether handing a record out stores its offset.
    """

    fetcher: Any
    hand_out: HandOut
    automatic: bool
    _stored: dict[Partition, Offset] = field(factory=dict, init=False)
    _committed: dict[Partition, int] = field(factory=dict, init=False)

    def store(self, offsets: Iterable[Offset]) -> None:
        """Remember offsets for the next commit."""
        for offset in offsets:
            self._stored[offset.topic, offset.partition] = offset

    def positions(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Position of the application in each partition: offset of the next record it gets."""
        waiting = self.hand_out.first_waiting_of_all()
        return [
            one if (first := waiting.get((one.topic, one.partition))) is None else _before(first)
            for one in self.fetcher.position(list(partitions))
        ]

    def due(self, held: ResourceSet) -> tuple[Offset, ...]:
        """Offsets of the held partitions that were not committed yet, ascending."""
        if self.automatic:
            offsets = offsets_of_partitions(self.positions(to_partitions(held))) if held else ()
        else:
            offsets = tuple(offset for key, offset in sorted(self._stored.items()) if key in held)
        return tuple(
            one for one in offsets if self._committed.get((one.topic, one.partition)) != one.offset
        )

    def committed(self, offsets: Iterable[Offset]) -> None:
        """Remember that offsets are through."""
        for one in offsets:
            self._committed[one.topic, one.partition] = one.offset

    def forget(self, given_up: ResourceSet) -> None:
        """Drop what belongs to partitions that are given up."""
        for partition in given_up:
            self._stored.pop(partition, None)
            self._committed.pop(partition, None)


def _before(message: Any) -> TopicPartition:  # noqa: ANN401  (Message has no public type)
    """The position in front of a record that was not handed out.

    The leader epoch to commit is that of the record before it (KIP-320), which is not at hand:
    leaving it out only skips a check for truncation.
    """
    return TopicPartition(message.topic(), message.partition(), message.offset())
