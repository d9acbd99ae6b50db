"""Records of the internal topic as a group coordinator writes them, for tests and benchmarks."""

from collections.abc import Callable
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
    GroupKey,
    GroupMember,
    GroupValue,
    OffsetKey,
    OffsetValue,
)
from coopgroup.protocol import (
    KafkaAssignment,
    Subscription,
    encode_kafka_assignment,
    encode_subscription,
)

_FLEXIBLE_FROM: Final = 4
_NO_TAGS: Final = b"\0"

MEMBER: Final = GroupMember(
    member_id="a-1",
    client_id="a",
    client_host="/10.0.0.1",
    rebalance_timeout_ms=60_000,
    session_timeout_ms=6_000,
    subscription=encode_subscription(Subscription(topics=("orders",))),
    assignment=encode_kafka_assignment(KafkaAssignment(assigned=ResourceSet({"orders": [0, 2]}))),
)


def encode_key(key: OffsetKey | GroupKey, *, version: int = 1) -> bytes:
    """Write a key; an `OffsetKey` has the versions 0 and 1."""
    group = packed_string(key.group, "group")
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
