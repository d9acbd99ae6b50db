"""How processing takes part in a consumer: it stores offsets, and hears of revocations first.

A position of the consumer counts records that were handed out. With processing such a record may
still be in flight, so a commit takes only offsets that processing stored.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from attrs import define, field
from confluent_kafka import KafkaException, TopicPartition

from coopgroup.errors import ConfigurationError
from coopgroup.kafka.callbacks.listener import GroupListener, Interceptor
from coopgroup.kafka.callbacks.subscribed import Callback
from coopgroup.kafka.consumer import CooperativeConsumer
from coopgroup.kafka.membership.driver import GroupDriver
from coopgroup.kafka.records.committing import Committing
from coopgroup.member.events import Offset
from coopgroup.processing.scheduler import Partition, StoredOffset

__all__ = ["Attachment", "partitions_of"]


def partitions_of(partitions: Iterable[TopicPartition]) -> list[Partition]:
    """Return topic and number of partitions."""
    return [(one.topic, one.partition) for one in partitions]


@define(eq=False)
class Attachment:
    """Processing's place in a consumer, from `attach` to `detach`.

    Attributes:
        consumer: the consumer.
    """

    consumer: CooperativeConsumer
    _listener: GroupListener = field(init=False)
    _committing: Committing = field(init=False)
    _driver: GroupDriver = field(init=False)
    _was_automatic: bool = field(default=True, init=False)

    def __attrs_post_init__(self) -> None:
        parts = self.consumer._parts  # noqa: SLF001  (both are coopgroup's)
        self._listener, self._committing = parts.listener, parts.committing
        self._driver = parts.driver

    @property
    def group_id(self) -> str:
        """Return the name of the group."""
        return self._driver.settings.member.group_id

    @property
    def user_on_revoke(self) -> Callback | None:
        """Return the application's `on_revoke`."""
        return self._listener.callbacks.on_revoke

    @property
    def user_on_lost(self) -> Callback | None:
        """Return what the application wants to be called for lost partitions."""
        return self._listener.callbacks.on_lost or self._listener.callbacks.on_revoke

    def attach(self, on_revoke: Callback, on_lost: Callback) -> None:
        """Hear of revocations and losses in place of the application's callbacks.

        Raises:
            ConfigurationError: the consumer does not commit by itself, or is processed already.
        """
        if self._committing.interval_ms is None:
            raise ConfigurationError(
                "enable.auto.commit", "false", "true: processing commits what has been handled"
            )
        if self._listener.interceptor is not None:
            raise ConfigurationError("consumer", self.consumer, "one that is not processed already")
        store = self._committing.store
        self._was_automatic = store.automatic
        if store.automatic:  # what the application handled before is committed as before
            store.store(store.due(self._listener.owned))
            store.automatic = False
        self._listener.interceptor = Interceptor(on_revoke=on_revoke, on_lost=on_lost)

    def detach(self, unhandled: Iterable[tuple[Partition, int]], *, is_complete: bool) -> None:
        """Leave the consumer as it was; it continues at the first records that were not handled.

        Args:
            unhandled: partitions with the offset of the first such record.
            is_complete: whether processing knows all records that were handed out. If not, because
                Ctrl-C came between a record and its note, commits go on to take only the offsets
                that were stored. Otherwise `close` would commit past that record.
        """
        for (topic, number), offset in unhandled:
            if (topic, number) in self._listener.owned - self._listener.stopping:
                with suppress(KafkaException, RuntimeError):  # lost at this moment, or closed
                    self.consumer.seek(TopicPartition(topic, number, offset))
        self._listener.interceptor = None
        if is_complete:
            self._committing.store.automatic = self._was_automatic

    def store(self, offsets: Iterable[StoredOffset]) -> None:
        """Store offsets for the next commit."""
        self._committing.store.store(
            Offset(one.topic, one.partition, one.offset, one.leader_epoch) for one in offsets
        )

    def wake(self) -> None:
        """Let a waiting `poll` look around; for any thread."""
        self._driver.inbox.wake()

    def warn(self, event: str, **fields: object) -> None:
        """Log a warning."""
        self._driver.sink.warn(event, **fields)

    def call(self, callback: Callback | None, partitions: Iterable[Partition]) -> None:
        """Run a callback of the application for partitions."""
        named = [TopicPartition(topic, number) for topic, number in sorted(partitions)]
        if callback is not None and named:
            callback(self.consumer, named)
