"""A group described from outside: questions are repeated until an answer or the limit."""

from typing import cast

import pytest
from attrs import define, field

from coopgroup.core.member import ErrorCode
from coopgroup.core.model.group_api import (
    Coordinator,
    FindCoordinatorAnswer,
    FindCoordinatorRequest,
)
from coopgroup.errors import ConfigurationError
from coopgroup.kafka.rpc.consumer_groups import ConsumerGroup, DescribeConsumerGroup
from coopgroup.kafka.rpc.describing import GroupDescriber
from coopgroup.kafka.rpc.outcomes import FailureKind, TransportFailure
from coopgroup.kafka.rpc.questions import DescribedGroup
from coopgroup.kafka.rpc.transport import GroupTransport
from tests.support.by_hand import Hand
from tests.unit.kafka.fakes import LOST
from tests.unit.kafka.rpc.transport_stage import settings_for

COORDINATOR = Coordinator(node_id=1, host="broker", port=9092)
GROUP = DescribedGroup(
    error_code=0, state="Stable", protocol_type="consumer", protocol_name="p", members=()
)


@define(eq=False)
class Brokers:
    """Answer with an error until a time, each after a moment."""

    hand: Hand
    code: int
    until_s: float
    asked_at_s: list[float] = field(factory=list)
    lost_from_s: float = float("inf")
    is_closed: bool = False
    consumers: object = ConsumerGroup(error_code=0)

    def ask(self, _: object, request: object, **_more: object) -> object:
        self.asked_at_s.append(self.hand.now_s)
        code = self.code if self.hand.now_s < self.until_s else 0
        if self.hand.now_s >= self.lost_from_s:
            return LOST
        if isinstance(request, DescribeConsumerGroup):
            return self.consumers
        if not isinstance(request, FindCoordinatorRequest):
            return GROUP
        found = None if code else COORDINATOR
        return FindCoordinatorAnswer(error_code=code, error_message="", coordinator=found)

    def close(self) -> None:
        self.is_closed = True


def describer_of(brokers: Brokers) -> GroupDescriber:
    describer = GroupDescriber(settings_for("broker:9092"), "g")
    describer._transport = cast("GroupTransport", brokers)  # noqa: SLF001 - no broker here
    return describer


def test_question_is_repeated_after_a_pause_while_the_coordinator_loads(hand: Hand) -> None:
    brokers = Brokers(hand, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, hand.now_s + 0.5)
    began_s = hand.now_s
    assert describer_of(brokers).describe(10_000) == (COORDINATOR, GROUP)
    assert [round(at_s - began_s, 1) for at_s in brokers.asked_at_s] == [0.0, 0.2, 0.4, 0.6, 0.6]


def test_question_without_an_answer_ends_at_its_limit_and_closes_the_connections(
    hand: Hand,
) -> None:
    brokers = Brokers(hand, ErrorCode.COORDINATOR_NOT_AVAILABLE, float("inf"))
    began_s = hand.now_s
    said = (
        r"^GROUP: got 'g', expected a group whose coordinator answers "
        r"\(COORDINATOR_NOT_AVAILABLE: usually offsets\.topic\.replication\.factor is above"
    )
    with pytest.raises(ConfigurationError, match=said):
        describer_of(brokers).describe(1_000)
    assert hand.now_s - began_s == pytest.approx(1.0)
    assert brokers.is_closed


def test_brokers_that_stop_to_answer_are_named_even_after_a_refusal(hand: Hand) -> None:
    brokers = Brokers(hand, ErrorCode.COORDINATOR_NOT_AVAILABLE, float("inf"))
    brokers.lost_from_s = hand.now_s + 0.5
    with pytest.raises(ConfigurationError, match=r"^bootstrap\.servers: .*brokers that answer"):
        describer_of(brokers).describe(1_000)


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (ConsumerGroup(error_code=0, state="Stable"), ErrorCode.NONE),
        (ConsumerGroup(error_code=69), ErrorCode.GROUP_ID_NOT_FOUND),
        (ConsumerGroup(error_code=35), ErrorCode.UNSUPPORTED_VERSION),
        (
            TransportFailure(kind=FailureKind.UNSUPPORTED, message="ConsumerGroupDescribe"),
            ErrorCode.UNSUPPORTED_VERSION,
        ),
    ],
)
def test_group_that_the_broker_does_not_assign_is_an_answer(
    hand: Hand, answer: object, code: int
) -> None:
    brokers = Brokers(hand, ErrorCode.NONE, 0.0, consumers=answer)
    coordinator, found = describer_of(brokers).describe_consumers(1_000)
    assert (coordinator, found.error_code) == (COORDINATOR, code)


def test_group_with_a_topic_that_may_not_be_described_is_refused(hand: Hand) -> None:
    """The coordinator names the topics of the members, so it wants the right to describe them."""
    answer = ConsumerGroup(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    brokers = Brokers(hand, ErrorCode.NONE, 0.0, consumers=answer)
    with pytest.raises(ConfigurationError, match="a group whose topics this user may DESCRIBE"):
        describer_of(brokers).describe_consumers(1_000)
