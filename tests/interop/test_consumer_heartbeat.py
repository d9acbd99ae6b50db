"""ConsumerGroupHeartbeat of our schemas beside kio's own, in both directions."""

import io
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from kio.schema.consumer_group_heartbeat.v1 import request as kio_request
from kio.schema.consumer_group_heartbeat.v1 import response as kio_response
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32, i32Timedelta

from coopgroup.core.model.group_api import ConsumerBeatAnswer, ConsumerBeatRequest
from coopgroup.kafka.rpc.requests import build_message, read_answer
from coopgroup.kafka.rpc.schemas import ConsumerGroupHeartbeatResponse

VERSION = 1
FIRST, SECOND = (UUID(int=number) for number in (10, 2**127))
FULL = ConsumerBeatRequest(
    group_id="g",
    member_id="m",
    epoch=7,
    group_instance_id="static",
    rack="a",
    topics=("t", "ü"),
    owned=((str(FIRST), (0, 2)), (str(SECOND), ())),
    rebalance_timeout_ms=300_000,
    assignor="range",
)
SHORT = ConsumerBeatRequest(group_id="g", member_id="m", epoch=-1)


@pytest.mark.parametrize("request_", [FULL, SHORT], ids=["full", "short"])
def test_kio_reads_our_request_to_its_end(request_: ConsumerBeatRequest) -> None:
    encoded = bytes(build_message(request_).encode(version=VERSION))
    read: Any = entity_reader(kio_request.ConsumerGroupHeartbeatRequest)
    found, size = read(encoded, 0)
    assert size == len(encoded)
    assert (found.group_id, found.member_id, found.member_epoch) == ("g", "m", request_.epoch)
    assert (found.instance_id, found.rack_id) == (request_.group_instance_id, request_.rack)
    assert (found.server_assignor, found.subscribed_topic_regex) == (request_.assignor, None)
    topics, owned = found.subscribed_topic_names, found.topic_partitions
    assert (None if topics is None else tuple(topics)) == request_.topics
    assert (
        None if owned is None else tuple((str(one.topic_id), one.partitions) for one in owned)
    ) == request_.owned
    unchanged_ms = -1 if request_.rebalance_timeout_ms is None else request_.rebalance_timeout_ms
    assert found.rebalance_timeout.total_seconds() * 1000 == unchanged_ms


@pytest.mark.parametrize(
    ("assignment", "assigned"),
    [
        (None, None),
        ((), ()),
        (((SECOND, (1, 0)), (FIRST, (5,))), ((str(FIRST), (5,)), (str(SECOND), (0, 1)))),
    ],
    ids=["unchanged", "nothing", "partitions"],
)
def test_our_reader_takes_what_kio_writes(assignment: Any, assigned: Any) -> None:  # noqa: ANN401
    given = None
    if assignment is not None:
        given = kio_response.Assignment(
            topic_partitions=tuple(
                kio_response.TopicPartitions(
                    topic_id=topic_id, partitions=tuple(i32(one) for one in indices)
                )
                for topic_id, indices in assignment
            )
        )
    written = io.BytesIO()
    entity_writer(kio_response.ConsumerGroupHeartbeatResponse)(
        written,
        kio_response.ConsumerGroupHeartbeatResponse(
            throttle_time=i32Timedelta.parse(timedelta()),
            error_code=ErrorCode.stale_member_epoch,
            error_message="why",
            member_id="m",
            member_epoch=i32(8),
            heartbeat_interval=i32Timedelta.parse(timedelta(seconds=5)),
            assignment=given,
        ),
    )
    kind: Any = ConsumerGroupHeartbeatResponse
    response = kind.decode(written.getvalue(), version=VERSION)
    assert read_answer(FULL, response) == ConsumerBeatAnswer(
        error_code=113, error_message="why", epoch=8, interval_ms=5_000, assigned=assigned
    )
