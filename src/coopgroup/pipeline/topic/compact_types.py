"""Kafka's compact types (KIP-482), which flexible versions of its messages use.

A length or count is an UNSIGNED_VARINT of itself plus one, or 0 for null. Every structure ends with
tagged fields. As in `coopgroup.protocol.reader`, every length is checked before use.
"""

from __future__ import annotations

from typing import Final

from coopgroup.errors import BufferUnderflowError, InvalidCountError
from coopgroup.protocol.reader import ByteReader, decoded_string

__all__ = [
    "NO_TAGS",
    "packed_compact",
    "packed_compact_string",
    "packed_uvarint",
    "read_compact_count",
    "read_compact_nullable_bytes",
    "read_compact_nullable_string",
    "read_compact_string",
    "read_tags",
    "read_uvarint",
]

NO_TAGS: Final = b"\0"
_NULL: Final = b"\0"
_UVARINT_BYTES_MAX: Final = 5


def read_uvarint(reader: ByteReader, field: str) -> int:
    """Read an UNSIGNED_VARINT, seven bits per byte, the lowest first; raises DecodeError."""
    start = reader.offset
    value = 0
    for number in range(_UVARINT_BYTES_MAX):
        if not reader.left:
            raise BufferUnderflowError(f"{field}: the bytes end within a varint", start)
        byte = reader.content[reader.offset]
        reader.offset += 1
        value |= (byte & 0x7F) << (7 * number)
        if byte < 0x80:
            return value
    raise InvalidCountError(f"{field}: a varint of more than {_UVARINT_BYTES_MAX} bytes", start)


def _read_compact_length(reader: ByteReader, field: str) -> int:
    """Read a compact length, which is stored plus one; -1 for null."""
    start = reader.offset
    length = read_uvarint(reader, field) - 1
    if length > reader.left:
        raise InvalidCountError(
            f"{field}: length {length} with no more than {reader.left} bytes left", start
        )
    return length


def read_compact_nullable_bytes(reader: ByteReader, field: str) -> bytes | None:
    """Read COMPACT_NULLABLE_BYTES; raises DecodeError if they are truncated."""
    length = _read_compact_length(reader, field)
    if length < 0:
        return None
    taken = reader.content[reader.offset : reader.offset + length]
    reader.offset += length
    return taken


def read_compact_nullable_string(reader: ByteReader, field: str) -> str | None:
    """Read a COMPACT_NULLABLE_STRING; raises DecodeError if it is truncated or invalid UTF-8."""
    raw = read_compact_nullable_bytes(reader, field)
    if raw is None:
        return None
    return decoded_string(raw, field=field, offset=reader.offset - len(raw))


def read_compact_string(reader: ByteReader, field: str) -> str:
    """Read a non-nullable COMPACT_STRING; else as the nullable one."""
    start = reader.offset
    value = read_compact_nullable_string(reader, field)
    if value is None:
        raise InvalidCountError(f"{field}: length -1 is negative", start)
    return value


def read_compact_count(reader: ByteReader, field: str) -> int:
    """Read the count of a non-nullable COMPACT_ARRAY; raises DecodeError."""
    start = reader.offset
    count = _read_compact_length(reader, field)
    if count < 0:
        raise InvalidCountError(f"{field}: length -1 is negative", start)
    return count


def read_tags(reader: ByteReader) -> dict[int, bytes]:
    """Read tagged fields, which newer brokers add to a version; raises DecodeError."""
    tags = {}
    for _ in range(read_uvarint(reader, "tagged fields")):
        tag = read_uvarint(reader, "tag")
        size = read_uvarint(reader, "size of a tagged field")
        if size > reader.left:
            raise BufferUnderflowError(
                f"tagged field {tag}: {size} bytes needed, {reader.left} left", reader.offset
            )
        tags[tag] = reader.content[reader.offset : reader.offset + size]
        reader.offset += size
    return tags


def packed_compact_string(value: str | None) -> bytes:
    """Write a COMPACT_NULLABLE_STRING."""
    return _NULL if value is None else packed_compact(value.encode())


def packed_compact(raw: bytes) -> bytes:
    """Write COMPACT_BYTES."""
    return packed_uvarint(len(raw) + 1) + raw


def packed_uvarint(value: int) -> bytes:
    """Write an UNSIGNED_VARINT."""
    packed = bytearray()
    while value >= 0x80:
        packed.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*packed, value])
