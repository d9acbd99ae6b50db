"""Shared helpers for the tests of the internal topic's records."""

from typing import Final

from coopgroup.model import ResourceSet
from coopgroup.pipeline.topic.codec import GroupMember
from coopgroup.protocol import (
    KafkaAssignment,
    Subscription,
    encode_kafka_assignment,
    encode_subscription,
)

__all__ = ["MEMBER"]

MEMBER: Final = GroupMember(
    member_id="a-1",
    client_id="a",
    client_host="/10.0.0.1",
    rebalance_timeout_ms=60_000,
    session_timeout_ms=6_000,
    subscription=encode_subscription(Subscription(topics=("orders",))),
    assignment=encode_kafka_assignment(KafkaAssignment(assigned=ResourceSet({"orders": [0, 2]}))),
)
