"""The trailer behind the assignment of a static member, for its next process.

A static member that returns gets its stored assignment without a round (KIP-345), also as leader
(KIP-814). Its subscription, or the shared resources, may have changed since the round. So the
leader appends checksums of both. All readers skip these bytes: our members of any release, and
Kafka's own tools.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Final

from attrs import frozen

from coopgroup.core.model import ResourceSet

_MAGIC: Final = b"cgnt"
_LAYOUT: Final = struct.Struct(f">II{len(_MAGIC)}s")
_NOT_SAID: Final = 0


@frozen(kw_only=True)
class AssignmentTrailer:
    """Checksums of the input of an assignment.

    Attributes:
        topics: `names_digest` of the member's subscription.
        shared: `resources_digest` of all resources of the group, only for the leader of the round;
            None for other members, and if unknown.
    """

    topics: int
    shared: int | None = None


def with_trailer(assignment: bytes, trailer: AssignmentTrailer) -> bytes:
    """Append a trailer to an assignment without a time-out: after one it would be misread."""
    shared = _NOT_SAID if trailer.shared is None else trailer.shared
    return assignment + _LAYOUT.pack(trailer.topics, shared, _MAGIC)


def trailer_of(assignment: bytes) -> AssignmentTrailer | None:
    """Return the trailer of an assignment, or None."""
    if not assignment.endswith(_MAGIC) or len(assignment) < _LAYOUT.size:
        return None
    topics, shared, _ = _LAYOUT.unpack(assignment[-_LAYOUT.size :])
    return AssignmentTrailer(topics=topics, shared=None if shared == _NOT_SAID else shared)


def without_trailer(assignment: bytes) -> bytes:
    """Return an assignment without its trailer, if it has one."""
    return assignment if trailer_of(assignment) is None else assignment[: -_LAYOUT.size]


def names_digest(names: Sequence[str]) -> int:
    """Return the CRC-32 of the names in UTF-8, each followed by a zero byte; never 0."""
    return zlib.crc32(b"".join(name.encode() + b"\0" for name in names)) or 1


def resources_digest(resources: ResourceSet) -> int:
    """Return a checksum of resources, never 0: of their names, their counts, then the indices."""
    digest = zlib.crc32(resources.starts.astype(">i8").tobytes(), names_digest(resources.names))
    return zlib.crc32(resources.flat_indices.astype(">i4").tobytes(), digest) or 1
