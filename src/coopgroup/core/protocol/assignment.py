"""Codec of our assignment, leader to member.

`assigned` is at the position of Kafka's ConsumerProtocolAssignment, so Kafka's own tools can
describe our groups. They cannot read a null `assigned`, so it is never written and is refused.
"""

from __future__ import annotations

from typing import Final

from coopgroup.core.protocol.reader import INT16, INT32, INT64, ByteReader
from coopgroup.core.protocol.resource_array import (
    packed_nullable_resources,
    packed_recent_resources,
    packed_resources,
    read_nullable_resources,
    read_recent_resources,
    read_resources,
)
from coopgroup.core.protocol.values import ASSIGNMENT_VERSION, Assignment
from coopgroup.core.protocol.writer import packed_nullable_int32, packed_nullable_int64

_LIKELY_REST: Final = 4 * INT32.size + 2 * INT64.size  # nothing is revoked or warmed up


def encode_assignment(
    assignment: Assignment, *, index_min: int = 0, assigned_wire: bytes | None = None
) -> bytes:
    """Write an assignment.

    Args:
        assignment: the assignment.
        index_min: smallest allowed index: 0 for partitions, -1 in groups of connectors.
        assigned_wire: bytes of `assigned` if known, from the subscription of a member that keeps
            its resources.

    Raises:
        EncodeError: a field does not fit its wire type, or a time is negative.
    """
    content = b"".join(
        [
            INT16.pack(ASSIGNMENT_VERSION),
            packed_recent_resources(assignment.assigned, "assigned", index_min=index_min)
            if assigned_wire is None
            else assigned_wire,
            packed_nullable_resources(assignment.revoked, "revoked", index_min=index_min),
            packed_nullable_int32(assignment.rejoin_in_ms, "rejoin_in_ms"),
            packed_nullable_int32(assignment.loss_ends_in_ms, "loss_ends_in_ms"),
            packed_resources(assignment.warmups, "warmups", index_min=index_min),
            packed_nullable_int64(assignment.topics_digest, "topics_digest"),
            packed_nullable_int64(assignment.shared_digest, "shared_digest"),
        ]
    )
    version = assignment.catalogue_version
    return content if version is None else with_catalogue_version(content, version)


def with_catalogue_version(content: bytes, version: int) -> bytes:
    """Append the version of the leader's catalogue to an assignment.

    Leaders of named resources do so. Assignments of partitions end before this field.

    Raises:
        EncodeError: the version is negative or does not fit its wire type.
    """
    return content + packed_nullable_int64(version, "catalogue_version")


def decode_assignment(
    content: bytes, *, index_min: int = 0, skips_rest: bool = False, has_catalogue: bool = False
) -> Assignment:
    """Read an assignment.

    A newer version is refused: it need not have these fields, and a member that misread its
    assignment might work beside another owner.

    Args:
        content: bytes of the member's assignment in SyncGroup.
        index_min: smallest allowed index: 0 for partitions, -1 in groups of connectors.
        skips_rest: whether to skip bytes after the last known field, as members do. A later release
            may append fields.
        has_catalogue: whether the version of a catalogue may follow, see `with_catalogue_version`.

    Raises:
        DecodeError: the bytes are not an assignment.
    """
    reader = ByteReader(content)
    reader.read_version("version", ASSIGNMENT_VERSION)
    # Usually the bytes were read before, as this member's assignment or as its claims.
    assigned, _ = read_recent_resources(
        reader, "assigned", index_min=index_min, likely_end=len(content) - _LIKELY_REST
    )
    assignment = Assignment(
        assigned=assigned,
        revoked=read_nullable_resources(reader, "revoked", index_min=index_min),
        rejoin_in_ms=reader.read_nullable_int32("rejoin_in_ms"),
        loss_ends_in_ms=reader.read_nullable_int32("loss_ends_in_ms"),
        warmups=read_resources(reader, "warmups", index_min=index_min),
        topics_digest=reader.read_nullable_int64("topics_digest"),
        shared_digest=reader.read_nullable_int64("shared_digest"),
        catalogue_version=reader.read_nullable_int64("catalogue_version")
        if has_catalogue and reader.left
        else None,
    )
    if not skips_rest:
        reader.require_end()
    return assignment
