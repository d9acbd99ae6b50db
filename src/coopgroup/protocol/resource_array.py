"""ARRAY of (STRING name, ARRAY of INT32 indices) to a `ResourceSet` and back.

This is where the time goes when a member holds 100,000 partitions, so the two halves differ in
style from the rest of the package. Reading: one tight loop over NAMES only finds where each list of
indices stands; all lists are then joined, converted and checked at once. Writing: all indices are
converted at once and cut up.
"""

from __future__ import annotations

from itertools import islice
from operator import lt
from struct import error as StructError  # noqa: N812  (a class, named like one)
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from coopgroup.errors import BufferUnderflowError, EncodeError, InvalidValueError
from coopgroup.model.resource_set import EMPTY, Int32Array, Int64Array, ResourceSet
from coopgroup.protocol.reader import (
    INT16,
    INT32,
    NULL,
    ByteReader,
    decoded_string,
    require_count,
)
from coopgroup.protocol.writer import utf8

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "packed_nullable_resources",
    "packed_resources",
    "read_nullable_resources",
    "read_resources",
]

_INDEX_BYTES: Final = 4
_ENTRY_BYTES_MIN: Final = 6  # empty name, no index
_WIRE_INT32: Final = np.dtype(">i4")


class _Entries(NamedTuple):
    """Where everything stands: one item per entry, and the joined lists of indices."""

    names: list[str]
    name_offsets: list[int]
    index_offsets: list[int]
    counts: list[int]
    wire_indices: bytes


def read_resources(reader: ByteReader, field: str, *, index_min: int) -> ResourceSet:
    """Read an array that may not be null.

    Args:
        reader: stands at the array's count and is moved behind the array.
        field: what is read, for messages.
        index_min: smallest index that is allowed: 0 for partitions, -1 where a connector counts.

    Raises:
        DecodeError: a count is wrong, a name is no UTF-8 or repeated, an index is too small or
            repeated within its name.
    """
    count = reader.read_count(field, bytes_min=_ENTRY_BYTES_MIN)
    return _read_counted(reader, field, count, index_min)


def read_nullable_resources(
    reader: ByteReader, field: str, *, index_min: int
) -> ResourceSet | None:
    """Read an array, None for a null one; else as `read_resources`."""
    count = reader.read_nullable_count(field, bytes_min=_ENTRY_BYTES_MIN)
    return None if count is None else _read_counted(reader, field, count, index_min)


def packed_resources(resources: ResourceSet, field: str, *, index_min: int) -> bytes:
    """Write an array, names and indices ascending.

    Args:
        resources: what to write.
        field: what is written, for messages.
        index_min: smallest index that is allowed.

    Raises:
        EncodeError: an index is too small, or a name has no wire form.
    """
    indices = resources.flat_indices
    if indices.size and (least := int(indices.min())) < index_min:
        raise EncodeError(f"{field}: index {least} is less than {index_min}")
    wire_indices = indices.astype(_WIRE_INT32).tobytes()
    places = (resources.starts * _INDEX_BYTES).tolist()
    counts = np.diff(resources.starts).tolist()
    pack_length, pack_count = INT16.pack, INT32.pack
    parts = [pack_count(len(counts))]
    append = parts.append
    for number, name in enumerate(resources.names):
        raw = utf8(name, field)
        append(pack_length(len(raw)))
        append(raw)
        append(pack_count(counts[number]))
        append(wire_indices[places[number] : places[number + 1]])
    return b"".join(parts)


def packed_nullable_resources(
    resources: ResourceSet | None, field: str, *, index_min: int
) -> bytes:
    """Write an array, null for None; else as `packed_resources`."""
    if resources is None:
        return INT32.pack(NULL)
    return packed_resources(resources, field, index_min=index_min)


def _read_counted(reader: ByteReader, field: str, count: int, index_min: int) -> ResourceSet:
    entries = _read_entries(reader, field, count)
    in_order = _names_ascend(entries.names)
    if not in_order:
        _refuse_repeated_names(entries, field)
    indices = np.frombuffer(entries.wire_indices, dtype=_WIRE_INT32).astype(np.int32)
    counts = np.array(entries.counts, dtype=np.int64)
    starts = np.zeros(counts.size + 1, dtype=np.int64)
    np.cumsum(counts, out=starts[1:])
    if indices.size and indices.min() < index_min:
        place = int(np.argmax(indices < index_min))
        _refuse_index(entries, field, place, starts, f"is less than {index_min}")
    if not _indices_ascend(indices, starts):
        _refuse_repeated_indices(entries, field, indices, starts)
        in_order = False
    if not in_order:
        return _sorted_set(entries.names, starts, indices)
    return _ascending_set(entries.names, counts, indices)


def _read_entries(reader: ByteReader, field: str, count: int) -> _Entries:
    content, offset = reader.content, reader.offset
    size = len(content)
    names: list[str] = []
    name_offsets: list[int] = []
    index_offsets: list[int] = []
    counts: list[int] = []
    chunks: list[bytes] = []
    unpack_length, unpack_count = INT16.unpack_from, INT32.unpack_from
    try:
        for _ in range(count):
            name_offsets.append(offset)
            length = unpack_length(content, offset)[0]
            start = offset + 2
            if not 0 <= length <= size - start:
                _refuse_count(length, 1, size - start, f"{field} name", offset)
            offset = start + length
            raw = content[start:offset]
            try:
                names.append(raw.decode())
            except UnicodeDecodeError:
                decoded_string(raw, field=f"{field} name", offset=start)
            index_count = unpack_count(content, offset)[0]
            start = offset + 4
            if not 0 <= index_count <= (size - start) >> 2:
                _refuse_count(index_count, _INDEX_BYTES, size - start, f"{field} indices", offset)
            offset = start + index_count * _INDEX_BYTES
            index_offsets.append(start)
            counts.append(index_count)
            chunks.append(content[start:offset])
    except StructError:
        raise BufferUnderflowError(f"{field}: {size - offset} bytes left", offset) from None
    reader.offset = offset
    return _Entries(names, name_offsets, index_offsets, counts, b"".join(chunks))


def _refuse_count(count: int, bytes_min: int, left: int, field: str, offset: int) -> None:
    require_count(count, bytes_min=bytes_min, left=left, field=field, offset=offset)


def _names_ascend(names: Sequence[str]) -> bool:
    return all(map(lt, names, islice(names, 1, None)))


def _indices_ascend(indices: Int32Array, starts: Int64Array) -> bool:
    if indices.size < 2:
        return True
    ascends = np.empty(indices.size + 1, dtype=np.bool_)
    np.greater(indices[1:], indices[:-1], out=ascends[1:-1])
    ascends[starts] = True  # a name's first index has no predecessor
    return bool(ascends.all())


def _refuse_repeated_names(entries: _Entries, field: str) -> None:
    if len(set(entries.names)) == len(entries.names):
        return
    seen: set[str] = set()
    for name, offset in zip(entries.names, entries.name_offsets, strict=True):
        if name in seen:
            raise InvalidValueError(f"{field}: name {name!r} is repeated", offset)
        seen.add(name)


def _refuse_repeated_indices(
    entries: _Entries, field: str, indices: Int32Array, starts: Int64Array
) -> None:
    numbers = np.repeat(np.arange(starts.size - 1, dtype=np.int64), np.diff(starts))
    keys = (numbers << 32) + indices
    order = np.argsort(keys, kind="stable")
    ascending = keys[order]
    repeated = order[1:][ascending[1:] == ascending[:-1]]
    if repeated.size:
        _refuse_index(entries, field, int(repeated.min()), starts, "is repeated")


def _refuse_index(
    entries: _Entries, field: str, place: int, starts: Int64Array, complaint: str
) -> None:
    number = int(np.searchsorted(starts, place, side="right")) - 1
    offset = entries.index_offsets[number] + (place - int(starts[number])) * _INDEX_BYTES
    index = INT32.unpack_from(entries.wire_indices, place * _INDEX_BYTES)[0]
    raise InvalidValueError(
        f"{field}: index {index} of {entries.names[number]!r} {complaint}", offset
    )


def _ascending_set(names: list[str], counts: Int64Array, indices: Int32Array) -> ResourceSet:
    if not indices.size:
        return EMPTY
    if not counts.all():
        kept = np.flatnonzero(counts)
        names, counts = [names[number] for number in kept.tolist()], counts[kept]
    starts = np.zeros(counts.size + 1, dtype=np.int64)
    np.cumsum(counts, out=starts[1:])
    return ResourceSet.from_flat(tuple(names), starts, indices)


def _sorted_set(names: list[str], starts: Int64Array, indices: Int32Array) -> ResourceSet:
    order = sorted(range(len(names)), key=names.__getitem__)
    ranks = np.empty(len(names), dtype=np.int64)
    ranks[order] = np.arange(len(names), dtype=np.int64)
    counts = np.diff(starts)
    keys = (np.repeat(ranks, counts) << 32) + indices
    return _ascending_set(
        [names[number] for number in order], counts[order], indices[np.argsort(keys, kind="stable")]
    )
