"""`CooperativeConsumer.committed`: confluent_kafka's answers and errors, over our connections."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen
from confluent_kafka import KafkaError, TopicPartition

from coopgroup.kafka.exceptions import kafka_error, kafka_exception
from coopgroup.kafka.offset_lookup import read_offsets, to_partition

if TYPE_CHECKING:
    from collections.abc import Callable

    from coopgroup.kafka.driver import GroupDriver
    from coopgroup.kafka.requests import CommittedOffset

__all__ = ["CommittedOffsets"]

_TIMED_OUT: Final = "Failed to get committed offsets: Local: Timed out"


class _RefusedPartition(TopicPartition):
    """A partition with an error; only librdkafka can set the error of a `TopicPartition`."""

    error: KafkaError | None = None


@frozen(kw_only=True, eq=False)
class CommittedOffsets:
    """Reads committed offsets for the application, from any of its threads.

    Attributes:
        driver: provides the connections.
        group_id: group of the consumer.
        require_stable: whether to wait for open transactions (KIP-447).
        request_timeout_ms: time-out of one request.
    """

    driver: GroupDriver
    group_id: str
    require_stable: bool
    request_timeout_ms: int

    def read(
        self,
        partitions: Any,  # noqa: ANN401  (checked here)
        timeout: Any,  # noqa: ANN401  (checked here)
        is_closed: Callable[[], bool],
    ) -> list[TopicPartition]:
        """Read the committed offset of each partition.

        Args:
            partitions: a list of `TopicPartition`, in any order.
            timeout: how long to wait, in seconds; negative for no limit.
            is_closed: returns whether the consumer was closed meanwhile.

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
                self.driver.transport,
                self.group_id,
                {(one.topic, one.partition) for one in partitions},
                timeout_s=math.inf if timeout < 0 else timeout,
                request_timeout_ms=self.request_timeout_ms,
                require_stable=self.require_stable,
                coordinator=self.driver.member.coordinator,
                is_over=is_closed,
            )
        except TimeoutError:
            raise kafka_exception(KafkaError._TIMED_OUT, _TIMED_OUT) from None  # noqa: SLF001  (public)
        return [_answer(one, found[one.topic, one.partition]) for one in partitions]


def _answer(asked: TopicPartition, found: CommittedOffset) -> TopicPartition:
    if found.error_code:
        refused = _RefusedPartition(asked.topic, asked.partition)
        refused.error = kafka_error(found.error_code)
        return refused
    if found.offset < 0:
        return TopicPartition(asked.topic, asked.partition)
    return to_partition(asked.topic, asked.partition, found)
