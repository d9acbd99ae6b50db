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
    ConsumerKey,
    ConsumerKind,
    ConsumerValue,
    GroupKey,
    GroupMember,
    GroupValue,
    OffsetKey,
    OffsetValue,
    TopicPartitions,
    decode_consumer_value,
    decode_group_value,
    decode_key,
    decode_offset_value,
)
from tests.support.internal_topic import (
    encode_consumer_value,
    encode_group_value,
    encode_key,
    encode_offset_value,
)

VECTORS = Path(__file__).resolve().parents[4] / "protocol" / "vectors" / "internal_topic"
ALL_VECTORS = json.loads((VECTORS / "java.json").read_text())["vectors"]
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


def vectors(kind: str) -> list[tuple[int, Any, bytes]]:
    """Return version, Kafka's own JSON and Kafka's bytes of each vector."""
    return [
        (row["version"], row["says"], bytes.fromhex(row["hex"]))
        for row in ALL_VECTORS
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


def _commits_are_as_kafka_writes_them(version: int, says: dict[str, Any], content: bytes) -> None:
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


def test_commits_are_as_kafka_writes_them(subtests: pytest.Subtests) -> None:
    for version, says, content in vectors("offset_value"):
        with subtests.test(version=version, says=says):
            _commits_are_as_kafka_writes_them(version, says, content)


def _groups_are_as_kafka_writes_them(version: int, says: dict[str, Any], content: bytes) -> None:
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


def test_groups_are_as_kafka_writes_them(subtests: pytest.Subtests) -> None:
    """v0 has one time-out for the session and the rebalance."""
    for version, says, content in vectors("group_value"):
        with subtests.test(version=version, says=says):
            _groups_are_as_kafka_writes_them(version, says, content)


def test_keys_of_kip_848_are_as_kafka_writes_them(subtests: pytest.Subtests) -> None:
    for version, says, content in vectors("consumer_key"):
        with subtests.test(version=version, says=says):
            name = says.get("memberId", says.get("regularExpression", ""))
            expected = ConsumerKey(group=says["groupId"], kind=ConsumerKind(version), name=name)
            assert decode_key(content) == expected
            assert encode_key(expected) == content


@pytest.mark.parametrize(
    ("kind", "says", "content"),
    [
        pytest.param(ConsumerKind[row["name"].upper()], row["says"], bytes.fromhex(row["hex"]))
        for row in ALL_VECTORS
        if row["kind"] == "consumer_value"
    ],
)
def test_values_of_kip_848_are_as_kafka_writes_them(
    kind: ConsumerKind, says: dict[str, Any], content: bytes
) -> None:
    """Also with the tagged fields that releases after 4.0 add."""

    def partitions(name: str) -> tuple[TopicPartitions, ...]:
        return tuple(
            TopicPartitions(topic_id=one["topicId"], partitions=tuple(one["partitions"]))
            for one in says.get(name, ())
        )

    epochs = (says.get(name) for name in ("epoch", "assignmentEpoch", "memberEpoch"))
    topics, is_names = says.get("topics", ()), kind is ConsumerKind.TOPICS
    expected = ConsumerValue(
        epoch=next((one for one in epochs if one is not None), None),
        names=tuple((one["topicId"], one["topicName"]) for one in topics if is_names),
        instance_id=says.get("instanceId") or None,
        client_id=says.get("clientId", ""),
        client_host=says.get("clientHost", ""),
        topics=tuple(says.get("subscribedTopicNames", () if is_names else topics)),
        regex=says.get("subscribedTopicRegex") or None,
        rebalance_timeout_ms=says.get("rebalanceTimeoutMs", -1),
        is_classic="classicMemberMetadata" in says,
        session_timeout_ms=says.get("classicMemberMetadata", {}).get("sessionTimeoutMs"),
        partitions=partitions("topicPartitions") or partitions("assignedPartitions"),
        revoking=partitions("partitionsPendingRevocation"),
    )
    assert decode_consumer_value(kind, content) == expected
    assert decode_consumer_value(kind, encode_consumer_value(kind, expected)) == expected
    for cut in range(len(content)):
        with pytest.raises(DecodeError):
            decode_consumer_value(kind, content[:cut])
    with pytest.raises(DecodeError):
        decode_consumer_value(kind, content + b"\0")


def test_a_member_whose_classic_metadata_is_null_is_none() -> None:
    """So Kafka 4.3 writes all members that use the consumer protocol."""
    content = next(
        bytes.fromhex(row["hex"])
        for row in ALL_VECTORS
        if (row["kind"], row["name"]) == ("consumer_value", "member")
    )
    assert content.endswith(b"\0")
    plain = decode_consumer_value(ConsumerKind.MEMBER, content)
    null = decode_consumer_value(ConsumerKind.MEMBER, content[:-1] + b"\x01\x00\x01\xff")
    assert null == plain
    assert (null.is_classic, null.session_timeout_ms) == (False, None)


@pytest.mark.parametrize(
    ("version", "said"), [(9, "share"), (15, "share"), (17, "streams"), (40, "streams")]
)
def test_keys_of_groups_that_are_not_read_are_named(version: int, said: str) -> None:
    with pytest.raises(DecodeError, match=f"key version: {version} is of a {said} group, not read"):
        decode_key(bytes([0, version, 0, 1]) + b"g")


WRITTEN: list[tuple[bytes, Callable[[bytes], object]]] = [
    (encode_key(KEY), decode_key),
    (encode_key(GroupKey(group="billing")), decode_key),
    (encode_offset_value(evolve(COMMIT, topic_id=UUID(int=77))), decode_offset_value),
    *((encode_offset_value(evolve(COMMIT, version=one)), decode_offset_value) for one in range(5)),
    *((encode_group_value(evolve(GROUP, version=one)), decode_group_value) for one in range(5)),
]


def test_every_truncation_is_refused(subtests: pytest.Subtests) -> None:
    for raw, decode in WRITTEN:
        with subtests.test(raw=raw):
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
