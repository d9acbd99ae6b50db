"""Records of the internal topic as a group coordinator writes them, for tests and benchmarks."""

from base64 import urlsafe_b64decode
from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

from coopgroup.core.model import ResourceSet
from coopgroup.core.protocol.writer import (
    packed_int32,
    packed_int64,
    packed_nullable_bytes,
    packed_nullable_string,
    packed_string,
    require_version,
)
from coopgroup.pipeline.topic.codec import (
    VALUE_NEWEST,
    ConsumerKey,
    ConsumerKind,
    ConsumerValue,
    GroupKey,
    GroupMember,
    GroupValue,
    OffsetKey,
    OffsetValue,
    TopicPartitions,
)
from coopgroup.protocol import (
    KafkaAssignment,
    Subscription,
    encode_kafka_assignment,
    encode_subscription,
)

_FLEXIBLE_FROM: Final = 4
_NO_TAGS: Final = b"\0"
_NULL_CLASSIC: Final = b"\1\0\1\xff"  # so Kafka 4.3 writes a member of KIP-848
_NAMED: Final = (
    *(ConsumerKind.MEMBER, ConsumerKind.TARGET_OF_MEMBER),
    *(ConsumerKind.ASSIGNMENT, ConsumerKind.REGEX),
)

MEMBER: Final = GroupMember(
    member_id="a-1",
    client_id="a",
    client_host="/10.0.0.1",
    rebalance_timeout_ms=60_000,
    session_timeout_ms=6_000,
    subscription=encode_subscription(Subscription(topics=("orders",))),
    assignment=encode_kafka_assignment(KafkaAssignment(assigned=ResourceSet({"orders": [0, 2]}))),
)


def encode_key(key: OffsetKey | GroupKey | ConsumerKey, *, version: int = 1) -> bytes:
    """Write a key; an `OffsetKey` has the versions 0 and 1."""
    group = packed_string(key.group, "group")
    if isinstance(key, ConsumerKey):
        name = packed_string(key.name, "name") if key.kind in _NAMED else b""
        return require_version(key.kind.value, oldest=3, newest=16) + group + name
    if isinstance(key, GroupKey):
        return require_version(2, oldest=2, newest=2) + group
    return b"".join(
        [
            require_version(version, oldest=0, newest=1),
            group,
            packed_string(key.topic, "topic"),
            packed_int32(key.partition, "partition"),
        ]
    )


def encode_offset_value(value: OffsetValue) -> bytes:
    """Write a commit in its own version; fields that the version lacks are left out."""
    is_flexible = value.version >= _FLEXIBLE_FROM
    return b"".join(
        [
            require_version(value.version, oldest=0, newest=VALUE_NEWEST),
            packed_int64(value.committed, "offset"),
            packed_int32(value.leader_epoch, "leader_epoch") if value.version >= 3 else b"",
            _packed_compact(value.metadata.encode())
            if is_flexible
            else packed_string(value.metadata, "metadata"),
            packed_int64(value.commit_ms, "commit_timestamp"),
            packed_int64(value.expire_ms, "expire_timestamp") if value.version == 1 else b"",
            _packed_topic_id(value.topic_id) if is_flexible else b"",
        ]
    )


def encode_group_value(value: GroupValue) -> bytes:
    """Write a group's state in its own version; fields that the version lacks are left out."""
    is_flexible = value.version >= _FLEXIBLE_FROM
    pack_string = _packed_compact_string if is_flexible else _pack_classic_string
    count = len(value.members)
    return b"".join(
        [
            require_version(value.version, oldest=0, newest=VALUE_NEWEST),
            pack_string(value.protocol_type),
            packed_int32(value.generation, "generation"),
            pack_string(value.protocol),
            pack_string(value.leader),
            packed_int64(value.state_ms, "current_state_timestamp") if value.version >= 2 else b"",
            _packed_uvarint(count + 1) if is_flexible else packed_int32(count, "members"),
            *(_packed_member(member, value.version, pack_string) for member in value.members),
            _NO_TAGS if is_flexible else b"",
        ]
    )


def encode_consumer_value(kind: ConsumerKind, value: ConsumerValue) -> bytes:
    """Write the value of a KIP-848 group; fields that `ConsumerValue` lacks have any content."""
    tags = _NO_TAGS
    if kind is ConsumerKind.MEMBER:
        tags = _packed_classic(value) if value.is_classic else _NULL_CLASSIC
    return b"".join([require_version(0, oldest=0, newest=0), *_consumer_fields(kind, value), tags])


def _consumer_fields(kind: ConsumerKind, value: ConsumerValue) -> list[bytes]:
    epoch = packed_int32(value.epoch or 0, "epoch")
    match kind:
        case ConsumerKind.GROUP | ConsumerKind.TARGET:
            return [epoch]
        case ConsumerKind.TOPICS:
            one = packed_int32(1, "num_partitions") + _packed_uvarint(1) + _NO_TAGS
            names = [
                _id_bytes(key) + _packed_compact_string(name) + one for key, name in value.names
            ]
            return [_packed_array(names)]
        case ConsumerKind.MEMBER:
            return [
                *map(_packed_compact_string, (value.instance_id, None)),
                *map(_packed_compact_string, (value.client_id, value.client_host)),
                _packed_array([*map(_packed_compact_string, value.topics)]),
                _packed_compact_string(value.regex),
                packed_int32(value.rebalance_timeout_ms, "rebalance_timeout"),
                _packed_compact_string(None),
            ]
        case ConsumerKind.TARGET_OF_MEMBER:
            return [_packed_partitions(value.partitions)]
        case ConsumerKind.ASSIGNMENT:
            held = map(_packed_partitions, (value.partitions, value.revoking))
            return [epoch, epoch, b"\0", *held]
        case ConsumerKind.REGEX:
            topics = _packed_array([*map(_packed_compact_string, value.topics)])
            return [topics, packed_int64(1, "version"), packed_int64(0, "timestamp")]


def _packed_classic(value: ConsumerValue) -> bytes:
    """Write the tagged field of a member with the classic protocol: its number is 0."""
    timeout = packed_int32(value.session_timeout_ms or 0, "session_timeout")
    content = b"\1" + timeout + _packed_array([]) + _NO_TAGS
    return b"\1\0" + _packed_uvarint(len(content)) + content


def _packed_partitions(topics: Sequence[TopicPartitions]) -> bytes:
    rows = []
    for one in topics:
        numbers = _packed_array([packed_int32(number, "partition") for number in one.partitions])
        rows.append(_id_bytes(one.topic_id) + numbers + _NO_TAGS)
    return _packed_array(rows)


def _id_bytes(topic_id: str) -> bytes:
    return urlsafe_b64decode(f"{topic_id}==")


def _packed_array(rows: Sequence[bytes]) -> bytes:
    """Write a COMPACT_ARRAY."""
    return _packed_uvarint(len(rows) + 1) + b"".join(rows)


def _packed_member(
    member: GroupMember, version: int, pack_string: Callable[[str | None], bytes]
) -> bytes:
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
                _packed_compact(raw) if is_flexible else packed_nullable_bytes(raw, "embedded")
                for raw in (member.subscription, member.assignment)
            ),
            _NO_TAGS if is_flexible else b"",
        ]
    )


def _pack_classic_string(value: str | None) -> bytes:
    return packed_nullable_string(value, "string")


def _packed_topic_id(topic_id: UUID | None) -> bytes:
    if topic_id is None:
        return _NO_TAGS
    return bytes([1, 0, len(topic_id.bytes)]) + topic_id.bytes  # one tagged field: number 0


def _packed_compact_string(value: str | None) -> bytes:
    """Write a COMPACT_NULLABLE_STRING."""
    return b"\0" if value is None else _packed_compact(value.encode())


def _packed_compact(raw: bytes) -> bytes:
    """Write COMPACT_BYTES."""
    return _packed_uvarint(len(raw) + 1) + raw


def _packed_uvarint(value: int) -> bytes:
    """Write an UNSIGNED_VARINT."""
    packed = bytearray()
    while value >= 0x80:
        packed.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*packed, value])
