"""The offsets that a commit without arguments commits.

With `enable.auto.offset.store`, a commit takes the position after the last record handed out.
Without it, a commit takes the offsets that the application stored. librdkafka's own store records
the batches that it returned to coopgroup, not the records handed to the application. So the store
is here.

A partition without a commit begins where `auto.offset.reset` says. That first offset is committed,
too, before any record. Otherwise the next owner would resolve "latest" again, and would skip the
records that arrived meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from attrs import define, field
from confluent_kafka import KafkaError, Message, TopicPartition

from coopgroup.core.member.events import Offset
from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.kafka.exceptions import kafka_exception
from coopgroup.kafka.records.fetching import Fetching, Origin
from coopgroup.kafka.records.offset_lookup import EdgeOffset
from coopgroup.kafka.records.partitions import checked_partitions, to_partitions
from coopgroup.kafka.records.record_buffer import Partition


def given_offsets(message: Any, offsets: Any, act: str) -> tuple[Offset, ...] | None:  # noqa: ANN401
    """Return the offsets given as a record or as partitions; None without either.

    Raises:
        KafkaException: the message is an error and not a record.
        TypeError: neither records nor partitions.
        ValueError: both.
    """
    if message is not None and offsets is not None:
        raise ValueError("message and offsets are mutually exclusive")
    if message is not None:
        if not isinstance(message, Message):
            raise TypeError("expected confluent_kafka.cimpl.Message")
        error = message.error()
        if error is not None:
            raise kafka_exception(
                KafkaError._INVALID_ARG,
                f"Cannot {act} offsets for message with error: '{error.str()}'",
            )
        return (offset_of_message(message),)
    if offsets is None:
        return None
    return offsets_of_partitions(checked_partitions(offsets))


def check_storable(offsets: Iterable[Offset], owned: ResourceSet, *, is_automatic: bool) -> None:
    """Refuse offsets that the application may not store.

    Raises:
        KafkaException: offsets are stored automatically, or a partition is not owned.
    """
    if is_automatic:
        refusal = "StoreOffsets failed: enable.auto.offset.store must be false"
        raise kafka_exception(KafkaError._INVALID_ARG, refusal)
    for one in offsets:
        if (one.topic, one.partition) not in owned:
            refusal = f"StoreOffsets failed: {one.topic} [{one.partition}] is not assigned"
            raise kafka_exception(KafkaError._STATE, refusal)


def offset_of_message(message: Any) -> Offset:  # noqa: ANN401  (its parts may be None, not here)
    """Return the offset to commit after a record is done: the next record's offset."""
    epoch = message.leader_epoch()
    return Offset(
        message.topic(), message.partition(), message.offset() + 1, -1 if epoch is None else epoch
    )


def offsets_of_partitions(partitions: Iterable[TopicPartition]) -> tuple[Offset, ...]:
    """Return the last given offset of each partition; partitions without an offset are left out."""
    offsets = {
        (one.topic, one.partition): Offset(
            one.topic,
            one.partition,
            one.offset,
            -1 if one.leader_epoch is None else one.leader_epoch,
            one.metadata or "",
        )
        for one in partitions
        if one.offset >= 0
    }
    return tuple(offsets.values())


@define(eq=False)
class OffsetStore:
    """The offsets to commit next.

    Attributes:
        automatic: whether a commit takes positions, or only stored offsets.
        stored_only: owned partitions whose positions do not count.
    """

    fetching: Fetching
    automatic: bool
    stored_only: ResourceSet = field(default=EMPTY, init=False)
    _stored: dict[Partition, Offset] = field(factory=dict, init=False)
    _committed: dict[Partition, int] = field(factory=dict, init=False)

    def store(self, offsets: Iterable[Offset]) -> None:
        """Remember offsets for the next commit."""
        for offset in offsets:
            self._stored[offset.topic, offset.partition] = offset

    def due(self, owned: ResourceSet) -> tuple[Offset, ...]:
        """Return the offsets of owned partitions that are not committed yet, ascending."""
        if not owned:
            return ()
        by_hand = owned & self.stored_only if self.automatic else owned
        known = {key: one for key, one in self._stored.copy().items() if key in by_hand}
        if self.automatic:
            rest = to_partitions(owned - by_hand)
            found = offsets_of_partitions(self.fetching.positions(rest))
            known |= {(one.topic, one.partition): one for one in found}
        offsets = sorted((self._first(owned) | known).items())
        return tuple(one for _, one in offsets if self._is_due(one))

    def _first(self, owned: ResourceSet) -> dict[Partition, Offset]:
        """Return where partitions without a committed offset began, or are about to begin.

        A revocation may come with the offset, before the partition begins.
        """
        lookup = self.fetching.starts.lookup
        first: dict[Partition, Offset] = {}
        for key, one in () if lookup.is_idle else lookup.found(owned).items():
            if isinstance(one, EdgeOffset) and not one.is_given:
                first[key] = Offset(*key, one.offset)
        for key in owned:
            begin = self.fetching.begin_of(key)
            if begin is not None and begin.origin is Origin.RESET:
                first[key] = Offset(*key, begin.start.offset)
        return {key: one for key, one in first.items() if key not in self._committed}

    def _is_due(self, offset: Offset) -> bool:
        key = offset.topic, offset.partition
        committed = self._committed.get(key)
        if committed is not None and committed == offset.offset:
            return False
        begin = self.fetching.begin_of(key)
        if begin is None or begin.start.offset != offset.offset or key in self._stored:
            return True
        if begin.origin is Origin.COMMITTED:
            return committed is not None
        # The application has committed another offset, and no record since.
        return begin.origin is not Origin.RESET or committed is None

    def mark_committed(self, offsets: Iterable[Offset]) -> None:
        """Remember that offsets are committed."""
        for one in offsets:
            self._committed[one.topic, one.partition] = one.offset

    def forget(self, partitions: ResourceSet) -> None:
        """Forget the offsets of partitions that change their owner."""
        self.stored_only -= partitions
        for partition in partitions:
            self._stored.pop(partition, None)
            self._committed.pop(partition, None)
