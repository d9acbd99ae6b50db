"""Decode records of the internal topic into columns, in batches (for Spark's mapInArrow).

Rules of this file: a function takes Arrow batches in the columns of `RAW` and yields Arrow batches.
Every row comes out again, decoded or with a reason, so a bad record costs only itself.

Theory of operation. Almost all records are commits with the same few keys and without metadata. So
each distinct key of a batch is decoded once. NumPy reads the values of the common shapes from
Arrow's buffers in bulk. The codec decodes other shapes row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from attrs import define, field, frozen
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from coopgroup.errors import DecodeError
from coopgroup.pipeline.schemas import LAST_MS, TABLES
from coopgroup.pipeline.topic.codec import (
    GroupMember,
    GroupValue,
    OffsetKey,
    OffsetValue,
    decode_group_value,
    decode_key,
    decode_offset_value,
)
from coopgroup.protocol import decode_kafka_assignment, decode_subscription

__all__ = ["COMMIT_RECORDS", "GROUP_RECORDS", "RAW", "decode_commits", "decode_groups"]

RAW: Final = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("source_partition", IntegerType()),
        StructField("source_offset", LongType()),
        StructField("written_ms", LongType()),
    ]
)
"""A record of the internal topic."""

_PART_BYTES_MAX: Final = 1_000_000
_REJECTION: Final = [
    StructField("part", StringType()),
    StructField("reason", StringType()),
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
]

COMMIT_RECORDS: Final = StructType([*TABLES["commits"].schema.fields, *_REJECTION])
"""Result of `decode_commits`: a commit, or unreadable content with the reason."""

_PARTITIONS: Final = ArrayType(
    StructType(
        [StructField("topic", StringType()), StructField("partitions", ArrayType(IntegerType()))]
    )
)
_OF_GENERATION: Final = frozenset(TABLES["generations"].schema.names)
_MEMBER: Final = StructType(
    [
        *(one for one in TABLES["members"].schema.fields if one.name not in _OF_GENERATION),
        StructField("assigned", _PARTITIONS),
    ]
)
_COMPLAINT: Final = StructType(_REJECTION[:2])

GROUP_RECORDS: Final = StructType(
    [
        *TABLES["generations"].schema.fields,
        StructField("members", ArrayType(_MEMBER)),
        StructField("rejections", ArrayType(_COMPLAINT)),
        *_REJECTION[2:],
    ]
)
"""Result of `decode_groups`: a generation, and the unreadable part of the record."""

_CACHED_MAX: Final = 4_096
_CONSUMER: Final = "consumer"
_NO_TIME: Final = "time: not ms since 1970"
_BytesArray = npt.NDArray[np.uint8]
_BoolArray = npt.NDArray[np.bool_]
_Int64Array = npt.NDArray[np.int64]


# --- commits --------------------------------------------------------------------------------------


def decode_commits(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Decode records whose keys have version 0 or 1; rows come out as `COMMIT_RECORDS`."""
    schema = to_arrow_schema(COMMIT_RECORDS)
    for batch in batches:
        keys = _Keys.of(batch.column("key"))
        values = _Values.of(batch.column("value"), batch.column("written_ms"))
        reasons = {**values.reasons, **keys.reasons}
        parts = {**dict.fromkeys(values.reasons, "value"), **dict.fromkeys(keys.reasons, "key")}
        columns = {
            **keys.columns,
            **values.columns,
            "written_ms": batch.column("written_ms"),
            "source_partition": batch.column("source_partition"),
            "source_offset": batch.column("source_offset"),
            "part": _sparse(parts, batch.num_rows, pa.string()),
            "reason": _sparse(reasons, batch.num_rows, pa.string()),
            "key": _picked(batch.column("key"), reasons),
            "value": _picked(batch.column("value"), reasons),
        }
        yield pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


@frozen(kw_only=True, eq=False)
class _Keys:
    """Keys of a batch: three columns, and the reason if a row has no valid key."""

    columns: dict[str, pa.Array]
    reasons: dict[int, str]

    @staticmethod
    def of(raw: pa.Array) -> _Keys:
        encoded = raw.dictionary_encode()
        decoded = [_commit_key(key) for key in encoded.dictionary.to_pylist()]
        bad = {number: one for number, one in enumerate(decoded) if isinstance(one, str)}
        good = [None if isinstance(one, str) else one for one in decoded]
        columns = {
            name: pa.array([one and getattr(one, name) for one in good], kind).take(encoded.indices)
            for name, kind in (
                ("group", pa.string()),
                ("topic", pa.string()),
                ("partition", pa.int32()),
            )
        }
        reasons = {}
        if bad:
            for row, number in enumerate(encoded.indices.to_pylist()):
                if number in bad:
                    reasons[row] = bad[number]
        return _Keys(columns=columns, reasons=reasons)


def _commit_key(raw: bytes) -> OffsetKey | str:
    """Return a key, or the reason why it is invalid."""
    try:
        key = decode_key(raw)
    except DecodeError as error:
        return str(error)
    return key if isinstance(key, OffsetKey) else "key version: 2 is of a group, not of a commit"


@define(kw_only=True, eq=False)
class _Values:
    """Values of N rows: columns under construction, and the reason if a row has no valid value."""

    committed: _Int64Array
    leader_epoch: _Int64Array
    at_ms: _Int64Array
    version: _Int64Array
    known: _BoolArray  # whether the row has a readable value
    tombstone: _BoolArray
    metadata: dict[int, str] = field(factory=dict)
    reasons: dict[int, str] = field(factory=dict)

    @staticmethod
    def of(raw: pa.Array, written_ms: pa.Array) -> _Values:
        size = len(raw)
        tombstone = raw.is_null().to_numpy(zero_copy_only=False)
        values = _Values(
            committed=np.zeros(size, dtype=np.int64),
            leader_epoch=np.zeros(size, dtype=np.int64),
            at_ms=np.array(written_ms.to_numpy(zero_copy_only=False), dtype=np.int64),
            version=np.zeros(size, dtype=np.int64),
            known=np.zeros(size, dtype=np.bool_),
            tombstone=tombstone,
        )
        content, starts, lengths = _flat(raw)
        for shape in _SHAPES:
            values._read_shape(shape, content, starts, lengths)
        for row in np.flatnonzero(~(values.known | tombstone)).tolist():
            values._read_one(row, raw[row].as_py())
        for row in np.flatnonzero((values.at_ms < 0) | (values.at_ms > LAST_MS)).tolist():
            values.known[row] = False
            values.at_ms[row] = written_ms[row].as_py()
            values.reasons[row] = _NO_TIME
        return values

    def _read_shape(
        self, shape: _Shape, content: _BytesArray, starts: _Int64Array, lengths: _Int64Array
    ) -> None:
        rows = np.flatnonzero((lengths == shape.size) & ~self.tombstone)
        if not rows.size:
            return
        block = content[starts[rows][:, None] + np.arange(shape.size)]
        for place, expected in shape.constants:
            fits = block[:, place] == expected
            rows, block = rows[fits], block[fits]
        self.version[rows] = shape.version
        self.committed[rows] = _integers(block, 2, ">i8")
        self.leader_epoch[rows] = _integers(block, 10, ">i4")
        self.at_ms[rows] = _integers(block, shape.time_at, ">i8")
        self.known[rows] = True

    def _read_one(self, row: int, raw: bytes) -> None:
        try:
            value: OffsetValue = decode_offset_value(raw)
        except DecodeError as error:
            self.reasons[row] = str(error)
            return
        self.version[row] = value.version
        self.committed[row] = value.committed
        self.leader_epoch[row] = value.leader_epoch
        self.at_ms[row] = value.commit_ms
        self.metadata[row] = value.metadata
        self.known[row] = True

    @property
    def columns(self) -> dict[str, pa.Array]:
        missing = ~self.known
        metadata = np.full(missing.size, "", dtype=object)
        for row, text in self.metadata.items():
            metadata[row] = text
        return {
            "at_ms": pa.array(self.at_ms),
            "committed": pa.array(self.committed, mask=missing),
            "leader_epoch": pa.array(self.leader_epoch.astype(np.int32), mask=missing),
            "metadata": pa.array(metadata, pa.string(), mask=missing),
            "is_tombstone": pa.array(self.tombstone),
            "version": pa.array(self.version.astype(np.int16), mask=missing),
        }


@frozen(kw_only=True)
class _Shape:
    """A value of fixed length: without metadata, in one of the versions that brokers write.

    Attributes:
        version: version of the value.
        size: total number of bytes.
        time_at: position of the commit time.
        constants: positions and bytes that define the shape.
    """

    version: int
    size: int
    time_at: int
    constants: tuple[tuple[int, int], ...]


_SHAPES: Final = (
    # The offset is at 2, the epoch at 10, then an empty STRING (two bytes).
    _Shape(version=3, size=24, time_at=16, constants=((0, 0), (1, 3), (14, 0), (15, 0))),
    # The same with an empty COMPACT_STRING (one byte), and without a tagged field at the end.
    _Shape(version=4, size=24, time_at=15, constants=((0, 0), (1, 4), (14, 1), (23, 0))),
    # The same with one tagged field, the topic id.
    _Shape(
        version=4,
        size=42,
        time_at=15,
        constants=((0, 0), (1, 4), (14, 1), (23, 1), (24, 0), (25, 16)),
    ),
)


def _flat(raw: pa.Array) -> tuple[_BytesArray, _Int64Array, _Int64Array]:
    """Return all bytes of a column, and the begin and length of each row."""
    _, offsets, content = raw.buffers()
    bounds = np.frombuffer(offsets, dtype=np.int32)[raw.offset : raw.offset + len(raw) + 1]
    flat = np.frombuffer(content, dtype=np.uint8) if content else np.zeros(0, dtype=np.uint8)
    starts = bounds[:-1].astype(np.int64)
    return flat, starts, np.diff(bounds).astype(np.int64)


def _integers(block: _BytesArray, first: int, form: str) -> _Int64Array:
    """Return the integers at the same position of every row."""
    kind = np.dtype(form)
    cut = np.ascontiguousarray(block[:, first : first + kind.itemsize])
    return cut.view(kind)[:, 0].astype(np.int64)


def _sparse(values: dict[int, str], size: int, kind: pa.DataType) -> pa.Array:
    if not values:
        return pa.nulls(size, kind)
    return pa.array([values.get(row) for row in range(size)], kind)


def _picked(column: pa.Array, rows: dict[int, str]) -> pa.Array:
    """Return the cells of some rows, null elsewhere."""
    if not rows:
        return pa.nulls(len(column), pa.binary())
    return pa.array(
        [column[row].as_py() if row in rows else None for row in range(len(column))], pa.binary()
    )


# --- groups ---------------------------------------------------------------------------------------


def decode_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Decode all other records; rows come out as `GROUP_RECORDS`."""
    schema = to_arrow_schema(GROUP_RECORDS)
    for batch in batches:
        for part in _parts(batch):
            rows = [_group_row(row) for row in part.to_pylist()]
            yield pa.RecordBatch.from_pylist(rows, schema=schema)


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield a batch in parts of at most `_PART_BYTES_MAX`, or of one record.

    A record of a large group has thousands of members and partitions. Their rows in Python take
    many times the bytes of the record, so a whole batch of them would not fit into memory.
    """
    first, total = 0, 0
    for place, value in enumerate(batch.column("value")):
        size = 0 if value.as_py() is None else len(value.as_py())
        total += size
        if total > _PART_BYTES_MAX and place > first:
            yield batch.slice(first, place - first)
            first, total = place, size
    yield batch.slice(first)


def _group_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return one record as a row; unreadable parts are listed in its rejections."""
    place = {name: row[name] for name in ("source_partition", "source_offset", "written_ms")}
    raw = {"key": row["key"], "value": row["value"]}
    if row["key"] is None:
        return place | raw | _rejected("key", "the record has no key")
    try:
        key = decode_key(row["key"])
    except DecodeError as error:
        return place | raw | _rejected("key", str(error))
    if isinstance(key, OffsetKey):  # `decode_commits` decodes these
        return place | raw | _rejected("key", "a commit, not a group")
    if row["value"] is None:
        return {
            **place,
            "group": key.group,
            "at_ms": row["written_ms"],
            "is_tombstone": True,
            "members": [],
            "rejections": [],
        }
    value = _group_value(row["value"])
    if isinstance(value, str):
        return place | raw | _rejected("value", value)
    read = [_member_row(member, value.protocol_type) for member in value.members]
    rejections = list(chain.from_iterable(complaints for _, complaints in read))
    return {
        **place,
        **(raw if rejections else {}),
        "group": key.group,
        "generation": value.generation,
        "at_ms": value.state_ms if value.state_ms >= 0 else row["written_ms"],
        "protocol_type": value.protocol_type,
        "protocol": value.protocol,
        "leader": value.leader,
        "member_count": len(value.members),
        "is_tombstone": False,
        "version": value.version,
        "members": [member for member, _ in read],
        "rejections": rejections,
    }


def _group_value(raw: bytes) -> GroupValue | str:
    """Return a value, or the reason why it is invalid."""
    try:
        value = decode_group_value(raw)
    except DecodeError as error:
        return str(error)
    return value if value.state_ms <= LAST_MS else _NO_TIME


def _rejected(part: str, reason: str) -> dict[str, Any]:
    return {"members": [], "rejections": [{"part": part, "reason": reason}]}


def _member_row(
    member: GroupMember, protocol_type: str
) -> tuple[dict[str, Any], Sequence[dict[str, str]]]:
    """Return a member, and the reasons why embedded messages could not be read."""
    row: dict[str, Any] = {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "session_timeout_ms": member.session_timeout_ms,
        "rebalance_timeout_ms": member.rebalance_timeout_ms,
    }
    complaints = []
    # Connect and other protocols embed their own messages.
    if protocol_type == _CONSUMER:
        for part, raw, read in (
            ("subscription", member.subscription, _topics),
            ("assignment", member.assignment, _assigned),
        ):
            try:
                row |= read(raw)
            except DecodeError as error:
                complaints.append({"part": part, "reason": f"{member.member_id}: {error}"})
    return row, complaints


def _cached(
    read: Callable[[bytes], dict[str, Any]],
) -> Callable[[bytes], dict[str, Any]]:
    # Members subscribe to the same topics, and keep their partitions from round to round.
    return lru_cache(maxsize=_CACHED_MAX)(read)


@_cached
def _topics(raw: bytes) -> dict[str, Any]:
    return {"topics": list(decode_subscription(raw).topics)}


@_cached
def _assigned(raw: bytes) -> dict[str, Any]:
    # A group that became empty, or is between join and sync, has no assignment yet.
    if not raw:
        return {"assigned": [], "assigned_count": 0}
    assigned = decode_kafka_assignment(raw).assigned
    lists = [
        {"topic": topic, "partitions": indices.tolist()} for topic, indices in assigned.items()
    ]
    return {"assigned": lists, "assigned_count": len(assigned)}
