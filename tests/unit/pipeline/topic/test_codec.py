"""Records of the internal topic: golden bytes of a real broker, all versions, all truncations."""

from __future__ import annotations

import json
from base64 import b64decode, urlsafe_b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from attrs import evolve

from coopgroup.errors import DecodeError
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


def vectors(kind: str) -> list[Any]:
    """Return version, Kafka's own JSON and Kafka's bytes of each vector."""
    return [
        pytest.param(row["version"], row["says"], bytes.fromhex(row["hex"]), id=row["name"])
        for row in json.loads((VECTORS / "java.json").read_text())["vectors"]
        if row["kind"] == kind
    ]


def topic_id(said: str | None) -> UUID | None:
    """Return an id in Kafka's spelling: URL-safe base 64 without padding; zero means null."""
    found = UUID(bytes=urlsafe_b64decode(f"{said}==")) if said is not None else UUID(int=0)
    return found if found.int else None


@pytest.mark.parametrize(
    ("version", "says", "content"), [*vectors("offset_key"), *vectors("group_key")]
)
def test_keys_are_as_kafka_writes_them(version: int, says: dict[str, Any], content: bytes) -> None:
    key = OffsetKey(**says) if "topic" in says else GroupKey(**says)
    assert decode_key(content) == key
    assert encode_key(key, version=version) == content


@pytest.mark.parametrize(("version", "says", "content"), vectors("offset_value"))
def test_commits_are_as_kafka_writes_them(
    version: int, says: dict[str, Any], content: bytes
) -> None:
    expected = OffsetValue(
        committed=says["offset"],
        leader_epoch=says.get("leaderEpoch", -1),
        metadata=says["metadata"],
        commit_ms=says["commitTimestamp"],
        expire_ms=says.get("expireTimestamp", -1),
        topic_id=topic_id(says.get("topicId")),
        version=version,
    )
    assert decode_offset_value(content) == expected
    assert encode_offset_value(expected) == content


@pytest.mark.parametrize(("version", "says", "content"), vectors("group_value"))
def test_groups_are_as_kafka_writes_them(
    version: int, says: dict[str, Any], content: bytes
) -> None:
    """v0 has one time-out for the session and the rebalance."""
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
        version=version,
    )
    assert decode_group_value(content) == expected
    assert encode_group_value(expected) == content


WRITTEN: list[tuple[bytes, Callable[[bytes], object]]] = [
    (encode_key(KEY), decode_key),
    (encode_key(GroupKey(group="billing")), decode_key),
    (encode_offset_value(evolve(COMMIT, topic_id=UUID(int=77))), decode_offset_value),
    *((encode_offset_value(evolve(COMMIT, version=one)), decode_offset_value) for one in range(5)),
    *((encode_group_value(evolve(GROUP, version=one)), decode_group_value) for one in range(5)),
]


@pytest.mark.parametrize(("raw", "decode"), WRITTEN)
def test_every_truncation_is_refused(raw: bytes, decode: Callable[[bytes], object]) -> None:
    for cut in range(len(raw)):
        with pytest.raises(DecodeError):
            decode(raw[:cut])
    if decode is not decode_key:
        with pytest.raises(DecodeError):
            decode(raw + b"\0")


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
