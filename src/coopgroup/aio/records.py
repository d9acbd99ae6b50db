"""Records and offsets in the shapes of aiokafka.

A `ConsumerRecord` only wraps the message of librdkafka, because copying all its fields would cost
more than the rest of the hand-out. So a field is read when the application asks for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from itertools import groupby, repeat
from typing import Any, NamedTuple, TypeAlias

from confluent_kafka import Message, TopicPartition

from coopgroup.core.member.events import Offset
from coopgroup.kafka.records.offsets import given_offsets


class OffsetAndMetadata(NamedTuple):
    """An offset to commit, with a text for other readers of the group's offsets."""

    offset: int
    metadata: str = ""


class ConsumerRecord(NamedTuple):
    """A record, with the fields of aiokafka's `ConsumerRecord`.

    Attributes:
        message: the same record as confluent_kafka returns it.
    """

    message: Message

    def __repr__(self) -> str:
        fields = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in fields)
        return f"{type(self).__name__}({shown})"

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self.message.topic() or ""

    @property
    def partition(self) -> int:
        """The number of the partition."""
        partition = self.message.partition()
        return -1 if partition is None else partition

    @property
    def offset(self) -> int:
        """The offset in the partition."""
        offset = self.message.offset()
        return -1 if offset is None else offset

    @property
    def key(self) -> bytes | None:
        """The key; None without a key. With `key.deserializer`, what that returned."""
        key: bytes | None = self.message.key()
        return key

    @property
    def value(self) -> bytes | None:
        """The payload; None for a tombstone. With `value.deserializer`, what that returned."""
        value: bytes | None = self.message.value()
        return value

    @property
    def timestamp(self) -> int:
        """Milliseconds since 1970; -1 or 0 without a time."""
        return self.message.timestamp()[1]

    @property
    def timestamp_type(self) -> int | None:
        """0 if the producer set the time, 1 if the broker set it, None without a time."""
        kind = self.message.timestamp()[0]
        return kind - 1 if kind > 0 else None

    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]:
        """The headers in their order; a name may occur several times."""
        headers: Any = self.message.headers()
        return tuple(headers) if headers else ()

    @property
    def leader_epoch(self) -> int | None:
        """The epoch of the partition's leader; None for old formats."""
        return self.message.leader_epoch()

    @property
    def serialized_key_size(self) -> int:
        """The size of the key in bytes; -1 without a key, and if it was decoded."""
        return _size(self.key)

    @property
    def serialized_value_size(self) -> int:
        """The size of the payload in bytes; -1 for a tombstone, and if it was decoded."""
        return _size(self.value)


def _size(field: object) -> int:
    return len(field) if isinstance(field, bytes) else -1


# Without Python code: both calls are on the hot path.
record_of = partial(tuple.__new__, ConsumerRecord)
"""Make a record of a tuple with one message."""

GivenOffsets: TypeAlias = (
    ConsumerRecord
    | Message
    | Mapping[TopicPartition, int | tuple[int, str]]
    | Iterable[TopicPartition]
)
"""Offsets to commit: those after a record, or those of partitions."""


def by_partition(messages: Iterable[Message]) -> dict[TopicPartition, list[ConsumerRecord]]:
    """Return the records of each partition, in their order."""
    grouped: dict[tuple[str, int], list[ConsumerRecord]] = {}
    # Records of a partition arrive in long runs, so this is far cheaper than a key for each record.
    for topic, of_topic in groupby(messages, Message.topic):
        for number, run in groupby(of_topic, Message.partition):
            # Without Python code for each record, as in `record_of`, and faster for many.
            records: Any = map(tuple.__new__, repeat(ConsumerRecord), zip(run))
            grouped.setdefault((topic or "", -1 if number is None else number), []).extend(records)
    return {TopicPartition(*key): records for key, records in grouped.items()}


def read_offsets_to_commit(given: GivenOffsets) -> tuple[Offset, ...]:
    """Return offsets that were given in any of the accepted forms.

    Raises:
        TypeError: the argument has no such form, or an offset is not a whole number.
    """
    if isinstance(given, ConsumerRecord):
        return given_offsets(given.message, None, "commit") or ()
    if isinstance(given, Message):
        return given_offsets(given, None, "commit") or ()
    if isinstance(given, Mapping):
        return given_offsets(None, [_place(*one) for one in given.items()], "commit") or ()
    return given_offsets(None, list(given), "commit") or ()


def _place(partition: Any, offset: Any) -> TopicPartition:  # noqa: ANN401  (checked here)
    number, metadata = offset if isinstance(offset, tuple) else (offset, "")
    if not isinstance(number, int):
        raise TypeError(
            f"offsets[{partition}] is {number!r}: it must be a whole number or (offset, metadata)"
        )
    return TopicPartition(partition.topic, partition.partition, number, metadata)
