"""ARRAY of (STRING name, ARRAY of INT32 indices) to a `ResourceSet` and back.

This is where the time goes when a member holds 100,000 partitions, so the two halves differ in
style from the rest of the package. Reading: one tight loop over NAMES only finds where each list of
indices stands; all lists are then joined, converted and checked at once. Writing: all indices are
converted at once and cut up. Positions for error messages are worked out when there is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, islice, pairwise
from operator import lt
from struct import error as StructError  # noqa: N812  (a class, named like one)
from typing import Final, NamedTuple, NoReturn

import numpy as np

from coopgroup.core.model.resource_set import EMPTY, Int32Array, Int64Array, ResourceSet
from coopgroup.core.protocol.reader import (
    INT16,
    INT32,
    NULL,
    ByteReader,
    decoded_string,
    require_count,
    require_names,
)
from coopgroup.core.protocol.recent import RecentlyRead
from coopgroup.core.protocol.writer import all_utf8
from coopgroup.errors import BufferUnderflowError, EncodeError, InvalidValueError

_INDEX_BYTES: Final = 4
_NAME_LENGTH_BYTES: Final = 2
_COUNT_BYTES: Final = 4
_ENTRY_BYTES_MIN: Final = _NAME_LENGTH_BYTES + _COUNT_BYTES  # empty name, no index
_NO_ENTRIES: Final = INT32.pack(0)
_KEY_BITS: Final = 32
_WIRE_INT32: Final = ">i4"
_RECENT: Final = {index_min: RecentlyRead[tuple[ResourceSet, bool]](2**26) for index_min in (0, -1)}
"""Arrays by smallest index allowed: resources, and whether we write them so; 64 MiB at most."""
_NAMES: Final[dict[bytes, str]] = {}
_NAMES_MAX: Final = 2**16
_NAME_BYTES_KEPT: Final = 255  # no topic of Kafka's has a longer name


def read_resources(reader: ByteReader, field: str, *, index_min: int) -> ResourceSet:
    """Read an array that may not be null.

    Raises:
        DecodeError: a count is wrong, a name is no UTF-8 or repeated, an index is too small or
            repeated within its name.
    """
    count = reader.read_count(field, bytes_min=_ENTRY_BYTES_MIN)
    return _resource_set(_read_entries(reader, field, count), index_min)[0]


def read_recent_resources(
    reader: ByteReader, field: str, *, index_min: int, likely_end: int
) -> tuple[ResourceSet, bytes | None]:
    """Read an array that may not be null, and that may have been read lately.

    Returns:
        The resources; and the array's bytes, None where we would write others for these resources.

    Raises:
        DecodeError: as `read_resources`.
    """
    start = reader.offset
    recent = _RECENT.get(index_min)
    if recent is not None:
        section = reader.content[start : max(likely_end, start)]
        found = recent.find(section)
        if found is not None:
            reader.offset = likely_end
            resources, is_ours = found
            return resources, section if is_ours else None
    count = reader.read_count(field, bytes_min=_ENTRY_BYTES_MIN)
    resources, is_ours = _resource_set(_read_entries(reader, field, count), index_min)
    section = reader.content[start : reader.offset]
    if recent is not None:
        recent.keep(section, (resources, is_ours), len(section))
    return resources, section if is_ours else None


def read_nullable_resources(
    reader: ByteReader, field: str, *, index_min: int
) -> ResourceSet | None:
    """Read an array, None for a null one; else as `read_resources`."""
    count = reader.read_nullable_count(field, bytes_min=_ENTRY_BYTES_MIN)
    if not count:
        return None if count is None else EMPTY
    return _resource_set(_read_entries(reader, field, count), index_min)[0]


def packed_resources(resources: ResourceSet, field: str, *, index_min: int) -> bytes:
    """Write an array, names and indices ascending.

    Raises:
        EncodeError: an index is too small, or a name cannot be encoded.
    """
    if not resources:  # most lists of revoked and declined resources
        return _NO_ENTRIES
    indices = resources.flat_indices
    if (least := int(indices.min())) < index_min:
        raise EncodeError(f"{field}: index {least} is less than {index_min}")
    wire_indices = indices.astype(_WIRE_INT32).tobytes()
    bounds = (resources.starts * _INDEX_BYTES).tolist()
    raws = all_utf8(resources.names, field)
    pack_length, pack_count = INT16.pack, INT32.pack
    entries = [
        pack_length(len(raw)) + raw + pack_count((end - start) >> 2) + wire_indices[start:end]
        for raw, (start, end) in zip(raws, pairwise(bounds), strict=True)
    ]
    return pack_count(len(entries)) + b"".join(entries)


def packed_recent_resources(resources: ResourceSet, field: str, *, index_min: int) -> bytes:
    """Write an array and cache it, because a member later claims its assigned resources."""
    section = packed_resources(resources, field, index_min=index_min)
    recent = _RECENT.get(index_min)
    if recent is not None:
        recent.keep(section, (resources, True), len(section))
    return section


def packed_nullable_resources(
    resources: ResourceSet | None, field: str, *, index_min: int
) -> bytes:
    """Write an array, null for None; otherwise as `packed_resources`."""
    if resources is None:
        return INT32.pack(NULL)
    return packed_resources(resources, field, index_min=index_min)


class _Entries(NamedTuple):
    """An array with valid counts; each list has one item per name.

    Attributes:
        offset: position of the first entry.
        wire_indices: all indices one after the other, four bytes each.
    """

    field: str
    offset: int
    names: list[str]
    name_lengths: list[int]
    counts: list[int]
    wire_indices: bytes

    def offset_of(self, number: int) -> int:
        return (
            self.offset
            + number * _ENTRY_BYTES_MIN
            + sum(self.name_lengths[:number])
            + sum(self.counts[:number]) * _INDEX_BYTES
        )


def _read_entries(reader: ByteReader, field: str, count: int) -> _Entries:
    content, first, size = reader.content, reader.offset, len(reader.content)
    require_names(count, field=field, offset=first - INT32.size)
    offset = first
    names: list[str] = []
    name_lengths: list[int] = []
    counts: list[int] = []
    chunks: list[bytes] = []
    known = _NAMES
    unpack_length, unpack_count = INT16.unpack_from, INT32.unpack_from
    try:
        for _ in range(count):
            length = unpack_length(content, offset)[0]
            start = offset + 2
            if not 0 <= length <= size - start:
                break
            offset = start + length
            raw = content[start:offset]
            names.append(known.get(raw) or _known_name(raw))
            index_count = unpack_count(content, offset)[0]
            start = offset + 4
            if not 0 <= index_count <= (size - start) >> 2:
                break
            offset = start + (index_count << 2)
            name_lengths.append(length)
            counts.append(index_count)
            chunks.append(content[start:offset])
    except StructError:
        raise BufferUnderflowError(f"{field}: {size - offset} bytes left", offset) from None
    except UnicodeDecodeError as error:
        decoded_string(error.object, field=f"{field} name", offset=offset - len(error.object))
    if len(counts) < count:
        _refuse_length(content, offset, field, is_count=len(names) > len(counts))
    reader.offset = offset
    return _Entries(field, first, names, name_lengths, counts, b"".join(chunks))


def _known_name(raw: bytes) -> str:
    """Decode and cache a new name: members own parts of the same topics.

    The first round of a leader takes 9 % longer without.
    """
    name = raw.decode()
    if len(raw) <= _NAME_BYTES_KEPT:
        if len(_NAMES) >= _NAMES_MAX:
            _NAMES.clear()
        _NAMES[raw] = name
    return name


def _refuse_length(content: bytes, offset: int, field: str, *, is_count: bool) -> None:
    form = INT32 if is_count else INT16
    require_count(
        form.unpack_from(content, offset)[0],
        bytes_min=_INDEX_BYTES if is_count else 1,
        left=len(content) - offset - form.size,
        field=f"{field} indices" if is_count else f"{field} name",
        offset=offset,
    )


def _resource_set(entries: _Entries, index_min: int) -> tuple[ResourceSet, bool]:
    indices = np.frombuffer(entries.wire_indices, dtype=_WIRE_INT32).astype(np.int32)
    starts = np.array([0, *accumulate(entries.counts)], dtype=np.int64)
    names_ascend = all(map(lt, entries.names, islice(entries.names, 1, None)))
    if not names_ascend:
        _refuse_repeated_names(entries)
    if indices.size and indices.min() < index_min:
        place = int(np.argmax(indices < index_min))
        _refuse_index(entries, starts, place, f"is less than {index_min}")
    if names_ascend and _indices_ascend(indices, starts):
        resources = _ascending_set(entries.names, np.diff(starts), indices)
        return resources, len(resources.names) == len(entries.names)
    return _sorted_set(entries, starts, indices), False


def _indices_ascend(indices: Int32Array, starts: Int64Array) -> bool:
    ascends = np.ones(indices.size + 1, dtype=np.bool_)
    np.greater(indices[1:], indices[:-1], out=ascends[1 : indices.size])
    ascends[starts] = True  # a name's first index has no predecessor
    return bool(ascends.all())


def _refuse_repeated_names(entries: _Entries) -> None:
    names = entries.names
    if len(set(names)) == len(names):
        return
    last_first = reversed(list(enumerate(names)))
    first_number = {name: number for number, name in last_first}
    number = next(number for number, name in enumerate(names) if first_number[name] < number)
    raise InvalidValueError(
        f"{entries.field}: name {names[number]!r} is repeated", entries.offset_of(number)
    )


def _refuse_index(entries: _Entries, starts: Int64Array, place: int, complaint: str) -> NoReturn:
    number = int(np.searchsorted(starts, place, side="right")) - 1
    index = INT32.unpack_from(entries.wire_indices, place * _INDEX_BYTES)[0]
    raise InvalidValueError(
        f"{entries.field}: index {index} of {entries.names[number]!r} {complaint}",
        entries.offset_of(number)
        + _ENTRY_BYTES_MIN
        + entries.name_lengths[number]
        + (place - int(starts[number])) * _INDEX_BYTES,
    )


def _sorted_set(entries: _Entries, starts: Int64Array, indices: Int32Array) -> ResourceSet:
    """Sort entries that another client sent in another order, and refuse repeated ones."""
    name_order = sorted(range(len(entries.names)), key=entries.names.__getitem__)
    ranks = np.empty(len(name_order), dtype=np.int64)
    ranks[name_order] = np.arange(len(name_order), dtype=np.int64)
    counts = np.diff(starts)
    keys = (np.repeat(ranks, counts) << _KEY_BITS) + indices
    order = np.argsort(keys, kind="stable")
    ascending = keys[order]
    repeated = order[1:][ascending[1:] == ascending[:-1]]
    if repeated.size:
        _refuse_index(entries, starts, int(repeated.min()), "is repeated")
    names = [entries.names[number] for number in name_order]
    return _ascending_set(names, counts[name_order], indices[order])


def _ascending_set(names: Sequence[str], counts: Int64Array, indices: Int32Array) -> ResourceSet:
    if not indices.size:
        return EMPTY
    kept = np.flatnonzero(counts)
    if kept.size < len(names):
        names = [names[number] for number in kept.tolist()]
    starts = np.zeros(kept.size + 1, dtype=np.int64)
    np.cumsum(counts[kept], out=starts[1:])
    return ResourceSet.from_flat(tuple(names), starts, indices)
