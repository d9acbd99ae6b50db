"""Decode records of the internal topic into columns, in batches (for Spark's mapInArrow).

Rules of this file: a function takes Arrow batches in the columns of `RAW` and yields Arrow batches.
Every row comes out again, decoded or with a reason, so a bad record costs only itself.

Theory of operation. Almost all records are commits with the same few keys and without metadata. So
each distinct key of a batch is decoded once. NumPy reads the values of the common shapes from
Arrow's buffers in bulk. The codec decodes other shapes row by row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from attrs import frozen
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
    ConsumerKey,
    ConsumerKind,
    ConsumerValue,
    GroupKey,
    GroupMember,
    GroupValue,
    OffsetKey,
    TopicPartitions,
    decode_consumer_value,
    decode_group_value,
    decode_key,
    decode_offset_value,
    topic_id_text,
)
from coopgroup.protocol import decode_kafka_assignment, decode_subscription

__all__ = [
    "COMMIT_RECORDS",
    "CONSUMER_RECORDS",
    "GROUP_RECORDS",
    "RAW",
    "decode_commits",
    "decode_consumers",
    "decode_groups",
]

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

CONSUMER_RECORDS: Final = StructType([*TABLES["consumer_records"].schema.fields, *_REJECTION])
"""Result of `decode_consumers`: a record, or unreadable content with the reason."""

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
_MEMBER_COLUMNS: Final = (
    *("member_id", "instance_id", "client_id", "client_host"),
    *("session_timeout_ms", "rebalance_timeout_ms"),
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
_TOPIC_ID_BYTES: Final = 16
_NO_TIME: Final = "time: not ms since 1970"
_BytesArray = npt.NDArray[np.uint8]
_Int64Array = npt.NDArray[np.int64]
_Columns = dict[str, npt.NDArray[Any]]

_VALUE_COLUMNS: Final = {
    "committed": np.int64,
    "leader_epoch": np.int32,
    "metadata": np.object_,
    "at_ms": np.int64,
    "version": np.int16,
    "topic_id": np.object_,
    "is_read": np.bool_,
}
"""Columns of values under construction; `is_read` is whether a row has a valid value."""


# --- commits --------------------------------------------------------------------------------------


def decode_commits(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Decode records whose keys have version 0 or 1; rows come out as `COMMIT_RECORDS`."""
    schema = to_arrow_schema(COMMIT_RECORDS)
    for batch in batches:
        keys, wrong_keys = _commit_keys(batch.column("key"))
        values, wrong_values = _commit_values(batch.column("value"), batch.column("written_ms"))
        wrong = {row: ("value", reason) for row, reason in wrong_values.items()}
        wrong |= {row: ("key", reason) for row, reason in wrong_keys.items()}
        columns = {
            **{name: batch.column(name) for name in RAW.names[2:]},
            **keys,
            **values,
            **_rejections(batch, wrong),
        }
        yield pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def _commit_keys(raw: pa.Array) -> tuple[dict[str, pa.Array], dict[int, str]]:
    """Return the columns of keys, and the reason for each row without a valid key."""
    encoded = raw.dictionary_encode()
    decoded = [_commit_key(key) for key in encoded.dictionary.to_pylist()]
    bad = {number: one for number, one in enumerate(decoded) if isinstance(one, str)}
    good = [None if isinstance(one, str) else one for one in decoded]
    kinds = {"group": pa.string(), "topic": pa.string(), "partition": pa.int32()}
    columns = {
        name: pa.array([one and getattr(one, name) for one in good], kind).take(encoded.indices)
        for name, kind in kinds.items()
    }
    numbers = encoded.indices.to_pylist() if bad else []
    return columns, {row: bad[number] for row, number in enumerate(numbers) if number in bad}


def _rejections(batch: pa.RecordBatch, wrong: dict[int, tuple[str, str]]) -> dict[str, pa.Array]:
    """Return the columns of `_REJECTION`: part and reason of some rows, and their bytes."""
    kinds = {"part": pa.string(), "reason": pa.string(), "key": pa.binary(), "value": pa.binary()}
    if not wrong:
        return {name: pa.nulls(batch.num_rows, kind) for name, kind in kinds.items()}
    keys, values = batch.column("key"), batch.column("value")
    rows = [
        (*wrong[row], keys[row].as_py(), values[row].as_py()) if row in wrong else (None,) * 4
        for row in range(batch.num_rows)
    ]
    columns = zip(*rows, strict=True)
    return {
        name: pa.array(column, kind)
        for (name, kind), column in zip(kinds.items(), columns, strict=True)
    }


def _commit_key(raw: bytes) -> OffsetKey | str:
    """Return a key, or the reason why it is invalid."""
    try:
        key = decode_key(raw)
    except DecodeError as error:
        return str(error)
    return key if isinstance(key, OffsetKey) else "key version: 2 is of a group, not of a commit"


def _commit_values(
    raw: pa.Array, written_ms: pa.Array
) -> tuple[dict[str, pa.Array], dict[int, str]]:
    """Return the columns of values, and the reason for each row without a valid value."""
    values: _Columns = {name: np.zeros(len(raw), kind) for name, kind in _VALUE_COLUMNS.items()}
    values["at_ms"][:] = written_ms.to_numpy(zero_copy_only=False)
    values["metadata"][:] = ""
    values["topic_id"][:] = None
    is_read, is_tombstone = values["is_read"], raw.is_null().to_numpy(zero_copy_only=False)
    content, starts, lengths = _flat(raw)
    for shape in _SHAPES:
        rows = np.flatnonzero((lengths == shape.size) & ~is_tombstone)
        if rows.size:
            shape.read(content[starts[rows][:, None] + np.arange(shape.size)], rows, values)
    reasons: dict[int, str] = {}
    for row in np.flatnonzero(~(is_read | is_tombstone)).tolist():
        try:
            one = decode_offset_value(raw[row].as_py())
        except DecodeError as error:
            reasons[row] = str(error)
            continue
        topic_id = one.topic_id and topic_id_text(one.topic_id.bytes)
        found = (
            *(one.committed, one.leader_epoch, one.metadata, one.commit_ms, one.version),
            *(topic_id, True),
        )
        for name, value in zip(_VALUE_COLUMNS, found, strict=True):
            values[name][row] = value
    for row in np.flatnonzero((values["at_ms"] < 0) | (values["at_ms"] > LAST_MS)).tolist():
        is_read[row] = False
        values["at_ms"][row] = written_ms[row].as_py()
        reasons[row] = _NO_TIME
    columns = {
        name: pa.array(values[name], kind, mask=~is_read)
        for name, kind in (
            ("committed", pa.int64()),
            ("leader_epoch", pa.int32()),
            ("metadata", pa.string()),
            ("version", pa.int16()),
            ("topic_id", pa.string()),
        )
    }
    always = {"at_ms": pa.array(values["at_ms"]), "is_tombstone": pa.array(is_tombstone)}
    return columns | always, reasons


@frozen(kw_only=True)
class _Shape:
    """A value of fixed length: without metadata, in one of the versions that brokers write.

    Attributes:
        version: version of the value.
        size: total number of bytes.
        time_at: position of the commit time.
        constants: positions and bytes that define the shape.
        topic_id_at: position of the topic's id; `None` without one.
    """

    version: int
    size: int
    time_at: int
    constants: tuple[tuple[int, int], ...]
    topic_id_at: int | None = None

    def read(self, block: _BytesArray, rows: _Int64Array, values: _Columns) -> None:
        """Read the rows that have this shape.

        Args:
            block: (N, size) bytes of values of this size.
            rows: (N,) their rows.
            values: columns of `_VALUE_COLUMNS` to be filled.
        """
        for place, expected in self.constants:
            fits = block[:, place] == expected
            rows, block = rows[fits], block[fits]
        values["version"][rows] = self.version
        values["committed"][rows] = _integers(block, 2, ">i8")
        values["leader_epoch"][rows] = _integers(block, 10, ">i4")
        values["at_ms"][rows] = _integers(block, self.time_at, ">i8")
        if self.topic_id_at is not None:
            values["topic_id"][rows] = _topic_ids(block, self.topic_id_at)
        values["is_read"][rows] = True


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
        topic_id_at=26,
    ),
)


def _flat(raw: pa.Array) -> tuple[_BytesArray, _Int64Array, _Int64Array]:
    """Return all bytes of a column, and the begin and length of each row."""
    _, offsets, content = raw.buffers()
    bounds = np.frombuffer(offsets, dtype=np.int32)[raw.offset : raw.offset + len(raw) + 1]
    flat = np.frombuffer(content, dtype=np.uint8) if content else np.zeros(0, dtype=np.uint8)
    starts = bounds[:-1].astype(np.int64)
    return flat, starts, np.diff(bounds).astype(np.int64)


def _topic_ids(block: _BytesArray, first: int) -> npt.NDArray[Any]:
    """Return the ids at the same position of every row; there are few different ones."""
    cut = np.ascontiguousarray(block[:, first : first + _TOPIC_ID_BYTES])
    ids, places = np.unique(cut, axis=0, return_inverse=True)
    texts = np.array([topic_id_text(one.tobytes()) for one in ids], dtype=np.object_)
    return texts[places.reshape(-1)]


def _integers(block: _BytesArray, first: int, form: str) -> npt.NDArray[Any]:
    """Return the integers at the same position of every row."""
    kind = np.dtype(form)
    cut = np.ascontiguousarray(block[:, first : first + kind.itemsize])
    return cut.view(kind)[:, 0]


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
    if not isinstance(key, GroupKey):  # other functions decode these
        return place | raw | _rejected("key", "not of a classic group")
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
    rejections: list[dict[str, str]] = []
    members = [_member_row(one, value.protocol_type, rejections) for one in value.members]
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
        "members": members,
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
    member: GroupMember, protocol_type: str, rejections: list[dict[str, str]]
) -> dict[str, Any]:
    """Return a member; an embedded message that cannot be read is added to the rejections."""
    row = {name: getattr(member, name) for name in _MEMBER_COLUMNS}
    if protocol_type != _CONSUMER:  # Connect and other protocols embed their own messages
        return row
    for part, read in (("subscription", _topics), ("assignment", _assigned)):
        try:
            row |= read(getattr(member, part))
        except DecodeError as error:
            rejections.append({"part": part, "reason": f"{member.member_id}: {error}"})
    return row


# Members subscribe to the same topics, and keep their partitions from round to round.
@lru_cache(maxsize=_CACHED_MAX)
def _topics(raw: bytes) -> dict[str, Any]:
    return {"topics": list(decode_subscription(raw).topics)}


@lru_cache(maxsize=_CACHED_MAX)
def _assigned(raw: bytes) -> dict[str, Any]:
    # A group that became empty, or is between join and sync, has no assignment yet.
    if not raw:
        return {"assigned": [], "assigned_count": 0}
    assigned = decode_kafka_assignment(raw).assigned
    lists = [
        {"topic": topic, "partitions": indices.tolist()} for topic, indices in assigned.items()
    ]
    return {"assigned": lists, "assigned_count": len(assigned)}


# --- groups of KIP-848 ----------------------------------------------------------------------------

_CONSUMER_COLUMNS: Final = (
    *("epoch", "instance_id", "client_id", "client_host"),
    *("regex", "session_timeout_ms", "rebalance_timeout_ms", "is_classic"),
)


def decode_consumers(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Decode records of KIP-848 groups; rows come out as `CONSUMER_RECORDS`."""
    schema = to_arrow_schema(CONSUMER_RECORDS)
    for batch in batches:
        for part in _parts(batch):
            rows = [_consumer_row(row) for row in part.to_pylist()]
            yield pa.RecordBatch.from_pylist(rows, schema=schema)


def _consumer_row(row: dict[str, Any]) -> dict[str, Any]:
    place = {
        "source_partition": row["source_partition"],
        "source_offset": row["source_offset"],
        "at_ms": row["written_ms"],
    }
    part = "key"
    try:
        key = decode_key(row["key"])
        if not isinstance(key, ConsumerKey):
            return place | {"part": part, "reason": "not of a KIP-848 group", **_bytes_of(row)}
        place |= {"group": key.group, "kind": key.kind.name.lower(), "name": key.name}
        if row["value"] is None:
            return place | {"is_tombstone": True}
        part = "value"
        value = decode_consumer_value(key.kind, row["value"])
    except DecodeError as error:
        return place | {"part": part, "reason": str(error), **_bytes_of(row)}
    return place | {"is_tombstone": False} | _columns_of(key.kind, value)


def _columns_of(kind: ConsumerKind, value: ConsumerValue) -> dict[str, Any]:
    """Return the columns of a value; those that its kind lacks are null."""
    of_member = {name: getattr(value, name) for name in _CONSUMER_COLUMNS}
    return {
        **(of_member if kind is ConsumerKind.MEMBER else {"epoch": value.epoch}),
        "topics": list(value.topics),
        "names": [{"topic_id": topic_id, "topic": topic} for topic_id, topic in value.names],
        "partitions": _partitions_of(value.partitions),
        "revoking": _partitions_of(value.revoking),
    }


def _partitions_of(topics: tuple[TopicPartitions, ...]) -> list[dict[str, Any]]:
    return [{"topic_id": one.topic_id, "partitions": list(one.partitions)} for one in topics]


def _bytes_of(row: dict[str, Any]) -> dict[str, Any]:
    return {"key": row["key"], "value": row["value"]}
