"""The records of `__consumer_offsets`, which the group coordinator writes, as values.

Kafka calls the messages OffsetCommitKey (v0, v1), OffsetCommitValue (v0 to v4), GroupMetadataKey
(v2) and GroupMetadataValue (v0 to v4). The version of a key tells the kind of its record.

A group of KIP-848 has several kinds of records (keys 3 to 8 and 16, values v0): one of the group,
and some of each member. Each record replaces the earlier one with the same key.
`consumer_states` joins them. Share groups (KIP-932) and streams groups (KIP-1071) are not read.

v4 of the classic values and all values of KIP-848 are flexible (KIP-482). A length or count is an
UNSIGNED_VARINT of itself plus one, or 0 for null, and every structure ends with tagged fields. As
in `coopgroup.core.protocol.reader`, every length is checked before use.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable
from enum import Enum
from typing import Final, TypeVar
from uuid import UUID

from attrs import evolve, frozen

from coopgroup.core.protocol.reader import ByteReader, decoded_string
from coopgroup.errors import BufferUnderflowError, InvalidCountError, UnsupportedVersionError

__all__ = [
    "VALUE_NEWEST",
    "ConsumerKey",
    "ConsumerKind",
    "ConsumerValue",
    "GroupKey",
    "GroupMember",
    "GroupValue",
    "OffsetKey",
    "OffsetValue",
    "TopicPartitions",
    "decode_consumer_value",
    "decode_group_value",
    "decode_key",
    "decode_offset_value",
    "topic_id_text",
]

VALUE_NEWEST: Final = 4
"""Newest known version of the values."""

_GROUP_KEY: Final = 2
_SHARE_KEY, _REGEX_KEY, _STREAMS_KEY = 9, 16, 17  # the first key of each
_FLEXIBLE_FROM: Final = 4
_TOPIC_ID_TAG: Final = 0
_CLASSIC_MEMBER_TAG: Final = 0
_PRESENT: Final = b"\x01"  # first byte of a structure that may be null
_UUID_BYTES: Final = 16
_UVARINT_BYTES_MAX: Final = 5
_Value = TypeVar("_Value")


@frozen(kw_only=True)
class OffsetKey:
    """Key of a committed offset.

    Attributes:
        group: group id.
        topic: name of the topic.
        partition: its partition.
    """

    group: str
    topic: str
    partition: int


@frozen(kw_only=True)
class GroupKey:
    """Key of a group's metadata.

    Attributes:
        group: group id.
    """

    group: str


@frozen(kw_only=True)
class OffsetValue:
    """A committed offset.

    Attributes:
        committed: next offset to read.
        leader_epoch: epoch of the partition when the last record was read; -1 if unknown.
        metadata: metadata of the application.
        commit_ms: commit time, on the broker's clock.
        expire_ms: expiry that clients could set in v1; -1 for the broker's rule.
        topic_id: id of the topic; `None` if the broker did not know it.
        version: version of the bytes that were read.
    """

    committed: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_ms: int
    expire_ms: int = -1
    topic_id: UUID | None = None
    version: int = VALUE_NEWEST


@frozen(kw_only=True)
class GroupMember:
    """One member of a generation.

    Attributes:
        member_id: member id.
        instance_id: static id, `None` for a dynamic member.
        client_id: client id.
        client_host: address of the client.
        rebalance_timeout_ms: rebalance time-out; in v0 equal to the session time-out.
        session_timeout_ms: session time-out.
        subscription: embedded message of the chosen protocol.
        assignment: embedded message from the leader.
    """

    member_id: str
    instance_id: str | None = None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@frozen(kw_only=True)
class GroupValue:
    """State of a classic group after a round, or when it became empty.

    Attributes:
        protocol_type: "consumer", "connect" and so on; "" for a group that only commits.
        generation: generation of the group.
        protocol: chosen protocol, for a consumer the assignor; `None` if there is none yet.
        leader: member id of the leader; `None` for an empty group.
        state_ms: time when the group reached this state; -1 if the version lacks it.
        members: all members.
        version: version of the bytes that were read.
    """

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_ms: int = -1
    members: tuple[GroupMember, ...]
    version: int = VALUE_NEWEST


class ConsumerKind(Enum):
    """Kinds of records of a KIP-848 group; the value is the version of the key."""

    GROUP = 3
    TOPICS = 4
    MEMBER = 5
    TARGET = 6
    TARGET_OF_MEMBER = 7
    ASSIGNMENT = 8
    REGEX = _REGEX_KEY


@frozen(kw_only=True)
class ConsumerKey:
    """Key of a record of a KIP-848 group.

    Attributes:
        group: group id.
        kind: kind of the record.
        name: member id, or the regular expression; "" for a record of the whole group.
    """

    group: str
    kind: ConsumerKind
    name: str = ""


@frozen(kw_only=True)
class TopicPartitions:
    """Partitions of a topic.

    Attributes:
        topic_id: id of the topic, as Kafka's tools print it.
        partitions: their numbers.
    """

    topic_id: str
    partitions: tuple[int, ...]


@frozen(kw_only=True)
class ConsumerValue:
    """Value of a `ConsumerKey`; the kind of the record decides which attributes it has.

    Attributes:
        epoch: epoch of the group, of its target, or of the member (-1 and -2 after it left).
        names: (topic id, name) of the topics that the group knows, in records of Kafka 4.0.
        instance_id: static id of a member, `None` for a dynamic one.
        client_id: client id.
        client_host: address of the client.
        topics: names of the topics that a member subscribes to, or that match the expression.
        regex: regular expression that a member subscribes to.
        rebalance_timeout_ms: rebalance time-out of a member; -1 if unknown.
        is_classic: whether the member uses the classic protocol.
        session_timeout_ms: session time-out of such a member; `None` for others, and if unknown.
        partitions: target of a member, or the partitions that it owns.
        revoking: partitions that the member owns until it has revoked them.
    """

    epoch: int | None = None
    names: tuple[tuple[str, str], ...] = ()
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    regex: str | None = None
    rebalance_timeout_ms: int = -1
    is_classic: bool = False
    session_timeout_ms: int | None = None
    partitions: tuple[TopicPartitions, ...] = ()
    revoking: tuple[TopicPartitions, ...] = ()


def topic_id_text(raw: bytes) -> str:
    """Return a topic's id in the form of Kafka's tools: URL-safe base64 without padding."""
    return urlsafe_b64encode(raw).decode().rstrip("=")


def decode_key(content: bytes) -> OffsetKey | GroupKey | ConsumerKey:
    """Read a key, which determines the type of the value.

    Raises:
        DecodeError: the bytes are not a key, or belong to a group that is not read.
    """
    reader = ByteReader(content)
    version = reader.read_int16("version")
    if _SHARE_KEY <= version < _REGEX_KEY:
        raise UnsupportedVersionError(f"key version: {version} is of a share group, not read", 0)
    if version >= _STREAMS_KEY:
        raise UnsupportedVersionError(f"key version: {version} is of a streams group, not read", 0)
    if version < 0:
        raise UnsupportedVersionError(f"key version: {version}, expected 0 to {_REGEX_KEY}", 0)
    group = reader.read_string("group")
    key: OffsetKey | GroupKey | ConsumerKey
    if version < _GROUP_KEY:
        topic = reader.read_string("topic")
        key = OffsetKey(group=group, topic=topic, partition=reader.read_int32("partition"))
    elif version == _GROUP_KEY:
        key = GroupKey(group=group)
    else:
        kind = ConsumerKind(version)
        name = reader.read_string("name") if kind in _NAMED else ""
        key = ConsumerKey(group=group, kind=kind, name=name)
    reader.require_end()
    return key


def decode_offset_value(content: bytes) -> OffsetValue:
    """Read the value of an `OffsetKey`.

    Raises:
        DecodeError: the bytes are not such a value, or the version is unknown.
    """
    value = _ValueReader(content)
    version, reader = value.version, value.reader
    committed = reader.read_int64("offset")
    leader_epoch = reader.read_int32("leader_epoch") if version >= 3 else -1
    metadata = value.read_string("metadata")
    commit_ms = reader.read_int64("commit_timestamp")
    expire_ms = reader.read_int64("expire_timestamp") if version == 1 else -1
    raw_id = value.read_tags().get(_TOPIC_ID_TAG)
    reader.require_end()
    if raw_id is not None and len(raw_id) != _UUID_BYTES:
        raise InvalidCountError(
            f"topic_id: length {len(raw_id)}, expected {_UUID_BYTES}", reader.offset
        )
    return OffsetValue(
        committed=committed,
        leader_epoch=leader_epoch,
        metadata=metadata,
        commit_ms=commit_ms,
        expire_ms=expire_ms,
        topic_id=None if raw_id is None else UUID(bytes=raw_id),
        version=version,
    )


def decode_group_value(content: bytes) -> GroupValue:
    """Read the value of a `GroupKey`.

    Raises:
        DecodeError: the bytes are not such a value, or the version is unknown.
    """
    value = _ValueReader(content)
    group = GroupValue(
        protocol_type=value.read_string("protocol_type"),
        generation=value.reader.read_int32("generation"),
        protocol=value.read_nullable_string("protocol"),
        leader=value.read_nullable_string("leader"),
        state_ms=value.reader.read_int64("current_state_timestamp") if value.version >= 2 else -1,
        members=tuple(_read_member(value) for _ in range(value.read_count("members"))),
        version=value.version,
    )
    value.read_tags()
    value.reader.require_end()
    return group


def decode_consumer_value(kind: ConsumerKind, content: bytes) -> ConsumerValue:
    """Read the value of a `ConsumerKey`.

    Raises:
        DecodeError: the bytes are not such a value, or the version is unknown.
    """
    value = _ValueReader(content, newest=0, flexible_from=0)
    found = _CONSUMER_READERS[kind](value)
    classic = value.read_tags().get(_CLASSIC_MEMBER_TAG)
    value.reader.require_end()
    if kind is ConsumerKind.MEMBER and classic is not None and classic[:1] == _PRESENT:
        # The group coordinator writes null for other members, too.
        reader = ByteReader(classic[1:])
        timeout_ms = reader.read_int32("session_timeout_ms")
        return evolve(found, is_classic=True, session_timeout_ms=timeout_ms or None)
    return found


def _read_epoch(value: _ValueReader) -> ConsumerValue:
    return ConsumerValue(epoch=value.reader.read_int32("epoch"))


def _read_topics(value: _ValueReader) -> ConsumerValue:
    names = []
    for _ in range(value.read_count("topics")):
        names.append((value.read_topic_id(), value.read_string("topic_name")))
        value.reader.read_int32("num_partitions")
        for _ in range(value.read_count("partition_racks")):
            value.reader.read_int32("partition")
            value.read_strings("racks")
            value.read_tags()
        value.read_tags()
    return ConsumerValue(names=tuple(names))


def _read_consumer_member(value: _ValueReader) -> ConsumerValue:
    instance_id = value.read_nullable_string("instance_id") or None
    value.read_nullable_string("rack_id")
    found = ConsumerValue(
        instance_id=instance_id,
        client_id=value.read_string("client_id"),
        client_host=value.read_string("client_host"),
        topics=value.read_strings("subscribed_topic_names"),
        regex=value.read_nullable_string("subscribed_topic_regex") or None,
        rebalance_timeout_ms=value.reader.read_int32("rebalance_timeout"),
    )
    value.read_nullable_string("server_assignor")
    return found


def _read_target_of_member(value: _ValueReader) -> ConsumerValue:
    return ConsumerValue(partitions=value.read_partitions("topic_partitions"))


def _read_assignment(value: _ValueReader) -> ConsumerValue:
    epoch = value.reader.read_int32("member_epoch")
    value.reader.read_int32("previous_member_epoch")
    value.read_byte("state")
    return ConsumerValue(
        epoch=epoch,
        partitions=value.read_partitions("assigned_partitions"),
        revoking=value.read_partitions("partitions_pending_revocation"),
    )


def _read_regex(value: _ValueReader) -> ConsumerValue:
    topics = value.read_strings("topics")
    value.reader.read_int64("version of the cluster's metadata")
    value.reader.read_int64("timestamp")
    return ConsumerValue(topics=topics)


def _read_member(value: _ValueReader) -> GroupMember:
    version, reader = value.version, value.reader
    member_id = value.read_string("member_id")
    instance_id = value.read_nullable_string("group_instance_id") if version >= 3 else None
    client_id = value.read_string("client_id")
    client_host = value.read_string("client_host")
    rebalance_timeout_ms = reader.read_int32("rebalance_timeout") if version >= 1 else None
    session_timeout_ms = reader.read_int32("session_timeout")
    member = GroupMember(
        member_id=member_id,
        instance_id=instance_id,
        client_id=client_id,
        client_host=client_host,
        # KIP-62 introduced the rebalance time-out. Before, the session time-out limited both.
        rebalance_timeout_ms=(
            session_timeout_ms if rebalance_timeout_ms is None else rebalance_timeout_ms
        ),
        session_timeout_ms=session_timeout_ms,
        subscription=value.read_bytes("subscription") or b"",
        assignment=value.read_bytes("assignment") or b"",
    )
    value.read_tags()
    return member


class _ValueReader:
    """A position in a value; strings, bytes and counts are compact in a flexible version.

    Every read raises a `DecodeError` if the bytes are wrong.
    """

    def __init__(
        self, content: bytes, *, newest: int = VALUE_NEWEST, flexible_from: int = _FLEXIBLE_FROM
    ) -> None:
        self.reader = ByteReader(content)
        self.version = self.reader.read_int16("version")
        if not 0 <= self.version <= newest:
            raise UnsupportedVersionError(
                f"value version: {self.version} is not known (0 to {newest})", 0
            )
        self.is_flexible = self.version >= flexible_from

    def read_string(self, field: str) -> str:
        if not self.is_flexible:
            return self.reader.read_string(field)
        offset = self.reader.offset
        return _required(self.read_nullable_string(field), field, offset)

    def read_nullable_string(self, field: str) -> str | None:
        if not self.is_flexible:
            return self.reader.read_nullable_string(field)
        raw = self.read_bytes(field)
        if raw is None:
            return None
        return decoded_string(raw, field=field, offset=self.reader.offset - len(raw))

    def read_bytes(self, field: str) -> bytes | None:
        if not self.is_flexible:
            return self.reader.read_nullable_bytes(field)
        length = self._read_compact_length(field)
        return None if length is None else self._take(length)

    def read_count(self, field: str) -> int:
        if not self.is_flexible:
            return self.reader.read_count(field, bytes_min=1)
        offset = self.reader.offset
        return _required(self._read_compact_length(field), field, offset)

    def read_strings(self, field: str) -> tuple[str, ...]:
        return tuple(self.read_string(field) for _ in range(self.read_count(field)))

    def read_topic_id(self) -> str:
        return topic_id_text(self._take_all(_UUID_BYTES, "topic_id"))

    def read_byte(self, field: str) -> int:
        return self._take_all(1, field)[0]

    def read_partitions(self, field: str) -> tuple[TopicPartitions, ...]:
        found = []
        for _ in range(self.read_count(field)):
            topic_id = self.read_topic_id()
            count = self.read_count("partitions")
            numbers = tuple(self.reader.read_int32("partition") for _ in range(count))
            self.read_tags()
            found.append(TopicPartitions(topic_id=topic_id, partitions=numbers))
        return tuple(found)

    def read_tags(self) -> dict[int, bytes]:
        """Read the tagged fields, which newer brokers add to a version."""
        if not self.is_flexible:
            return {}
        tags = {}
        for _ in range(self._read_uvarint("tagged fields")):
            tag = self._read_uvarint("tag")
            size = self._read_uvarint("size of a tagged field")
            tags[tag] = self._take_all(size, f"tagged field {tag}")
        return tags

    def _read_compact_length(self, field: str) -> int | None:
        offset = self.reader.offset
        length = self._read_uvarint(field) - 1
        if length > self.reader.left:
            raise InvalidCountError(
                f"{field}: length {length} with no more than {self.reader.left} bytes left", offset
            )
        return None if length < 0 else length

    def _read_uvarint(self, field: str) -> int:
        """Read an UNSIGNED_VARINT: seven bits per byte, the lowest first."""
        offset = self.reader.offset
        value = 0
        for number, byte in enumerate(self.reader.content[offset : offset + _UVARINT_BYTES_MAX]):
            value |= (byte & 0x7F) << (7 * number)
            if byte < 0x80:
                self.reader.offset += number + 1
                return value
        if self.reader.left < _UVARINT_BYTES_MAX:
            raise BufferUnderflowError(f"{field}: the bytes end within a varint", offset)
        raise InvalidCountError(
            f"{field}: a varint of more than {_UVARINT_BYTES_MAX} bytes", offset
        )

    def _take_all(self, size: int, field: str) -> bytes:
        if size > self.reader.left:
            raise BufferUnderflowError(
                f"{field}: {size} bytes needed, {self.reader.left} left", self.reader.offset
            )
        return self._take(size)

    def _take(self, size: int) -> bytes:
        offset = self.reader.offset
        self.reader.offset += size
        return self.reader.content[offset : self.reader.offset]


def _required(value: _Value | None, field: str, offset: int) -> _Value:
    if value is None:
        raise InvalidCountError(f"{field}: length -1 is negative", offset)
    return value


_NAMED: Final = frozenset(ConsumerKind) - {
    *(ConsumerKind.GROUP, ConsumerKind.TOPICS, ConsumerKind.TARGET)
}
_CONSUMER_READERS: Final[dict[ConsumerKind, Callable[[_ValueReader], ConsumerValue]]] = {
    ConsumerKind.GROUP: _read_epoch,
    ConsumerKind.TOPICS: _read_topics,
    ConsumerKind.MEMBER: _read_consumer_member,
    ConsumerKind.TARGET: _read_epoch,
    ConsumerKind.TARGET_OF_MEMBER: _read_target_of_member,
    ConsumerKind.ASSIGNMENT: _read_assignment,
    ConsumerKind.REGEX: _read_regex,
}
