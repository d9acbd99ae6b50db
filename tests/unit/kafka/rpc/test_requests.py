"""Requests become kafka-python's messages, and its responses become answers."""

from typing import Any
from uuid import UUID

import pytest
from attrs import evolve
from kafka.errors import IncompatibleBrokerVersion
from kafka.protocol.broker_version_data import BrokerVersionData
from kafka.protocol.consumer import group as wire
from kafka.protocol.metadata import find_coordinator as wire_coordinator

from coopgroup.core.model import group_api as api
from coopgroup.kafka.rpc.questions import CommittedOffset, FetchOffsetsAnswer, FetchOffsetsRequest
from coopgroup.kafka.rpc.requests import build_message, read_answer


def protocol(name: str, byte: int) -> dict[str, Any]:
    return {"name": name, "metadata": bytes([byte])}


def assignment(member_id: str, content: bytes) -> dict[str, Any]:
    return {"member_id": member_id, "assignment": content}


JOIN = api.JoinGroupRequest(
    group_id="g",
    member_id="m",
    group_instance_id=None,
    session_timeout_ms=1,
    rebalance_timeout_ms=2,
    protocol_type="consumer",
    protocols=(("first", b"\x01"), ("second", b"\x02")),
    reason="why",
)
SYNC = api.SyncGroupRequest(
    group_id="g",
    generation=3,
    member_id="m",
    group_instance_id=None,
    protocol_type="consumer",
    protocol_name="first",
    assignments=(("m", b"\x03"), ("n", b"")),
)
HEARTBEAT = api.HeartbeatRequest(group_id="g", generation=3, member_id="m", group_instance_id=None)
LEAVE = api.LeaveGroupRequest(group_id="g", member_id="m", group_instance_id=None, reason="why")
COMMIT = api.OffsetCommitRequest(
    group_id="g",
    generation=3,
    member_id="m",
    group_instance_id=None,
    offsets=(("b", 0, 7, -1, ""), ("a", 1, 6, 4, "note"), ("b", 2, 5, -1, "")),
)


TOPIC = "00000000-0000-0000-0000-00000000000a"
BEAT = api.ConsumerBeatRequest(
    group_id="g",
    member_id="m",
    epoch=0,
    rack="a",
    topics=("t",),
    owned=((TOPIC, (0, 2)),),
    rebalance_timeout_ms=9,
    assignor="range",
)
SHORT_BEAT = api.ConsumerBeatRequest(group_id="g", member_id="m", epoch=3)


def static(request: Any) -> Any:  # noqa: ANN401  (one of several kinds)
    return evolve(request, group_instance_id="static")


def over_the_wire(request: api.GroupRequest | FetchOffsetsRequest, version: int) -> dict[str, Any]:
    """Return the fields that a broker reads in a version, decoded by kafka-python."""
    message = build_message(request)
    encoded = message.encode(version=version)
    fields: dict[str, Any] = type(message).decode(encoded, version=version).to_dict(json=False)
    return fields


def committed_offset(
    partition: int, offset: int, leader_epoch: int = -1, metadata: str = ""
) -> dict[str, Any]:
    return {
        "partition_index": partition,
        "committed_offset": offset,
        "committed_leader_epoch": leader_epoch,
        "committed_metadata": metadata,
    }


MEMBER = {"group_id": "g", "member_id": "m"}
STATIC = {**MEMBER, "group_instance_id": "static"}
FIND = api.FindCoordinatorRequest(group_id="g")


@pytest.mark.parametrize(
    ("request_", "version", "fields"),
    [
        (
            static(JOIN),
            9,
            STATIC
            | {"session_timeout_ms": 1, "rebalance_timeout_ms": 2, "protocol_type": "consumer"}
            | {"protocols": [protocol("first", 1), protocol("second", 2)], "reason": "why"},
        ),
        (
            static(SYNC),
            5,
            STATIC
            | {"generation_id": 3, "protocol_type": "consumer", "protocol_name": "first"}
            | {"assignments": [assignment("m", b"\x03"), assignment("n", b"")]},
        ),
        (static(HEARTBEAT), 4, STATIC | {"generation_id": 3}),
        (
            static(LEAVE),
            5,
            {
                "group_id": "g",
                "members": [{"member_id": "m", "group_instance_id": "static", "reason": "why"}],
            },
        ),
        (LEAVE, 2, MEMBER),
        (
            COMMIT,  # sorted by topic
            9,
            MEMBER
            | {"generation_id_or_member_epoch": 3, "group_instance_id": None}
            | {
                "topics": [
                    {"name": "a", "partitions": [committed_offset(1, 6, 4, "note")]},
                    {"name": "b", "partitions": [committed_offset(0, 7), committed_offset(2, 5)]},
                ]
            },
        ),
        (
            static(BEAT),
            1,
            {**MEMBER, "member_epoch": 0, "instance_id": "static", "rack_id": "a"}
            | {"rebalance_timeout_ms": 9, "subscribed_topic_names": ["t"]}
            | {"subscribed_topic_regex": None, "server_assignor": "range"}
            | {"topic_partitions": [{"topic_id": UUID(TOPIC), "partitions": [0, 2]}]},
        ),
        (
            SHORT_BEAT,  # nothing has changed
            1,
            {**MEMBER, "member_epoch": 3, "instance_id": None, "rack_id": None}
            | {"rebalance_timeout_ms": -1, "subscribed_topic_names": None}
            | {"subscribed_topic_regex": None, "server_assignor": None, "topic_partitions": None},
        ),
        (FIND, 6, {"key_type": 0, "coordinator_keys": ["g"]}),
        (FIND, 0, {"key": "g"}),  # a list of keys only from v4 on
    ],
    ids=[
        *("join", "sync", "heartbeat", "leave", "leave-v2", "commit"),
        *("beat", "short-beat", "find", "find-v0"),
    ],
)
def test_request_is_complete(
    request_: api.GroupRequest, version: int, fields: dict[str, Any]
) -> None:
    assert over_the_wire(request_, version) == fields


OFFSETS = FetchOffsetsRequest(
    group_id="g", partitions=(("a", 1), ("b", 0), ("b", 2)), require_stable=True
)
ASKED_TOPICS = [
    {"name": "a", "partition_indexes": [1]},
    {"name": "b", "partition_indexes": [0, 2]},
]


def _offset_fetch_asks_for_one_group_in_every_version(version: int) -> None:
    fields = over_the_wire(OFFSETS, version)
    assert fields.pop("require_stable", None) is (True if version >= 7 else None)
    if version < 8:
        assert fields == {"group_id": "g", "topics": ASKED_TOPICS}
        return
    (group,) = fields["groups"]
    assert (group["group_id"], group["topics"]) == ("g", ASKED_TOPICS)
    assert (group.get("member_id"), group.get("member_epoch", -1)) == (None, -1)


def test_offset_fetch_asks_for_one_group_in_every_version(subtests: pytest.Subtests) -> None:
    for version in range(1, 10):
        with subtests.test(version=version):
            _offset_fetch_asks_for_one_group_in_every_version(version)


@pytest.mark.parametrize(
    ("request_", "known", "expected"),
    [(OFFSETS, (0, 1), 1), (OFFSETS, (1, 8), 8), (OFFSETS, (1, 10), 9), (COMMIT, (2, 10), 9)],
)
def test_requests_about_offsets_speak_versions_with_names(
    request_: Any,  # noqa: ANN401
    known: tuple[int, int],
    expected: int,
) -> None:
    """Offset fetches of v10 and commits of v10 have topic ids instead of names."""
    message = build_message(request_)
    assert BrokerVersionData(api_versions={message.API_KEY: known}).api_version(message) == expected


def _offset_fetch_answer_is_read_in_every_version(version: int) -> None:
    response: Any = wire.OffsetFetchResponse
    topics = response.OffsetFetchResponseTopic
    if version >= 8:
        topics = response.OffsetFetchResponseGroup.OffsetFetchResponseTopics
    partition = getattr(topics, "OffsetFetchResponsePartition" + ("s" if version >= 8 else ""))
    found = partition(
        partition_index=1, committed_offset=7, committed_leader_epoch=3, metadata="note"
    )
    refused = partition(partition_index=2, committed_offset=-1, metadata="", error_code=88)
    given = [topics(name="a", partitions=[found, refused])]
    if version < 8:
        message = response(version=version, topics=given, error_code=0)
    else:
        group = response.OffsetFetchResponseGroup(group_id="g", topics=given)
        message = response(version=version, groups=[group])
    decoded = response.decode(message.encode(version=version), version=version)
    assert read_answer(OFFSETS, decoded) == FetchOffsetsAnswer(
        error_code=0,
        offsets={
            ("a", 1): CommittedOffset(7, 3 if version >= 5 else -1, "note"),
            ("a", 2): CommittedOffset(-1, -1, "", 88),
        },
    )


def test_offset_fetch_answer_is_read_in_every_version(subtests: pytest.Subtests) -> None:
    """Offsets, epochs (v5), metadata and errors by partition; the group's error from v2 on."""
    for version in range(1, 10):
        with subtests.test(version=version):
            _offset_fetch_answer_is_read_in_every_version(version)


@pytest.mark.parametrize(
    ("request_", "version_min"),
    [(JOIN, 5), (SYNC, 3), (HEARTBEAT, 3), (LEAVE, 3), (COMMIT, 7)],
)
def test_negotiation_fails_when_a_static_id_cannot_be_sent(
    request_: api.GroupRequest, version_min: int
) -> None:
    """An old broker must not turn a static member into a dynamic one."""
    message = build_message(static(request_))
    old = BrokerVersionData(api_versions={message.API_KEY: (0, version_min - 1)})
    with pytest.raises(IncompatibleBrokerVersion):
        old.api_version(message)
    assert old.api_version(build_message(request_)) == version_min - 1
    new = BrokerVersionData(api_versions={message.API_KEY: (0, version_min)})
    assert new.api_version(message) == version_min


JOINED: Any = {"generation_id": 4, "protocol_name": "first", "leader": "a", "member_id": "m"}
MEMBER_OF = wire.JoinGroupResponse.JoinGroupResponseMember(
    member_id="a", group_instance_id="i", metadata=b"\1"
)
LEFT = wire.LeaveGroupResponse.MemberResponse
HERE: Any = {"node_id": 1, "host": "h", "port": 2}
NOT_NOW: Any = {"error_code": 15, "error_message": "not now"}


def found(**fields: Any) -> Any:  # noqa: ANN401
    return wire_coordinator.FindCoordinatorResponse(**fields)


def committed(topic: str, *codes: tuple[int, int]) -> Any:  # noqa: ANN401
    kind = wire.OffsetCommitResponse.OffsetCommitResponseTopic
    partition: Any = kind.OffsetCommitResponsePartition
    partitions = [partition(partition_index=one, error_code=code) for one, code in codes]
    return kind(name=topic, partitions=partitions)


@pytest.mark.parametrize(
    ("request_", "response", "answer"),
    [
        (
            FIND,
            found(
                coordinators=[
                    found().Coordinator(key="g", error_code=0, error_message=None, **HERE)
                ]
            ),
            api.FindCoordinatorAnswer(
                error_code=0, error_message="", coordinator=api.Coordinator(**HERE)
            ),
        ),
        (
            FIND,
            found(**NOT_NOW, node_id=-1, host="", port=-1),
            api.FindCoordinatorAnswer(**NOT_NOW, coordinator=None),
        ),
        (
            JOIN,
            wire.JoinGroupResponse(error_code=0, **JOINED, members=[MEMBER_OF]),  # v5
            api.JoinGroupAnswer(
                error_code=0,
                generation=4,
                protocol_name="first",
                leader_id="a",
                member_id="m",
                members=(api.JoinedMember(member_id="a", group_instance_id="i", metadata=b"\1"),),
                skip_assignment=False,
            ),
        ),
        (
            SYNC,
            wire.SyncGroupResponse(error_code=0, assignment=b"\x05"),
            api.SyncGroupAnswer(error_code=0, assignment=b"\x05"),
        ),
        (HEARTBEAT, wire.HeartbeatResponse(error_code=27), api.HeartbeatAnswer(error_code=27)),
        (
            LEAVE,
            wire.LeaveGroupResponse(error_code=16, members=[]),
            api.LeaveGroupAnswer(error_code=16),
        ),
        (
            LEAVE,
            wire.LeaveGroupResponse(error_code=0, members=[LEFT(member_id="m", error_code=25)]),
            api.LeaveGroupAnswer(error_code=25),
        ),
        (
            COMMIT,
            wire.OffsetCommitResponse(
                topics=[committed("b", (2, 22), (0, 0)), committed("a", (1, 3))]
            ),
            api.OffsetCommitAnswer(codes=(("a", 1, 3), ("b", 0, 0), ("b", 2, 22))),
        ),
    ],
    ids=["found", "not-found", "joined", "synced", "alive", "unleft", "unleft-member", "commit"],
)
def test_answer_is_plain_when_read(
    request_: api.GroupRequest,
    response: Any,  # noqa: ANN401
    answer: api.Answer,
) -> None:
    assert read_answer(request_, response) == answer
