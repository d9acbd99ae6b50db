"""Commits: requested by the application, by auto-commit, or before a partition is revoked.

Commits go to the group's thread, and from there over a separate connection. So a commit does not
wait for a round, and does not fail merely because a round is running.

Two rules. coopgroup commits only offsets of records that the application received, never of
prefetched records. Every outcome is reported: to the caller, to `on_commit` or to telemetry.

`CooperativeConsumer.committed`: confluent_kafka's answers and errors, over our connections.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any, Final

from attrs import define, field
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from coopgroup.core.member.commits import Codes
from coopgroup.core.member.events import Offset
from coopgroup.core.model import ResourceSet
from coopgroup.kafka.clock import now_ms, now_s
from coopgroup.kafka.config.settings import ConsumerSettings
from coopgroup.kafka.exceptions import kafka_error, kafka_exception
from coopgroup.kafka.membership.driver import GroupDriver
from coopgroup.kafka.records.commit_meter import CommitMeter
from coopgroup.kafka.records.offset_lookup import read_offsets
from coopgroup.kafka.records.offsets import OffsetStore
from coopgroup.kafka.records.partitions import (
    checked_partitions,
    to_partition,
    to_partitions,
)
from coopgroup.kafka.records.starting_offsets import StartingOffsets
from coopgroup.kafka.rpc.questions import CommittedOffset
from coopgroup.telemetry import CommitFailed


@define(eq=False)
class Committing:
    """Commits offsets of one consumer.

    Attributes:
        interval_ms: interval of auto-commit, None if it is off.
        meter: counts the commits.
        due_at_s: time of the next auto-commit; infinite for never.
    """

    driver: GroupDriver
    store: OffsetStore
    starts: StartingOffsets
    on_commit: Callable[..., Any] | None
    interval_ms: int | None
    write: Callable[[CommitFailed], None]
    meter: CommitMeter = field(factory=CommitMeter, init=False)
    due_at_s: float = field(default=math.inf, init=False)

    def start_clock(self) -> None:
        """Schedule the next auto-commit one interval from now."""
        self.due_at_s = math.inf if self.interval_ms is None else now_s() + self.interval_ms / 1000

    def stop_clock(self) -> None:
        """Schedule no auto-commit."""
        self.due_at_s = math.inf

    def commit_by_clock(self, owned: ResourceSet) -> None:
        """Begin an auto-commit if it is due."""
        if now_s() >= self.due_at_s:
            self.start_clock()
            self.commit_due(owned)

    def commit_due(self, owned: ResourceSet) -> None:
        """Begin a commit of all offsets that are due, as an auto-commit does."""
        offsets = self.store.due(owned)
        if offsets:
            self._send(offsets, lambda codes: self._tell(offsets, codes))

    def commit_last(self, resources: ResourceSet, limit_s: float | None = None) -> None:
        """Auto-commit resources that are about to be given up, and wait for the outcome."""
        if self.interval_ms is None:
            return
        offsets = self.store.due(resources)
        if offsets:
            self._tell(offsets, self._send_and_wait(offsets, limit_s))

    def commit_later(self, offsets: tuple[Offset, ...], owned: ResourceSet) -> None:
        """Begin a commit; `on_commit` gets the outcome, with all partitions if nothing is due."""
        if offsets:
            self._send(offsets, lambda codes: self._tell(offsets, codes))
        else:
            self._tell_on_commit(kafka_error(KafkaError._NO_OFFSET), to_partitions(owned))

    def commit_then(
        self, offsets: tuple[Offset, ...], on_done: Callable[[KafkaException | None], None]
    ) -> None:
        """Begin a commit; `on_done` gets the outcome, on the group's thread."""

        def tell(codes: Codes) -> None:
            on_done(_refusal(codes))

        self._send(offsets, tell)

    def commit_now(self, offsets: tuple[Offset, ...]) -> None:
        """Commit and wait.

        Raises:
            KafkaException: no offsets to commit, or a partition was refused.
        """
        if not offsets:
            raise kafka_exception(KafkaError._NO_OFFSET, "Commit failed: Local: No offset stored")
        refusal = _refusal(self._send_and_wait(offsets))
        if refusal is not None:
            raise refusal

    def _send(
        self,
        offsets: tuple[Offset, ...],
        on_committed: Callable[[Codes], None],
        until_ms: int | None = None,
    ) -> None:
        # `on_assign` may commit the first offset. An offset that was read before is then too old.
        lookup = self.starts.lookup
        held = () if lookup.is_idle else lookup.hold((one.topic, one.partition) for one in offsets)

        began_s = now_s()

        def remember(codes: Codes) -> None:  # on the group's thread
            is_committed = _first_failure(codes) is None
            self.meter.add(now_s() - began_s, is_committed=is_committed)
            try:
                passed = {(topic, partition) for topic, partition, code in codes if not code}
                self.store.mark_committed(
                    one for one in offsets if (one.topic, one.partition) in passed
                )
                lookup.release(held)
            finally:  # the caller may be waiting
                on_committed(codes)

        self.driver.request_commit(offsets, remember, until_ms)

    def _send_and_wait(self, offsets: tuple[Offset, ...], limit_s: float | None = None) -> Codes:
        finished = threading.Event()
        outcome: list[Codes] = []

        def finish(codes: Codes) -> None:
            outcome.append(codes)
            finished.set()

        # The member keeps the limit. It must not send the commit after its partitions are given up.
        self._send(offsets, finish, None if limit_s is None else now_ms() + round(limit_s * 1000))
        finished.wait()
        return outcome[0]

    def _tell(self, offsets: tuple[Offset, ...], codes: Codes) -> None:
        """Report failures to telemetry, and every outcome to `on_commit`."""
        failed = _first_failure(codes)
        error = None if failed is None else kafka_error(failed)
        if error is not None:
            refused = [(topic, partition) for topic, partition, code in codes if code]
            lost = refused or [(one.topic, one.partition) for one in offsets]
            self.write(CommitFailed(resources=ResourceSet.from_pairs(lost), error=error.name()))
        self._tell_on_commit(
            error, [to_partition(one.topic, one.partition, one) for one in offsets]
        )

    def _tell_on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        on_commit = self.on_commit
        if on_commit is not None:
            self.driver.inbox.call_soon(lambda: on_commit(error, partitions))


def _refusal(codes: Codes) -> KafkaException | None:
    failed = _first_failure(codes)
    if failed is None:
        return None
    return kafka_exception(failed, f"Commit failed: {kafka_error(failed).str()}")


def _first_failure(codes: Codes) -> int | None:
    return next((code for _, _, code in codes if code), None)


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
    partitions = checked_partitions(partitions)
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
