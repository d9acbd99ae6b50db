"""The description of a group that the broker assigns, over the wire and back."""

from uuid import UUID

import pytest

from coopgroup.core.model import ResourceSet
from coopgroup.kafka.rpc.consumer_groups import (
    ConsumerGroup,
    ConsumerMember,
    DescribeConsumerGroup,
)
from coopgroup.kafka.rpc.questions import WireMessage
from coopgroup.kafka.rpc.schemas import ConsumerGroupDescribeResponse

REQUEST = DescribeConsumerGroup(group_id="g")
TOPIC_ID = UUID(int=5)


RESPONSE: WireMessage = ConsumerGroupDescribeResponse
MEMBER: WireMessage = RESPONSE.DescribedGroup.Member


def assignment(*partitions: int) -> WireMessage:
    topic = MEMBER.Assignment.TopicPartitions(
        topic_id=TOPIC_ID, topic_name="t", partitions=[*partitions]
    )
    return MEMBER.Assignment(topic_partitions=[topic] if partitions else [])


def member(name: str, **more: object) -> WireMessage:
    known = {
        "member_id": name,
        "member_epoch": 3,
        "client_id": "c",
        "client_host": "/10.0.0.1",
        "subscribed_topic_names": ["t"],
        "assignment": assignment(),
        "target_assignment": assignment(),
    }
    return MEMBER(**(known | more))


def read(version: int, error_code: int, *members: WireMessage) -> ConsumerGroup:
    group = RESPONSE.DescribedGroup(
        error_code=error_code,
        group_id="g",
        group_state="Reconciling",
        group_epoch=4,
        assignment_epoch=4,
        assignor_name="uniform",
        members=[*members],
    )
    encoded = RESPONSE(throttle_time_ms=0, groups=[group]).encode(version=version)
    return REQUEST.read(RESPONSE.decode(encoded, version=version))


def test_request_names_its_group() -> None:
    message = REQUEST.message()
    for version in (0, 1):
        decoded = type(message).decode(message.encode(version=version), version=version)
        assert decoded.to_dict(json=False)["group_ids"] == ["g"]


@pytest.mark.parametrize(("version", "tells"), [(0, False), (1, True)])
def test_members_tell_what_they_own_and_shall_own(version: int, tells: bool) -> None:
    """The first version does not tell which members speak the classic protocol."""
    group = read(
        version,
        0,
        member("b", member_type=0, instance_id="seat", member_epoch=-2),
        member("a", member_type=1, assignment=assignment(1, 2), target_assignment=assignment(2, 3)),
    )
    assert group == ConsumerGroup(
        error_code=0,
        state="Reconciling",
        assignor="uniform",
        members=(
            ConsumerMember(
                member_id="a",
                client_id="c",
                client_host="/10.0.0.1",
                epoch=3,
                owned=ResourceSet({"t": [1, 2]}),
                target=ResourceSet({"t": [2, 3]}),
            ),
            ConsumerMember(
                member_id="b",
                client_id="c",
                client_host="/10.0.0.1",
                group_instance_id="seat",
                epoch=-2,
                is_classic=tells,
            ),
        ),
    )


def test_missing_group_is_only_a_code() -> None:
    assert read(1, 69) == ConsumerGroup(error_code=69)
