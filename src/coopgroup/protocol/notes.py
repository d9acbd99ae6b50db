"""What a leader notes behind the assignment of a static member, for its next life.

A static member that comes back is given what the group stores for it, without a round (KIP-345),
the leader too (KIP-814). Nothing else tells it whether that still fits: what it subscribes to, and
what there is to share, may have changed since the round. So the leader adds what it went by, as
checksums. Members pass over bytes behind an assignment, ours of any release and Kafka's own tools.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Final

from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coopgroup.model import ResourceSet

__all__ = [
    "AssignmentNote",
    "names_digest",
    "note_of",
    "resources_digest",
    "with_note",
    "without_note",
]

_MAGIC: Final = b"cgnt"
_LAYOUT: Final = struct.Struct(f">II{len(_MAGIC)}s")
_NOT_SAID: Final = 0


@frozen(kw_only=True)
class AssignmentNote:
    """What an assignment was made from.

    Attributes:
        topics: `names_digest` of what the member subscribed to.
        shared: `resources_digest` of all that the group had to share, for the leader of the round;
            None for others, and where it did not know.
    """

    topics: int
    shared: int | None = None


def with_note(assignment: bytes, note: AssignmentNote) -> bytes:
    """An assignment with a note behind it.

    Args:
        assignment: the bytes, without a time-out: what may follow that would be misread.
        note: what to add.
    """
    shared = _NOT_SAID if note.shared is None else note.shared
    return assignment + _LAYOUT.pack(note.topics, shared, _MAGIC)


def note_of(assignment: bytes) -> AssignmentNote | None:
    """The note behind an assignment, None where there is none."""
    if not assignment.endswith(_MAGIC) or len(assignment) < _LAYOUT.size:
        return None
    topics, shared, _ = _LAYOUT.unpack(assignment[-_LAYOUT.size :])
    return AssignmentNote(topics=topics, shared=None if shared == _NOT_SAID else shared)


def without_note(assignment: bytes) -> bytes:
    """An assignment without the note behind it, if there is one."""
    return assignment if note_of(assignment) is None else assignment[: -_LAYOUT.size]


def names_digest(names: Sequence[str]) -> int:
    """A checksum of names, CRC-32 of their UTF-8 with a zero byte after each; never 0.

    Args:
        names: ascending and distinct.
    """
    return zlib.crc32(b"".join(name.encode() + b"\0" for name in names)) or 1


def resources_digest(resources: ResourceSet) -> int:
    """A checksum of resources, never 0: of their names, then how many of each, then the indices."""
    digest = zlib.crc32(resources.starts.astype(">i8").tobytes(), names_digest(resources.names))
    return zlib.crc32(resources.flat_indices.astype(">i4").tobytes(), digest) or 1
