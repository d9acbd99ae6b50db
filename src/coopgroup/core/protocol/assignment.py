"""Codec of our assignment, leader to member, v1 and v2.

`assigned` is at the position of Kafka's ConsumerProtocolAssignment, so Kafka's own tools can
describe our groups. They cannot read a null `assigned`, so it is never written and is refused.

A version 2 can end with one more field, `loss_timeout_ms`. The field is present only if the two
deadlines differ: then the time-out before it is for moves. Warm-ups can follow all fields (module
`assignment_warmups`).
"""

from __future__ import annotations

from typing import Final

from coopgroup.core.model import NO_LOSS
from coopgroup.core.protocol.assignment_trailer import without_trailer
from coopgroup.core.protocol.assignment_warmups import find_warmups, packed_warmups, read_warmups
from coopgroup.core.protocol.reader import INT16, INT32, ByteReader
from coopgroup.core.protocol.resource_array import (
    packed_nullable_resources,
    packed_recent_resources,
    read_nullable_resources,
    read_recent_resources,
)
from coopgroup.core.protocol.values import ASSIGNMENT_NEWEST, Assignment
from coopgroup.core.protocol.writer import packed_int32, require_version
from coopgroup.errors import EncodeError, InvalidValueError, UnsupportedVersionError

_OLDEST: Final = 1
_FIRST_WITH_WARMUPS: Final = 2
_LIKELY_REST: Final = 2 * INT32.size  # an empty `revoked` and one time-out
_TIMEOUT: Final = "scheduled_rebalance_timeout_ms"
_LOSS_TIMEOUT: Final = "loss_timeout_ms"


def encode_assignment(
    assignment: Assignment,
    version: int = ASSIGNMENT_NEWEST,
    *,
    index_min: int = 0,
    assigned_wire: bytes | None = None,
) -> bytes:
    """Write an assignment.

    Args:
        assignment: the assignment; its own `version` is ignored.
        version: 1 or 2.
        index_min: smallest allowed index: 0 for partitions, -1 in groups of connectors.
        assigned_wire: bytes of `assigned` if known, from the subscription of a member that keeps
            its resources.

    Raises:
        EncodeError: the version does not exist or cannot carry a time-out or warm-ups that are set
            (the member would never learn them), a field does not fit its wire type, or the wait for
            a lost owner does not end after the time-out.
    """
    timeout_ms = assignment.scheduled_rebalance_timeout_ms
    parts = [
        require_version(version, oldest=_OLDEST, newest=ASSIGNMENT_NEWEST),
        packed_recent_resources(assignment.assigned, "assigned", index_min=index_min)
        if assigned_wire is None
        else assigned_wire,
        packed_nullable_resources(assignment.revoked, "revoked", index_min=index_min),
    ]
    if timeout_ms < 0:
        raise EncodeError(f"{_TIMEOUT}: {timeout_ms} is negative")
    if version >= 2:
        parts.append(packed_int32(timeout_ms, _TIMEOUT))
    elif timeout_ms:
        raise EncodeError(f"{_TIMEOUT}: {timeout_ms} has no place in version {version}")
    if assignment.loss_timeout_ms is not None:
        parts.append(_packed_loss_timeout(assignment.loss_timeout_ms, timeout_ms))
    if assignment.warmups is not None:
        if version < _FIRST_WITH_WARMUPS:
            raise EncodeError(f"warmups: they have no place in version {version}")
        parts.append(
            packed_warmups(
                assignment.warmups,
                timeout_ms=timeout_ms,
                loss_timeout_ms=assignment.loss_timeout_ms,
                index_min=index_min,
            )
        )
    return b"".join(parts)


def decode_assignment(
    content: bytes, *, index_min: int = 0, skips_rest: bool = False
) -> Assignment:
    """Read an assignment.

    A newer version is refused, unlike a newer subscription. The next version need not keep this
    prefix, and a member that misread its assignment might work beside another owner.

    Args:
        content: bytes of the member's assignment in SyncGroup.
        index_min: smallest allowed index: 0 for partitions, -1 in groups of connectors.
        skips_rest: whether to skip bytes after the last known field, as members do. A later release
            may append fields.

    Raises:
        DecodeError: the bytes are not an assignment.
    """
    reader = ByteReader(content)
    version = reader.read_int16("version")
    if not _OLDEST <= version <= ASSIGNMENT_NEWEST:
        raise UnsupportedVersionError(
            f"version: got {version}, expected {_OLDEST} to {ASSIGNMENT_NEWEST}", 0
        )
    if skips_rest:
        content = without_trailer(content)
    found = find_warmups(content) if version >= _FIRST_WITH_WARMUPS else None
    if found is not None:
        reader = ByteReader(content[: found.start])
        reader.offset = INT16.size
    # Usually the bytes were read before, as this member's assignment or as its claims.
    assigned, _ = read_recent_resources(
        reader, "assigned", index_min=index_min, likely_end=len(reader.content) - _LIKELY_REST
    )
    revoked = read_nullable_resources(reader, "revoked", index_min=index_min)
    timeout_ms = _read_timeout_ms(reader) if version >= 2 else 0
    loss_timeout_ms = _read_loss_timeout_ms(reader, timeout_ms) if timeout_ms else None
    if not skips_rest:
        reader.require_end()
    warmups = None
    if found is not None:
        warmups = read_warmups(
            content,
            found,
            timeout_ms=timeout_ms,
            loss_timeout_ms=loss_timeout_ms,
            index_min=index_min,
        )
    return Assignment(
        assigned=assigned,
        revoked=revoked,
        scheduled_rebalance_timeout_ms=timeout_ms,
        loss_timeout_ms=loss_timeout_ms,
        warmups=warmups,
        version=version,
    )


def _packed_loss_timeout(loss_timeout_ms: int, timeout_ms: int) -> bytes:
    if not timeout_ms:
        raise EncodeError(f"{_LOSS_TIMEOUT}: {loss_timeout_ms} has no place without {_TIMEOUT}")
    if loss_timeout_ms != NO_LOSS and loss_timeout_ms <= timeout_ms:
        raise EncodeError(f"{_LOSS_TIMEOUT}: {loss_timeout_ms} is not after {timeout_ms}")
    return packed_int32(loss_timeout_ms, _LOSS_TIMEOUT)


def _read_timeout_ms(reader: ByteReader) -> int:
    offset = reader.offset
    timeout_ms = reader.read_int32(_TIMEOUT)
    if timeout_ms < 0:
        raise InvalidValueError(f"{_TIMEOUT}: {timeout_ms} is negative", offset)
    return timeout_ms


def _read_loss_timeout_ms(reader: ByteReader, timeout_ms: int) -> int | None:
    """Read the optional field after a time-out that is set; None if it is absent."""
    if not reader.left:
        return None
    offset = reader.offset
    loss_timeout_ms = reader.read_int32(_LOSS_TIMEOUT)
    if loss_timeout_ms != NO_LOSS and loss_timeout_ms <= timeout_ms:
        raise InvalidValueError(
            f"{_LOSS_TIMEOUT}: {loss_timeout_ms} is not after {timeout_ms}", offset
        )
    return loss_timeout_ms
