"""The warm-ups behind an assignment, for members that take part in warm-ups.

Only a member that tells its warm resources in its user data gets these bytes. So no older release
and no other client receives them in a round. They are read from the end of the assignment, and all
other readers skip them: our members of earlier releases, and Kafka's own tools. Only the trailer of
a static member comes after them.

An earlier release that reads a stored assignment (a static member after a downgrade, KIP-345) takes
four bytes after a time-out for the loss time-out. If the assignment has none, four bytes in front
of the warm-ups give this reader the same deadline, one millisecond later: it refuses equal ones.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from coopgroup.core.model import NO_LOSS, ResourceSet
from coopgroup.core.protocol.reader import INT32, ByteReader
from coopgroup.core.protocol.resource_array import packed_resources, read_resources

_MAGIC: Final = b"cgwu"
_END: Final = Struct(f">I{len(_MAGIC)}s")
_FIELD: Final = "warmups"
_TIMEOUT_MS_MAX: Final = 2**31 - 1


class WarmupBytes(NamedTuple):
    """Position of the warm-ups in an assignment, without their length and magic."""

    start: int
    end: int


def packed_warmups(
    warmups: ResourceSet, *, timeout_ms: int, loss_timeout_ms: int | None, index_min: int
) -> bytes:
    """Write the bytes to append to an assignment.

    Args:
        warmups: the warm-ups; an empty set is written.
        timeout_ms: time-out of the assignment.
        loss_timeout_ms: loss time-out of the assignment, or None.
        index_min: smallest allowed index.

    Raises:
        EncodeError: an index is too small, or a name cannot be encoded.
    """
    content = packed_resources(warmups, _FIELD, index_min=index_min)
    if _has_older_deadline(timeout_ms, loss_timeout_ms):
        content = INT32.pack(_older_deadline(timeout_ms)) + content
    return content + _END.pack(len(content), _MAGIC)


def find_warmups(content: bytes) -> WarmupBytes | None:
    """Return the position of the warm-ups in an assignment without a trailer, or None."""
    end = len(content) - _END.size
    if end < 0 or not content.endswith(_MAGIC):
        return None
    size, _ = _END.unpack_from(content, end)
    return WarmupBytes(end - size, end) if size <= end else None


def read_warmups(
    content: bytes,
    found: WarmupBytes,
    *,
    timeout_ms: int,
    loss_timeout_ms: int | None,
    index_min: int,
) -> ResourceSet:
    """Read the warm-ups of an assignment.

    Raises:
        DecodeError: the bytes are damaged.
    """
    reader = ByteReader(content[: found.end])
    reader.offset = found.start
    if _has_older_deadline(timeout_ms, loss_timeout_ms):
        reader.read_int32(_FIELD)
    warmups = read_resources(reader, _FIELD, index_min=index_min)
    reader.require_end()
    return warmups


def _has_older_deadline(timeout_ms: int, loss_timeout_ms: int | None) -> bool:
    return timeout_ms > 0 and loss_timeout_ms is None


def _older_deadline(timeout_ms: int) -> int:
    return timeout_ms + 1 if timeout_ms < _TIMEOUT_MS_MAX else NO_LOSS
