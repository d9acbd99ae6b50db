"""A driver that asks a broker how many partitions its topics have."""

from __future__ import annotations

from typing import Any, cast

import pytest

from coopgroup.core.leader import TopicMetadata
from coopgroup.core.member import ErrorCode
from coopgroup.core.member.events import RejoinRequested
from coopgroup.core.model import ResourceSet
from coopgroup.kafka.rpc.outcomes import FailureKind, TransportFailure
from coopgroup.kafka.rpc.questions import FoundTopic
from coopgroup.telemetry import AssignmentRefused
from tests.support.driven_group import TOPIC, DrivenGroup, DrivenMember, driven_group


def _leader_sees(group: DrivenGroup, partitions: int) -> DrivenMember:
    """Let the leader see another number of partitions, and start a round; return the follower."""
    group.add("a")
    group.settle()
    group.add("b")
    group.settle()
    follower = group.members["b" if group.leader() == "a" else "a"]
    leader = group.members[group.leader()].driver
    topics = TopicMetadata(resources=ResourceSet({TOPIC: range(partitions)}))
    cast("Any", leader.lookup).metadata = lambda _: topics
    leader.post(RejoinRequested(reason="partitions changed"))
    return follower


def _refusals(member: DrivenMember) -> list[AssignmentRefused]:
    return [one for one in member.records if isinstance(one, AssignmentRefused)]


def test_follower_refuses_partitions_that_do_not_exist() -> None:
    with driven_group(4) as group:
        follower = _leader_sees(group, 6)
        group.run(5.0)
        assert len(follower.owned) == 2
        assert max(follower.owned) < 4
        assert _refusals(follower)[0].topics == (TOPIC,)


def test_follower_takes_partitions_that_the_leader_saw_first() -> None:
    with driven_group(4) as group:
        follower = _leader_sees(group, 6)
        group.partitions = 6
        group.settle()
        assert len(follower.owned) == 3
        assert _refusals(follower) == []


@pytest.mark.parametrize(
    "outcome",
    [
        {TOPIC: FoundTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, 0)},
        TransportFailure(kind=FailureKind.TIMED_OUT, message="late"),
    ],
)
def test_follower_takes_partitions_if_no_broker_can_tell(outcome: object) -> None:
    with driven_group(4) as group:
        follower = _leader_sees(group, 6)
        group.found_topics = outcome
        group.play_to(lambda: len(follower.owned) == 3)
        assert _refusals(follower) == []
