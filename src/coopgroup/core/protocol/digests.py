"""Checksums in the assignment of a static member, for its next process.

A static member that returns gets its stored assignment without a round (KIP-345), also as leader
(KIP-814). Its subscription, or the shared resources, may have changed since the round. So the
leader adds checksums of both.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from coopgroup.core.model import ResourceSet


def names_digest(names: Sequence[str]) -> int:
    """Return the CRC-32 of the names in UTF-8, each followed by a zero byte."""
    return zlib.crc32(b"".join(name.encode() + b"\0" for name in names))


def resources_digest(resources: ResourceSet) -> int:
    """Return a checksum of resources: of their names, their counts, then the indices."""
    digest = zlib.crc32(resources.starts.astype(">i8").tobytes(), names_digest(resources.names))
    return zlib.crc32(resources.flat_indices.astype(">i4").tobytes(), digest)
