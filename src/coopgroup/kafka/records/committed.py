"""`CooperativeConsumer.committed`: confluent_kafka's answers and errors, over our connections."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import KafkaError, TopicPartition

from coopgroup.kafka.config.settings import ConsumerSettings
from coopgroup.kafka.exceptions import kafka_error, kafka_exception
from coopgroup.kafka.membership.driver import GroupDriver
from coopgroup.kafka.records.offset_lookup import read_offsets
from coopgroup.kafka.records.partitions import to_partition
from coopgroup.kafka.rpc.questions import CommittedOffset

__all__ = ["read_committed"]

_TIMED_OUT: Final = "Failed to get committed offsets: Local: Timed out"


class _RefusedPartition(TopicPartition):
    """A partition with an error; only librdkafka can set the error of a `TopicPartition`."""

    error: KafkaError | None = None


def read_committed(
    driver: GroupDriver,
    settings: ConsumerSettings,
    partitions: Any,  # noqa: ANN401  (checked here)
    timeout: Any,  # noqa: ANN401  (checked here)
    is_closed: Callable[[], bool],
) -> list[TopicPartition]:
    """Read the committed offset of each partition.

    Raises:
        KafkaException: no answer arrives in time, or the coordinator refuses.
        TypeError: `partitions` is not a list of partitions, or `timeout` is not a number.
    """
    if not isinstance(partitions, list):
        raise TypeError("requires list of TopicPartition")
    if not all(isinstance(one, TopicPartition) for one in partitions):
        raise TypeError("expected cimpl.TopicPartition")
    if not isinstance(timeout, int | float):
        raise TypeError(f"must be real number, not {type(timeout).__name__}")
    if not partitions:
        return []
    try:
        found = read_offsets(
            driver.transport,
            settings.member.group_id,
            {(one.topic, one.partition) for one in partitions},
            timeout_s=math.inf if timeout < 0 else timeout,
            request_timeout_ms=settings.connection.request_timeout_ms,
            require_stable=settings.requires_stable,
            coordinator=driver.member.coordinator,
            is_over=is_closed,
        )
    except TimeoutError:
        raise kafka_exception(KafkaError._TIMED_OUT, _TIMED_OUT) from None
    return [_answer(one, found[one.topic, one.partition]) for one in partitions]


def _answer(asked: TopicPartition, found: CommittedOffset) -> TopicPartition:
    if found.error_code:
        refused = _RefusedPartition(asked.topic, asked.partition)
        refused.error = kafka_error(found.error_code)
        return refused
    if found.offset < 0:
        return TopicPartition(asked.topic, asked.partition)
    return to_partition(asked.topic, asked.partition, found)
