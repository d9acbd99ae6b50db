"""Consumers for asyncio: the same groups, policies and assignors, with aiokafka's names."""

from confluent_kafka import TopicPartition

from coopgroup.aio.consumer import AsyncCooperativeConsumer, RebalanceListener
from coopgroup.aio.hand_out import ConsumerStoppedError
from coopgroup.aio.records import ConsumerRecord, OffsetAndMetadata

__all__ = [
    "AsyncCooperativeConsumer",
    "ConsumerRecord",
    "ConsumerStoppedError",
    "OffsetAndMetadata",
    "RebalanceListener",
    "TopicPartition",
]
