"""Records of the internal topic: golden bytes of a real broker, every version, every truncation."""

from __future__ import annotations

from uuid import UUID

import pytest
from attrs import evolve

from coopgroup.errors import DecodeError, EncodeError
from coopgroup.pipeline.internal_topic import (
    GroupKey,
    GroupMember,
    GroupValue,
    OffsetKey,
    OffsetValue,
    decode_group_value,
    decode_key,
    decode_offset_value,
    encode_group_value,
    encode_key,
    encode_offset_value,
)

KEY = OffsetKey(group="billing", topic="orders", partition=3)
COMMIT = OffsetValue(committed=42, leader_epoch=5, metadata="m", commit_ms=1_730_000_000_000)
MEMBER = GroupMember(
    member_id="c1-5c0f",
    instance_id="i-1",
    client_id="c1",
    client_host="/127.0.0.1",
    rebalance_timeout_ms=300_000,
    session_timeout_ms=6_000,
    subscription=b"\x00\x01",
    assignment=b"\x00\x02\x03",
)
GROUP = GroupValue(
    protocol_type="consumer",
    generation=7,
    protocol="range",
    leader="c1-5c0f",
    state_ms=1_730_000_000_001,
    members=(MEMBER, evolve(MEMBER, member_id="c2-77aa", instance_id=None)),
)
# What a version cannot say, it does not bring back.
COMMITS = {
    0: evolve(COMMIT, leader_epoch=-1, version=0),
    1: evolve(COMMIT, leader_epoch=-1, expire_ms=1_730_000_000_009, version=1),
    2: evolve(COMMIT, leader_epoch=-1, version=2),
    3: evolve(COMMIT, version=3),
    4: evolve(COMMIT, topic_id=UUID(int=77), version=4),
}
OLD = tuple(evolve(one, instance_id=None) for one in GROUP.members)
OLDEST = tuple(evolve(one, rebalance_timeout_ms=6_000) for one in OLD)
GROUPS = {
    0: evolve(GROUP, members=OLDEST, state_ms=-1, version=0),
    1: evolve(GROUP, members=OLD, state_ms=-1, version=1),
    2: evolve(GROUP, members=OLD, version=2),
    3: evolve(GROUP, version=3),
    4: GROUP,
}


def test_keys_are_as_kafka_writes_them() -> None:
    """Version, then the classic types: a commit has version 1, a group version 2."""
    commit = "0001 0007 62696c6c696e67 0006 6f7264657273 00000003"
    assert decode_key(bytes.fromhex(commit)) == KEY
    assert encode_key(KEY) == bytes.fromhex(commit)
    group = "0002 0007 62696c6c696e67"
    assert decode_key(bytes.fromhex(group)) == GroupKey(group="billing")
    assert encode_key(GroupKey(group="billing")) == bytes.fromhex(group)
    assert decode_key(encode_key(KEY, version=0)) == KEY


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (
            "0003 0000000000000064 00000000 0000 000001a2039b91fd",
            OffsetValue(committed=100, leader_epoch=0, commit_ms=1_795_356_856_829, version=3),
        ),
        (
            "0004 0000000000000064 00000000 01 000001a2039b91fd 00",
            OffsetValue(committed=100, leader_epoch=0, commit_ms=1_795_356_856_829),
        ),
    ],
)
def test_values_are_as_kafka_writes_them(raw: str, expected: OffsetValue) -> None:
    """A commit without metadata, in the versions of brokers that are in use."""
    assert decode_offset_value(bytes.fromhex(raw)) == expected
    assert encode_offset_value(expected) == bytes.fromhex(raw)


@pytest.mark.parametrize("version", range(5))
def test_commits_of_all_versions_come_back(version: int) -> None:
    """What a version can say is read as it was written."""
    assert decode_offset_value(encode_offset_value(COMMITS[version])) == COMMITS[version]


@pytest.mark.parametrize("version", range(5))
def test_groups_of_all_versions_come_back(version: int) -> None:
    """What a version can say is read as it was written; v0 has one time-out for both."""
    assert decode_group_value(encode_group_value(GROUPS[version])) == GROUPS[version]


def test_lengths_beyond_a_byte_come_back() -> None:
    """Compact lengths take two bytes from 127 on."""
    long = evolve(COMMIT, metadata="x" * 5_000)
    assert decode_offset_value(encode_offset_value(long)) == long
    many = evolve(GROUP, members=(evolve(MEMBER, subscription=b"s" * 40_000),) * 200)
    assert decode_group_value(encode_group_value(many)) == many


@pytest.mark.parametrize("version", range(5))
def test_every_truncation_is_refused(version: int) -> None:
    """Bytes that end too early are no record, wherever they end."""
    commit, group = encode_offset_value(COMMITS[version]), encode_group_value(GROUPS[version])
    for raw, decode in ((commit, decode_offset_value), (group, decode_group_value)):
        for cut in range(len(raw)):
            with pytest.raises(DecodeError):
                decode(raw[:cut])
        with pytest.raises(DecodeError):
            decode(raw + b"\0")


def test_every_truncation_of_a_key_is_refused() -> None:
    """The same for keys."""
    for raw in (encode_key(KEY), encode_key(GroupKey(group="billing"))):
        for cut in range(len(raw)):
            with pytest.raises(DecodeError):
                decode_key(raw[:cut])


@pytest.mark.parametrize("version", [-1, 5, 99])
def test_unknown_versions_are_refused(version: int) -> None:
    """What is not known is not guessed at."""
    raw = version.to_bytes(2, signed=True)
    with pytest.raises(DecodeError, match=f"version: {version} "):
        decode_key(raw + b"\0\0")
    with pytest.raises(DecodeError, match=f"version: {version} "):
        decode_offset_value(raw + encode_offset_value(COMMIT)[2:])
    with pytest.raises(DecodeError, match=f"version: {version} "):
        decode_group_value(raw + encode_group_value(GROUP)[2:])
    with pytest.raises(EncodeError):
        encode_offset_value(evolve(COMMIT, version=version))


def test_tagged_fields_of_newer_brokers_are_skipped() -> None:
    """A flexible version may carry fields that this release does not know."""
    raw = encode_offset_value(evolve(COMMIT, version=4))
    assert raw.endswith(b"\0")
    assert decode_offset_value(raw[:-1] + b"\x01\x07\x02ab") == COMMIT


@pytest.mark.parametrize(
    "raw",
    [
        "ff ff ff ff ff 01",  # a varint that never ends
        "80",  # ends within a varint
        "ff ff ff ff 0f",  # a length of four thousand million
        "00",  # null, where null is not allowed
        "03 ff fe",  # no UTF-8
    ],
)
def test_broken_compact_strings_are_refused(raw: str) -> None:
    """No length is believed before it is checked."""
    head = encode_offset_value(evolve(COMMIT, metadata=""))[:14]
    with pytest.raises(DecodeError):
        decode_offset_value(head + bytes.fromhex(raw) + bytes(9))
