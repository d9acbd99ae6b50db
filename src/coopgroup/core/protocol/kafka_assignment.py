"""Codec of Kafka's own ConsumerProtocolAssignment, v0 to v3, which have the same fields.

It is needed if one of Kafka's clients leads the group, and to see our assignments as Kafka's tools
see them. Like these tools, this codec skips all bytes after the user data.
"""

from __future__ import annotations

from coopgroup.core.protocol.reader import ByteReader
from coopgroup.core.protocol.resource_array import packed_resources, read_resources
from coopgroup.core.protocol.values import KAFKA_ASSIGNMENT_NEWEST, KafkaAssignment
from coopgroup.core.protocol.writer import packed_nullable_bytes, require_version
from coopgroup.errors import DecodeError, UnsupportedVersionError


def encode_kafka_assignment(
    assignment: KafkaAssignment, version: int = KAFKA_ASSIGNMENT_NEWEST, *, index_min: int = 0
) -> bytes:
    """Write an assignment that Kafka's own clients read.

    Raises:
        EncodeError: the version does not exist, or a field does not fit its wire type.
    """
    return b"".join(
        [
            require_version(version, oldest=0, newest=KAFKA_ASSIGNMENT_NEWEST),
            packed_resources(assignment.assigned, "assigned", index_min=index_min),
            packed_nullable_bytes(assignment.user_data, "user_data"),
        ]
    )


def decode_kafka_assignment(content: bytes, *, index_min: int = 0) -> KafkaAssignment:
    """Read an assignment of Kafka's own clients; bytes after the user data are skipped.

    Raises:
        DecodeError: the bytes are not such an assignment.
    """
    return _read(ByteReader(content), index_min)


def is_kafka_assignment(content: bytes) -> bool:
    """Return whether bytes are exactly an assignment of a group coordinator (KIP-848).

    It writes no user data, and nothing after it.
    """
    reader = ByteReader(content)
    try:
        assignment = _read(reader, index_min=0)
        reader.require_end()
    except DecodeError:
        return False
    return assignment.version <= KAFKA_ASSIGNMENT_NEWEST and assignment.user_data is None


def _read(reader: ByteReader, index_min: int) -> KafkaAssignment:
    version = reader.read_int16("version")
    if version < 0:
        raise UnsupportedVersionError(f"version: {version} has never existed", 0)
    assigned = read_resources(reader, "assigned", index_min=index_min)
    user_data = reader.read_nullable_bytes("user_data")
    return KafkaAssignment(assigned=assigned, user_data=user_data, version=version)
