"""kafka-python's messages for our requests, and our answers from its responses.

Only this file builds or reads kafka-python's messages; no message leaves this file. A request does
not name a version: the connection negotiates the version. A field that the negotiated version lacks
is dropped if it is harmless (a reason). It is refused if dropping it would do harm: without its
group instance id, a static member would silently become a dynamic one.

The answers carry the broker's error codes. The table of the member's state machine decides what a
code means to a member.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import groupby
from typing import Any, Final, cast
from uuid import UUID

from kafka.protocol.admin.groups import DescribeGroupsRequest
from kafka.protocol.consumer import group as wire
from kafka.protocol.metadata import find_coordinator as wire_coordinator

from coopgroup.core.model.group_api import (
    ConsumerBeatAnswer,
    ConsumerBeatRequest,
    Coordinator,
    FindCoordinatorAnswer,
    FindCoordinatorRequest,
    GroupRequest,
    HeartbeatAnswer,
    HeartbeatRequest,
    JoinedMember,
    JoinGroupAnswer,
    JoinGroupRequest,
    LeaveGroupAnswer,
    LeaveGroupRequest,
    OffsetCommitAnswer,
    OffsetCommitRequest,
    SyncGroupAnswer,
    SyncGroupRequest,
)
from coopgroup.kafka.rpc.questions import (
    CommittedOffset,
    DescribedGroup,
    DescribedMember,
    DescribeGroupRequest,
    FetchOffsetsAnswer,
    FetchOffsetsRequest,
    OtherRequest,
    Question,
    WireMessage,
)
from coopgroup.kafka.rpc.schemas import ConsumerGroupHeartbeatRequest

GROUP_KEY_TYPE: Final = 0
# OffsetCommit v10 names topics by id only (KIP-848 clean-up); a classic member knows only names.
OFFSET_COMMIT_VERSION_MAX: Final = 9
# OffsetFetch v0 reads from ZooKeeper, where no coopgroup member commits. v10 names topics by id
# only.
OFFSET_FETCH_VERSION_MIN: Final = 1
OFFSET_FETCH_VERSION_MAX: Final = 9
# First versions with a group instance id (KIP-345).
STATIC_JOIN_VERSION: Final = 5
STATIC_SYNC_VERSION: Final = 3
STATIC_HEARTBEAT_VERSION: Final = 3
STATIC_LEAVE_VERSION: Final = 3
STATIC_COMMIT_VERSION: Final = 7
# What a heartbeat of KIP-848 says instead of an unchanged rebalance timeout.
_UNCHANGED_MS: Final = -1
# In the next version, a missing group is an error. This version has instance ids.
DESCRIBE_VERSION_MAX: Final = 5


def build_message(request: GroupRequest | Question) -> WireMessage:
    """Return kafka-python's message for a request, without a version.

    The message limits the versions, so that negotiation fails instead of dropping a group instance
    id: kafka-python drops fields that a version lacks.
    """
    kind = _KINDS.get(type(request))
    return cast("OtherRequest", request).message() if kind is None else kind[0](request)


def read_answer(request: GroupRequest | Question, response: WireMessage) -> Any:  # noqa: ANN401  (the answer to the request)
    """Return the answer from kafka-python's response to a request."""
    kind = _KINDS.get(type(request))
    return cast("OtherRequest", request).read(response) if kind is None else kind[1](response)


def _first(
    request: JoinGroupRequest
    | SyncGroupRequest
    | HeartbeatRequest
    | LeaveGroupRequest
    | OffsetCommitRequest,
    static_version: int,
) -> int:
    return 0 if request.group_instance_id is None else static_version


def _build_find_coordinator(request: FindCoordinatorRequest) -> WireMessage:
    return wire_coordinator.FindCoordinatorRequest(
        key=request.group_id,
        key_type=GROUP_KEY_TYPE,
        coordinator_keys=[request.group_id],
    )


def _build_describe(request: DescribeGroupRequest) -> WireMessage:
    return DescribeGroupsRequest(groups=[request.group_id], max_version=DESCRIBE_VERSION_MAX)


def _build_heartbeat(request: HeartbeatRequest) -> WireMessage:
    return wire.HeartbeatRequest(
        group_id=request.group_id,
        generation_id=request.generation,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        min_version=_first(request, STATIC_HEARTBEAT_VERSION),
    )


def _build_offset_fetch(request: FetchOffsetsRequest) -> WireMessage:
    group = wire.OffsetFetchRequest.OffsetFetchRequestGroup
    topics = [
        (name, [index for _, index in partitions])
        for name, partitions in groupby(request.partitions, key=lambda one: one[0])
    ]
    return wire.OffsetFetchRequest(
        group_id=request.group_id,  # v1 to v7
        topics=[
            wire.OffsetFetchRequest.OffsetFetchRequestTopic(name=name, partition_indexes=indices)
            for name, indices in topics
        ],
        groups=[  # from v8 on; member id and epoch are only for KIP-848 members
            group(
                group_id=request.group_id,
                member_id=None,
                member_epoch=-1,
                topics=[
                    group.OffsetFetchRequestTopics(name=name, partition_indexes=indices)
                    for name, indices in topics
                ],
            )
        ],
        require_stable=request.require_stable,
        min_version=OFFSET_FETCH_VERSION_MIN,
        max_version=OFFSET_FETCH_VERSION_MAX,
    )


def _build_join(request: JoinGroupRequest) -> WireMessage:
    protocol = wire.JoinGroupRequest.JoinGroupRequestProtocol
    return wire.JoinGroupRequest(
        group_id=request.group_id,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocols=[protocol(name=name, metadata=metadata) for name, metadata in request.protocols],
        reason=request.reason or None,
        min_version=_first(request, STATIC_JOIN_VERSION),
    )


def _build_sync(request: SyncGroupRequest) -> WireMessage:
    assignment = wire.SyncGroupRequest.SyncGroupRequestAssignment
    return wire.SyncGroupRequest(
        group_id=request.group_id,
        generation_id=request.generation,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments=[
            assignment(member_id=member_id, assignment=encoded)
            for member_id, encoded in request.assignments
        ],
        min_version=_first(request, STATIC_SYNC_VERSION),
    )


def _build_leave(request: LeaveGroupRequest) -> WireMessage:
    member = wire.LeaveGroupRequest.MemberIdentity(
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        reason=request.reason or None,
    )
    return wire.LeaveGroupRequest(
        group_id=request.group_id,
        member_id=request.member_id,  # v0 to v2
        members=[member],  # from v3 on
        min_version=_first(request, STATIC_LEAVE_VERSION),
    )


def _build_commit(request: OffsetCommitRequest) -> WireMessage:
    topic = wire.OffsetCommitRequest.OffsetCommitRequestTopic
    partition = topic.OffsetCommitRequestPartition
    return wire.OffsetCommitRequest(
        group_id=request.group_id,
        generation_id_or_member_epoch=request.generation,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        topics=[
            topic(
                name=name,
                partitions=[
                    partition(
                        partition_index=index,
                        committed_offset=offset,
                        committed_leader_epoch=leader_epoch,
                        committed_metadata=metadata,
                    )
                    for _, index, offset, leader_epoch, metadata in offsets
                ],
            )
            for name, offsets in groupby(sorted(request.offsets), key=lambda offset: offset[0])
        ],
        min_version=_first(request, STATIC_COMMIT_VERSION),
        max_version=OFFSET_COMMIT_VERSION_MAX,
    )


def _build_beat(request: ConsumerBeatRequest) -> WireMessage:
    message: WireMessage = ConsumerGroupHeartbeatRequest
    partitions = message.TopicPartitions
    topics, timeout_ms, owned = request.topics, request.rebalance_timeout_ms, request.owned
    return message(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.epoch,
        instance_id=request.group_instance_id,
        rack_id=request.rack,
        rebalance_timeout_ms=_UNCHANGED_MS if timeout_ms is None else timeout_ms,
        subscribed_topic_names=None if topics is None else list(topics),
        server_assignor=request.assignor,
        topic_partitions=None
        if owned is None
        else [partitions(topic_id=UUID(one), partitions=list(each)) for one, each in owned],
    )


def _read_coordinator(response: WireMessage) -> FindCoordinatorAnswer:
    # v4 (KIP-699) answers with a list, one entry per key.
    found = response.coordinators[0] if response.coordinators else response
    if found.error_code:
        return FindCoordinatorAnswer(
            error_code=found.error_code, error_message=found.error_message or "", coordinator=None
        )
    return FindCoordinatorAnswer(
        error_code=0,
        error_message="",
        coordinator=Coordinator(node_id=found.node_id, host=found.host, port=found.port),
    )


def _read_offsets(response: WireMessage) -> FetchOffsetsAnswer:
    answer = response.groups[0] if response.groups else response
    return FetchOffsetsAnswer(
        error_code=answer.error_code,
        offsets={
            (topic.name, one.partition_index): CommittedOffset(
                one.committed_offset, one.committed_leader_epoch, one.metadata, one.error_code
            )
            for topic in answer.topics
            for one in topic.partitions
        },
    )


def _read_description(response: WireMessage) -> DescribedGroup:
    (group,) = response.groups
    members = (
        DescribedMember(
            member_id=member.member_id,
            client_id=member.client_id,
            client_host=member.client_host,
            metadata=bytes(member.member_metadata or b""),
            group_instance_id=member.group_instance_id or "",
            assignment=bytes(member.member_assignment or b""),
        )
        for member in group.members
    )
    return DescribedGroup(
        error_code=group.error_code,
        state=group.group_state,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_data,
        members=tuple(sorted(members, key=lambda member: member.member_id)),
    )


def _read_join(response: WireMessage) -> JoinGroupAnswer:
    return JoinGroupAnswer(
        error_code=response.error_code,
        generation=response.generation_id,
        protocol_name=response.protocol_name or "",
        leader_id=response.leader,
        member_id=response.member_id,
        members=tuple(
            JoinedMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=bytes(member.metadata or b""),
            )
            for member in response.members
        ),
        skip_assignment=bool(response.skip_assignment),
    )


def _read_sync(response: WireMessage) -> SyncGroupAnswer:
    return SyncGroupAnswer(
        error_code=response.error_code, assignment=bytes(response.assignment or b"")
    )


def _read_heartbeat(response: WireMessage) -> HeartbeatAnswer:
    return HeartbeatAnswer(error_code=response.error_code)


def _read_leave(response: WireMessage) -> LeaveGroupAnswer:
    codes = [response.error_code, *(member.error_code for member in response.members)]
    return LeaveGroupAnswer(error_code=next(filter(None, codes), 0))


def _read_commit(response: WireMessage) -> OffsetCommitAnswer:
    codes = (
        (topic.name, partition.partition_index, partition.error_code)
        for topic in response.topics
        for partition in topic.partitions
    )
    return OffsetCommitAnswer(codes=tuple(sorted(codes)))


def _read_beat(response: WireMessage) -> ConsumerBeatAnswer:
    assignment = response.assignment
    return ConsumerBeatAnswer(
        error_code=response.error_code,
        error_message=response.error_message or "",
        epoch=response.member_epoch,
        interval_ms=response.heartbeat_interval_ms,
        assigned=None
        if assignment is None
        else tuple(
            sorted(
                (str(one.topic_id), tuple(sorted(one.partitions)))
                for one in assignment.topic_partitions
            )
        ),
    )


# How to build each request, and how to read its response; any other request does both itself.
_KINDS: Final[Mapping[type, tuple[Callable[[Any], WireMessage], Callable[[WireMessage], Any]]]] = {
    FindCoordinatorRequest: (_build_find_coordinator, _read_coordinator),
    JoinGroupRequest: (_build_join, _read_join),
    SyncGroupRequest: (_build_sync, _read_sync),
    HeartbeatRequest: (_build_heartbeat, _read_heartbeat),
    LeaveGroupRequest: (_build_leave, _read_leave),
    OffsetCommitRequest: (_build_commit, _read_commit),
    ConsumerBeatRequest: (_build_beat, _read_beat),
    FetchOffsetsRequest: (_build_offset_fetch, _read_offsets),
    DescribeGroupRequest: (_build_describe, _read_description),
}
