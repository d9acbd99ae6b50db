"""Codec of the records of `__consumer_offsets`, which the group coordinator writes.

Kafka calls the messages OffsetCommitKey (v0, v1), OffsetCommitValue (v0 to v4), GroupMetadataKey
(v2) and GroupMetadataValue (v0 to v4). v4 of the values is flexible (KIP-482): compact strings and
bytes, and tagged fields at the end of each structure. Keys of higher versions belong to groups of
the newer protocols (KIP-848, KIP-932, KIP-1071), whose state differs from that of a classic group.

The encoders serve tests and benchmarks, which create histories with them.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final, TypeAlias
from uuid import UUID

from attrs import frozen

from coopgroup.errors import BufferUnderflowError, InvalidCountError, UnsupportedVersionError
from coopgroup.pipeline.topic.compact_types import (
    NO_TAGS,
    packed_compact,
    packed_compact_string,
    packed_uvarint,
    read_compact_count,
    read_compact_nullable_bytes,
    read_compact_nullable_string,
    read_compact_string,
    read_tags,
)
from coopgroup.protocol.reader import ByteReader
from coopgroup.protocol.writer import (
    packed_int32,
    packed_nullable_bytes,
    packed_nullable_string,
    packed_string,
    require_version,
)

__all__ = [
    "VALUE_NEWEST",
    "GroupKey",
    "GroupMember",
    "GroupValue",
    "OffsetKey",
    "OffsetValue",
    "decode_group_value",
    "decode_key",
    "decode_offset_value",
    "encode_group_value",
    "encode_key",
    "encode_offset_value",
]

VALUE_NEWEST: Final = 4
_GROUP_KEY: Final = 2
_FLEXIBLE_FROM: Final = 4
_TOPIC_ID_TAG: Final = 0
_UUID_BYTES: Final = 16
_INT64: Final = Struct(">q")


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


# --- reading --------------------------------------------------------------------------------------


def decode_key(content: bytes) -> OffsetKey | GroupKey:
    """Read a key, which determines the type of the value.

    Raises:
        DecodeError: the bytes are not a key, or belong to another kind of record.
    """
    reader = ByteReader(content)
    version = reader.read_int16("version")
    if not 0 <= version <= _GROUP_KEY:
        raise UnsupportedVersionError(
            f"key version: {version} is no record of a classic group (0 to {_GROUP_KEY})", 0
        )
    group = reader.read_string("group")
    key: OffsetKey | GroupKey = GroupKey(group=group)
    if version < _GROUP_KEY:
        topic = reader.read_string("topic")
        key = OffsetKey(group=group, topic=topic, partition=reader.read_int32("partition"))
    reader.require_end()
    return key


def decode_offset_value(content: bytes) -> OffsetValue:
    """Read the value of an `OffsetKey`.

    Raises:
        DecodeError: the bytes are not such a value, or the version is unknown.
    """
    reader, version = _opened(content)
    read_string = read_compact_string if version >= _FLEXIBLE_FROM else ByteReader.read_string
    committed = _read_int64(reader, "offset")
    leader_epoch = reader.read_int32("leader_epoch") if version >= 3 else -1
    metadata = read_string(reader, "metadata")
    commit_ms = _read_int64(reader, "commit_timestamp")
    expire_ms = _read_int64(reader, "expire_timestamp") if version == 1 else -1
    tags = read_tags(reader) if version >= _FLEXIBLE_FROM else {}
    reader.require_end()
    return OffsetValue(
        committed=committed,
        leader_epoch=leader_epoch,
        metadata=metadata,
        commit_ms=commit_ms,
        expire_ms=expire_ms,
        topic_id=_topic_id(tags, reader.offset),
        version=version,
    )


def decode_group_value(content: bytes) -> GroupValue:
    """Read the value of a `GroupKey`.

    Raises:
        DecodeError: the bytes are not such a value, or the version is unknown.
    """
    reader, version = _opened(content)
    is_flexible = version >= _FLEXIBLE_FROM
    form = _FLEXIBLE if is_flexible else _CLASSIC
    protocol_type = form.string(reader, "protocol_type")
    generation = reader.read_int32("generation")
    protocol = form.nullable_string(reader, "protocol")
    leader = form.nullable_string(reader, "leader")
    state_ms = _read_int64(reader, "current_state_timestamp") if version >= 2 else -1
    count = form.count(reader, "members")
    members = tuple(_read_member(reader, form, version) for _ in range(count))
    if is_flexible:
        read_tags(reader)
    reader.require_end()
    return GroupValue(
        protocol_type=protocol_type,
        generation=generation,
        protocol=protocol,
        leader=leader,
        state_ms=state_ms,
        members=members,
        version=version,
    )


def _opened(content: bytes) -> tuple[ByteReader, int]:
    reader = ByteReader(content)
    version = reader.read_int16("version")
    if not 0 <= version <= VALUE_NEWEST:
        raise UnsupportedVersionError(
            f"value version: {version} is not known (0 to {VALUE_NEWEST})", 0
        )
    return reader, version


def _read_member(reader: ByteReader, form: _Form, version: int) -> GroupMember:
    member_id = form.string(reader, "member_id")
    instance_id = form.nullable_string(reader, "group_instance_id") if version >= 3 else None
    client_id = form.string(reader, "client_id")
    client_host = form.string(reader, "client_host")
    rebalance_timeout_ms = reader.read_int32("rebalance_timeout") if version >= 1 else -1
    session_timeout_ms = reader.read_int32("session_timeout")
    subscription = form.nullable_bytes(reader, "subscription") or b""
    assignment = form.nullable_bytes(reader, "assignment") or b""
    if version >= _FLEXIBLE_FROM:
        read_tags(reader)
    return GroupMember(
        member_id=member_id,
        instance_id=instance_id,
        client_id=client_id,
        client_host=client_host,
        # KIP-62 introduced the rebalance time-out. Before, the session time-out limited both.
        rebalance_timeout_ms=session_timeout_ms if version < 1 else rebalance_timeout_ms,
        session_timeout_ms=session_timeout_ms,
        subscription=subscription,
        assignment=assignment,
    )


def _read_int64(reader: ByteReader, field: str) -> int:
    if reader.left < _INT64.size:
        raise BufferUnderflowError(
            f"{field}: {_INT64.size} bytes needed, {reader.left} left", reader.offset
        )
    value: int = _INT64.unpack_from(reader.content, reader.offset)[0]
    reader.offset += _INT64.size
    return value


def _topic_id(tags: dict[int, bytes], offset: int) -> UUID | None:
    raw = tags.get(_TOPIC_ID_TAG)
    if raw is None:
        return None
    if len(raw) != _UUID_BYTES:
        raise InvalidCountError(f"topic_id: length {len(raw)}, expected {_UUID_BYTES}", offset)
    return UUID(bytes=raw)


def _read_classic_count(reader: ByteReader, field: str) -> int:
    return reader.read_count(field, bytes_min=1)


@frozen(kw_only=True)
class _Form:
    """Encoding of strings, bytes and counts in a version."""

    string: Callable[[ByteReader, str], str]
    nullable_string: Callable[[ByteReader, str], str | None]
    nullable_bytes: Callable[[ByteReader, str], bytes | None]
    count: Callable[[ByteReader, str], int]


_CLASSIC: Final = _Form(
    string=ByteReader.read_string,
    nullable_string=ByteReader.read_nullable_string,
    nullable_bytes=ByteReader.read_nullable_bytes,
    count=_read_classic_count,
)
_FLEXIBLE: Final = _Form(
    string=read_compact_string,
    nullable_string=read_compact_nullable_string,
    nullable_bytes=read_compact_nullable_bytes,
    count=read_compact_count,
)


# --- writing --------------------------------------------------------------------------------------

_PackString: TypeAlias = Callable[[str | None], bytes]


def encode_key(key: OffsetKey | GroupKey, *, version: int = 1) -> bytes:
    """Write a key.

    Args:
        key: the key.
        version: 0 or 1 of an `OffsetKey`; a `GroupKey` has one version only.

    Raises:
        EncodeError: the version does not exist, or a field does not fit its wire type.
    """
    group = packed_string(key.group, "group")
    if isinstance(key, GroupKey):
        return require_version(_GROUP_KEY, oldest=_GROUP_KEY, newest=_GROUP_KEY) + group
    return b"".join(
        [
            require_version(version, oldest=0, newest=1),
            group,
            packed_string(key.topic, "topic"),
            packed_int32(key.partition, "partition"),
        ]
    )


def encode_offset_value(value: OffsetValue) -> bytes:
    """Write a commit in its own version; fields that the version lacks are left out.

    Raises:
        EncodeError: the version does not exist, or a field does not fit its wire type.
    """
    is_flexible = value.version >= _FLEXIBLE_FROM
    return b"".join(
        [
            require_version(value.version, oldest=0, newest=VALUE_NEWEST),
            _INT64.pack(value.committed),
            packed_int32(value.leader_epoch, "leader_epoch") if value.version >= 3 else b"",
            packed_compact(value.metadata.encode())
            if is_flexible
            else packed_string(value.metadata, "metadata"),
            _INT64.pack(value.commit_ms),
            _INT64.pack(value.expire_ms) if value.version == 1 else b"",
            _packed_topic_id(value.topic_id) if is_flexible else b"",
        ]
    )


def encode_group_value(value: GroupValue) -> bytes:
    """Write a group's state in its own version; fields that the version lacks are left out.

    Raises:
        EncodeError: the version does not exist, or a field does not fit its wire type.
    """
    is_flexible = value.version >= _FLEXIBLE_FROM
    pack_string = packed_compact_string if is_flexible else _pack_classic_string
    count = len(value.members)
    return b"".join(
        [
            require_version(value.version, oldest=0, newest=VALUE_NEWEST),
            pack_string(value.protocol_type),
            packed_int32(value.generation, "generation"),
            pack_string(value.protocol),
            pack_string(value.leader),
            _INT64.pack(value.state_ms) if value.version >= 2 else b"",
            packed_uvarint(count + 1) if is_flexible else packed_int32(count, "members"),
            *(_packed_member(member, value.version, pack_string) for member in value.members),
            NO_TAGS if is_flexible else b"",
        ]
    )


def _packed_member(member: GroupMember, version: int, pack_string: _PackString) -> bytes:
    is_flexible = version >= _FLEXIBLE_FROM
    timeout_ms = packed_int32(member.rebalance_timeout_ms, "rebalance_timeout")
    return b"".join(
        [
            pack_string(member.member_id),
            pack_string(member.instance_id) if version >= 3 else b"",
            pack_string(member.client_id),
            pack_string(member.client_host),
            timeout_ms if version >= 1 else b"",
            packed_int32(member.session_timeout_ms, "session_timeout"),
            *(
                packed_compact(raw) if is_flexible else packed_nullable_bytes(raw, "embedded")
                for raw in (member.subscription, member.assignment)
            ),
            NO_TAGS if is_flexible else b"",
        ]
    )


def _pack_classic_string(value: str | None) -> bytes:
    return packed_nullable_string(value, "string")


def _packed_topic_id(topic_id: UUID | None) -> bytes:
    if topic_id is None:
        return NO_TAGS
    return b"\x01" + bytes([_TOPIC_ID_TAG, _UUID_BYTES]) + topic_id.bytes
