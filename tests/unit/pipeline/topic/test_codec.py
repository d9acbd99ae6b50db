"""Records of the internal topic: golden bytes of a real broker, all versions, all truncations."""

from __future__ import annotations

import json
from base64 import b64decode, urlsafe_b64decode
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from attrs import evolve, frozen

from coopgroup.errors import DecodeError, EncodeError
from coopgroup.pipeline.topic.codec import (
    GroupKey,
    GroupMember,
    GroupValue,
    OffsetKey,
    OffsetValue,
    decode_group_value,
    decode_key,
    decode_offset_value,
)
from tests.support.internal_topic import encode_group_value, encode_key, encode_offset_value

VECTORS = Path(__file__).resolve().parents[4] / "protocol" / "vectors" / "internal_topic"
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
# A version brings back only the fields that it has.
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


@frozen(kw_only=True)
class Golden:
    """Bytes that Kafka wrote.

    Attributes:
        name: unique within its kind.
        says: the output of Kafka's own JSON converter for the bytes.
    """

    name: str
    version: int
    says: dict[str, Any]
    content: bytes

    def __str__(self) -> str:
        return self.name


def vectors(kind: str) -> list[Golden]:
    return [
        Golden(
            name=row["name"],
            version=row["version"],
            says=row["says"],
            content=bytes.fromhex(row["hex"]),
        )
        for row in json.loads((VECTORS / "java.json").read_text())["vectors"]
        if row["kind"] == kind
    ]


def topic_id(said: str | None) -> UUID | None:
    """Return an id in Kafka's spelling: URL-safe base 64 without padding; zero means null."""
    found = UUID(bytes=urlsafe_b64decode(f"{said}==")) if said is not None else UUID(int=0)
    return found if found.int else None


def test_keys_are_as_kafka_writes_them() -> None:
    for one in vectors("offset_key"):
        assert decode_key(one.content) == OffsetKey(**one.says)
        assert encode_key(OffsetKey(**one.says), version=one.version) == one.content
    for one in vectors("group_key"):
        assert decode_key(one.content) == GroupKey(**one.says)
        assert encode_key(GroupKey(**one.says)) == one.content


@pytest.mark.parametrize("one", vectors("offset_value"), ids=str)
def test_commits_are_as_kafka_writes_them(one: Golden) -> None:
    says = one.says
    expected = OffsetValue(
        committed=says["offset"],
        leader_epoch=says.get("leaderEpoch", -1),
        metadata=says["metadata"],
        commit_ms=says["commitTimestamp"],
        expire_ms=says.get("expireTimestamp", -1),
        topic_id=topic_id(says.get("topicId")),
        version=one.version,
    )
    assert decode_offset_value(one.content) == expected
    assert encode_offset_value(expected) == one.content


@pytest.mark.parametrize("one", vectors("group_value"), ids=str)
def test_groups_are_as_kafka_writes_them(one: Golden) -> None:
    """v0 has one time-out for the session and the rebalance."""
    says = one.says
    members = tuple(
        GroupMember(
            member_id=member["memberId"],
            instance_id=member.get("groupInstanceId"),
            client_id=member["clientId"],
            client_host=member["clientHost"],
            rebalance_timeout_ms=member.get("rebalanceTimeout", member["sessionTimeout"]),
            session_timeout_ms=member["sessionTimeout"],
            subscription=b64decode(member["subscription"]),
            assignment=b64decode(member["assignment"]),
        )
        for member in says["members"]
    )
    expected = GroupValue(
        protocol_type=says["protocolType"],
        generation=says["generation"],
        protocol=says["protocol"],
        leader=says["leader"],
        state_ms=says.get("currentStateTimestamp", -1),
        members=members,
        version=one.version,
    )
    assert decode_group_value(one.content) == expected
    assert encode_group_value(expected) == one.content


def test_lengths_beyond_a_byte_come_back() -> None:
    """Compact lengths take two bytes from 127 on."""
    long = evolve(COMMIT, metadata="x" * 5_000)
    assert decode_offset_value(encode_offset_value(long)) == long
    many = evolve(GROUP, members=(evolve(MEMBER, subscription=b"s" * 40_000),) * 200)
    assert decode_group_value(encode_group_value(many)) == many


@pytest.mark.parametrize("version", range(5))
def test_every_truncation_is_refused(version: int) -> None:
    commit, group = encode_offset_value(COMMITS[version]), encode_group_value(GROUPS[version])
    for raw, decode in ((commit, decode_offset_value), (group, decode_group_value)):
        for cut in range(len(raw)):
            with pytest.raises(DecodeError):
                decode(raw[:cut])
        with pytest.raises(DecodeError):
            decode(raw + b"\0")


def test_every_truncation_of_a_key_is_refused() -> None:
    for raw in (encode_key(KEY), encode_key(GroupKey(group="billing"))):
        for cut in range(len(raw)):
            with pytest.raises(DecodeError):
                decode_key(raw[:cut])


@pytest.mark.parametrize("version", [-1, 5, 99])
def test_unknown_versions_are_refused(version: int) -> None:
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
    raw = encode_offset_value(evolve(COMMIT, version=4))
    assert raw.endswith(b"\0")
    assert decode_offset_value(raw[:-1] + b"\x01\x07\x02ab") == COMMIT
    with pytest.raises(DecodeError, match="topic_id: length 2"):
        decode_offset_value(raw[:-1] + b"\x01\x00\x02ab")


@pytest.mark.parametrize(
    "raw",
    [
        "ff ff ff ff ff 01",  # an endless varint
        "80",  # ends within a varint
        "ff ff ff ff 0f",  # a length of four thousand million
        "00",  # null for a non-nullable field
        "03 ff fe",  # invalid UTF-8
    ],
)
def test_broken_compact_strings_are_refused(raw: str) -> None:
    head = encode_offset_value(evolve(COMMIT, metadata=""))[:14]
    with pytest.raises(DecodeError):
        decode_offset_value(head + bytes.fromhex(raw) + bytes(9))
