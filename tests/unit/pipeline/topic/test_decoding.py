"""Columns from records: the fast path agrees with the codec, and every record gives a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema

from coopgroup.errors import DecodeError
from coopgroup.pipeline.schemas import LAST_MS
from coopgroup.pipeline.topic import decoding
from coopgroup.pipeline.topic.codec import (
    GroupKey,
    GroupValue,
    OffsetKey,
    OffsetValue,
    decode_offset_value,
    topic_id_text,
)
from coopgroup.pipeline.topic.decoding import RAW, decode_commits, decode_groups
from tests.support.internal_topic import MEMBER, encode_group_value, encode_key, encode_offset_value

WRITTEN_MS = 1_730_000_000_500
KEY = encode_key(OffsetKey(group="g", topic="orders", partition=3))
GROUP_KEY = encode_key(GroupKey(group="g"))
COMMIT = OffsetValue(committed=42, leader_epoch=5, commit_ms=1_730_000_000_000)
GROUP = GroupValue(
    protocol_type="consumer",
    generation=7,
    protocol="range",
    leader="a-1",
    state_ms=1_730_000_000_001,
    members=(MEMBER,),
)


def batch(records: Sequence[tuple[bytes | None, bytes | None]]) -> pa.RecordBatch:
    names = ("key", "value", "source_partition", "source_offset", "written_ms")
    rows = [(*one, 0, number, WRITTEN_MS) for number, one in enumerate(records)]
    return pa.RecordBatch.from_pylist(
        [dict(zip(names, row, strict=True)) for row in rows], schema=to_arrow_schema(RAW)
    )


def commits(*records: tuple[bytes | None, bytes | None]) -> list[dict[str, Any]]:
    (out,) = decode_commits([batch(records)])
    return list(out.to_pylist())


def groups(*records: tuple[bytes | None, bytes | None]) -> list[dict[str, Any]]:
    (out,) = decode_groups([batch(records)])
    return list(out.to_pylist())


def test_large_groups_are_decoded_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows are the same; a record that is larger than a part is a part of its own."""
    records: list[tuple[bytes | None, bytes | None]] = [
        (encode_key(GroupKey(group=name)), encode_group_value(GROUP)) for name in "abcd"
    ]
    records.insert(2, (encode_key(GroupKey(group="gone")), None))
    whole = groups(*records)
    size = len(records[0][1] or b"")
    for limit, counts in ((size, [1, 2, 1, 1]), (2 * size, [3, 2]), (9 * size, [5])):
        monkeypatch.setattr(decoding, "_PART_BYTES_MAX", limit)
        parts = list(decode_groups([batch(records)]))
        assert [part.num_rows for part in parts] == counts
        assert [row for part in parts for row in part.to_pylist()] == whole
    assert next(decode_groups([batch([])])).num_rows == 0


def test_a_record_of_no_possible_time_is_rejected() -> None:
    absurd = [evolve(COMMIT, commit_ms=at_ms) for at_ms in (-1, LAST_MS + 1, 2**62, LAST_MS)]
    rows = commits(*((KEY, encode_offset_value(one)) for one in absurd))
    reason = "time: not ms since 1970"
    assert [row["reason"] for row in rows] == [reason, reason, reason, None]
    assert [row["at_ms"] for row in rows] == [WRITTEN_MS, WRITTEN_MS, WRITTEN_MS, LAST_MS]
    assert [row["committed"] for row in rows] == [None, None, None, 42]
    value = encode_group_value(evolve(GROUP, state_ms=2**62))
    (row,) = groups((GROUP_KEY, value))
    assert (row["group"], row["value"]) == (None, value)
    assert row["rejections"] == [{"part": "value", "reason": reason}]


def test_bad_records_come_out_with_a_reason_and_their_bytes() -> None:
    good = encode_offset_value(COMMIT)
    rows = commits((KEY, good), (KEY, b"\0\x09"), (b"\0\1\0", good), (KEY, good))
    assert [row["committed"] for row in rows if row["reason"] is None] == [42, 42]
    assert [(row["part"], row["key"], row["value"]) for row in rows if row["reason"]] == [
        ("value", KEY, b"\0\x09"),
        ("key", b"\0\1\0", good),
    ]
    assert "value version: 9 is not known" in str(rows[1]["reason"])


values = st.builds(
    OffsetValue,
    committed=st.integers(0, 2**63 - 1),
    leader_epoch=st.integers(-1, 2**31 - 1),
    metadata=st.sampled_from(["", "", "x", "é" * 90]),
    commit_ms=st.integers(0, LAST_MS),
    topic_id=st.sampled_from([None, UUID(int=1), UUID(int=2**128 - 1)]),
    version=st.integers(0, 4),
).map(encode_offset_value)
damaged = st.tuples(values, st.integers(0, 60), st.integers(0, 255)).map(
    lambda given: given[0][: given[1]] + bytes([given[2]]) + given[0][given[1] + 1 :]
)


READ = ("reason", "committed", "leader_epoch", "metadata", "at_ms", "version", "topic_id")


def one_by_one(raw: bytes) -> dict[str, Any]:
    """Return the codec's result for a value, as the columns of a row."""
    try:
        value = decode_offset_value(raw)
    except DecodeError as error:
        return dict.fromkeys(READ) | {"reason": str(error), "at_ms": WRITTEN_MS}
    if not 0 <= value.commit_ms <= LAST_MS:
        return dict.fromkeys(READ) | {"reason": "time: not ms since 1970", "at_ms": WRITTEN_MS}
    columns = (
        *(value.committed, value.leader_epoch, value.metadata, value.commit_ms, value.version),
        value.topic_id and topic_id_text(value.topic_id.bytes),
    )
    return dict(zip(READ, (None, *columns), strict=True))


@given(st.lists(st.one_of(values, damaged, st.binary(max_size=45)), max_size=20))
def test_the_quick_way_says_what_the_codec_says(raws: list[bytes]) -> None:
    """The fast path decodes common shapes in bulk, and must give the same rows."""
    for raw, row in zip(raws, commits(*((KEY, raw) for raw in raws)), strict=True):
        assert {name: row[name] for name in READ} == one_by_one(raw)


def test_a_member_whose_messages_cannot_be_read_stays_a_member() -> None:
    broken = evolve(GROUP, members=(evolve(MEMBER, assignment=b"\0\0\0\0"),))
    (row,) = groups((GROUP_KEY, encode_group_value(broken)))
    (member,) = row["members"]
    assert (member["topics"], member["assigned"]) == (["orders"], None)
    (rejection,) = row["rejections"]
    assert rejection["part"] == "assignment"
    assert rejection["reason"].startswith("a-1: ")
    assert row["value"] is not None


def test_members_of_other_protocols_are_not_looked_into() -> None:
    """Connect embeds its own messages, which a consumer's decoder cannot read."""
    connect = evolve(GROUP, protocol_type="connect", members=(evolve(MEMBER, assignment=b"\xff"),))
    (row,) = groups((GROUP_KEY, encode_group_value(connect)))
    assert (row["rejections"], row["members"][0]["topics"]) == ([], None)


@pytest.mark.parametrize(
    ("key", "value", "part"),
    [
        (None, b"", "key"),
        (b"\0\3\0\1g", b"\0\0", "key"),
        (b"", b"", "key"),
        (GROUP_KEY, b"\0\x07", "value"),
        (GROUP_KEY, b"", "value"),
    ],
)
def test_what_is_no_group_is_rejected(key: bytes | None, value: bytes, part: str) -> None:
    (row,) = groups((key, value))
    assert row["group"] is None
    assert [one["part"] for one in row["rejections"]] == [part]
    assert (row["key"], row["value"]) == (key, value)
