"""How processing takes part in a consumer: it stores offsets, and hears of revocations first.

A position of the consumer counts records that were handed out. With processing such a record may
still be in flight, so a commit takes only offsets that processing stored.

`HandlerWork`: how fast the handlers of `process` are while all of them have work.

A rate counts what the member could process, not what arrived. So a record counts only if all
handlers were at work when the record before it ended, and when this one ended. With fewer records
in flight the rate would show the waits.

Handlers at work are limited by `workers` or `concurrency`, and with the order "partition" also by
the number of partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, Final, TypeAlias

from attrs import define, field
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from coopgroup.aio.consumer import AsyncCooperativeConsumer
from coopgroup.aio.polling import Polling
from coopgroup.core.member.events import Offset
from coopgroup.errors import ConfigurationError
from coopgroup.kafka.callbacks.listener import Callbacks
from coopgroup.kafka.consumer import ConsumerParts, CooperativeConsumer
from coopgroup.kafka.exceptions import PASSING_ERRORS
from coopgroup.kafka.membership.work_meter import WorkMeter
from coopgroup.processing.attempts import Attempts, Left
from coopgroup.processing.dead_letters import Way, deliver
from coopgroup.processing.failures import OnError
from coopgroup.processing.scheduler import Partition, RecordInFlight, Scheduler, StoredOffset

Oldest: TypeAlias = Callable[[], Mapping[Partition, int]]


@define(eq=False)
class HandlerWork:
    """Measures the handlers of one run of `process`.

    Attributes:
        handlers: maximum number of records that are handled side by side.
    """

    meter: WorkMeter
    scheduler: Scheduler
    handlers: int
    _since_s: float | None = field(default=None, init=False)

    def note_end(self, now_s: float) -> None:
        """Note that a record has been handled, before the scheduler hears of it."""
        most = self.handlers
        if self.scheduler.order == "partition":
            most = min(most, self.scheduler.partition_count)
        is_full = self.scheduler.in_progress + self.scheduler.ready >= most
        if is_full and self._since_s is not None:
            self.meter.add(1, now_s - self._since_s)
        self._since_s = now_s if is_full else None


HARMLESS_ERRORS: Final = PASSING_ERRORS | {KafkaError._PARTITION_EOF}
"""Codes of events that are no reason to stop."""


def partitions_of(partitions: Iterable[TopicPartition]) -> list[Partition]:
    """Return topic and number of partitions."""
    return [(one.topic, one.partition) for one in partitions]


def as_partitions(partitions: Iterable[Partition]) -> list[TopicPartition]:
    """Return partitions as confluent_kafka has them."""
    return [TopicPartition(*one) for one in partitions]


@define(eq=False)
class Attachment:
    """Processing's place in a consumer, from `attach` to `detach`.

    Attributes:
        consumer: the consumer.
        parts: its parts.
        callbacks: has the application's `on_revoke` and `on_lost`.
        hook: has the interceptor, which is called in place of these.
        is_closed: returns whether the consumer is closed.
        seek: continues at another offset: topic, number, offset.
        pause: pauses partitions for processing, apart from the application's own pauses.
        resume: ends such pauses.
        call_later: makes a call on the thread that may use the client, after all earlier calls of
            `seek`, and before a further record is handed out.
    """

    consumer: Any
    parts: ConsumerParts
    callbacks: Callable[[], Any]
    hook: Any
    is_closed: Callable[[], bool]
    seek: Callable[[str, int, int], None]
    pause: Callable[[Collection[Partition]], None]
    resume: Callable[[Collection[Partition]], None]
    call_later: Callable[[Callable[[], None]], None]
    _was_automatic: bool = field(default=True, init=False)
    _way: Way = field(factory=Way, init=False)

    @classmethod
    def of_threads(cls, consumer: CooperativeConsumer) -> Attachment:
        """Return the place in a consumer whose polling thread calls everything here."""
        parts = consumer._parts  # noqa: SLF001  (both are coopgroup's)
        fetching = parts.fetching
        return cls(
            consumer,
            parts,
            callbacks=lambda: parts.listener.callbacks,
            hook=parts.listener,
            is_closed=lambda: consumer._closed,  # noqa: SLF001
            seek=lambda *place: consumer.seek(TopicPartition(*place)),
            pause=lambda full: fetching.pause(
                as_partitions(full), parts.listener.owned, "processing"
            ),
            resume=lambda some: fetching.resume(as_partitions(some), "processing"),
            call_later=lambda call: call(),
        )

    @classmethod
    def of_tasks(cls, consumer: AsyncCooperativeConsumer) -> Attachment:
        """Return the place in a consumer of an event loop."""
        polling, given = consumer._started, consumer._given  # noqa: SLF001  (both are coopgroup's)
        parts = polling.parts
        buffer, owned_of = parts.fetching.record_buffer, parts.listener.owned_of
        return cls(
            consumer,
            parts,
            callbacks=lambda: given.callbacks,
            hook=given,
            is_closed=lambda: consumer._is_closed,  # noqa: SLF001
            seek=lambda topic, number, at: consumer.seek(TopicPartition(topic, number), at),
            pause=lambda full: buffer.pause(owned_of(full), "processing"),
            resume=lambda some: polling.resume(some, "processing"),
            call_later=polling.call,
        )

    def as_polling(self) -> AbstractContextManager[None]:
        """Count the time as polling, for a consumer of an event loop."""
        polling: Polling = self.consumer._started  # noqa: SLF001  (both are coopgroup's)
        return polling.hand_out.as_polling()

    def finish_revoke(self, partitions: Iterable[Partition]) -> None:
        """Report that partitions of a revocation have stopped, for a consumer of an event loop."""
        self.parts.listener.finish_revoke(as_partitions(partitions))

    def decoding(self, message: Message) -> AbstractContextManager[object]:
        """Decode a record for its handler, if the consumer has deserializers."""
        decoder = self.parts.decoder
        return nullcontext() if decoder is None else decoder.decoding(message)

    def attempts(
        self, scheduler: Scheduler, on_error: OnError, workers: int, now_s: Callable[[], float]
    ) -> Attempts:
        """Return the machine of attempts, whose warnings and work rate are the consumer's."""
        rate = HandlerWork(self.parts.driver.meter, scheduler, workers)
        return Attempts(scheduler, on_error, workers, self.warn, lambda: rate.note_end(now_s()))

    def delivery(self, work: RecordInFlight, now_s: Callable[[], float]) -> Iterator[Any]:
        """Send the dead letter of a record; call `poll` of each producer that this yields.

        Raises:
            KafkaException: as `deliver`.
        """
        assert work.letter is not None
        group_id = self.parts.driver.settings.member.group_id
        left_out = yield from deliver(*work.letter, group_id, now_s, self._way)
        if left_out:
            self.warn("dead_letter_shortened", work, left_out=left_out)

    @property
    def on_revoke(self) -> Any:  # noqa: ANN401  (a callback, or None)
        """Return the application's `on_revoke`."""
        return self.callbacks().on_revoke

    @property
    def on_lost(self) -> Any:  # noqa: ANN401  (a callback, or None)
        """Return what the application wants to be called for lost partitions."""
        own = self.callbacks()
        return own.on_lost or own.on_revoke

    def attach(
        self, on_revoke: Callable[..., Any], on_lost: Callable[..., Any], oldest: Oldest
    ) -> None:
        """Hear of revocations and losses in place of the application's callbacks.

        Args:
            on_revoke: called for partitions to give up.
            on_lost: called for partitions that are lost.
            oldest: returns the oldest unhandled record of each partition, for the health.

        Raises:
            ConfigurationError: the consumer does not commit by itself, or is processed already.
        """
        if self.parts.committing.interval_ms is None:
            raise ConfigurationError(
                "enable.auto.commit", "false", "true: processing commits what has been handled"
            )
        if self.hook.interceptor is not None:
            raise ConfigurationError("consumer", self.consumer, "one that is not processed already")
        self._replace(Callbacks(on_revoke=on_revoke, on_lost=on_lost), oldest)
        self.call_later(self._take_over)

    def _replace(self, hook: Callbacks | None, oldest: Oldest | None) -> None:
        """Take the place of the application's callbacks and of the polls, or give it back."""
        self.hook.interceptor = hook
        self.parts.driver.meter.is_elsewhere = hook is not None
        if self.parts.decoder is not None:
            self.parts.decoder.is_paused = hook is not None
        self.parts.work.oldest = oldest

    def _take_over(self) -> None:
        """Commit what the application handled before as before, and then only what is stored."""
        store = self.parts.committing.store
        self._was_automatic = store.automatic
        if store.automatic:
            store.store(store.due(self.parts.listener.owned))
            store.automatic = False

    def detach(self, unhandled: Iterable[tuple[Partition, int]], *, is_complete: bool) -> None:
        """Leave the consumer as it was; it continues at the first records that were not handled.

        Args:
            unhandled: partitions with the offset of the first such record.
            is_complete: whether processing knows all records that were handed out. If not, because
                Ctrl-C came between a record and its note, commits go on to take only the offsets
                that were stored. Otherwise `close` would commit past that record.
        """
        for (topic, number), offset in unhandled:
            listener = self.parts.listener
            if (topic, number) in listener.owned - listener.stopping:
                with suppress(KafkaException, RuntimeError):  # lost at this moment, or closed
                    self.seek(topic, number, offset)
        self._replace(None, None)
        if is_complete:
            self.call_later(self._restore)
        if not self.is_closed():  # the pauses of the application stay
            self.resume(self.parts.fetching.record_buffer.paused_by("processing"))

    def _restore(self) -> None:
        listener, committing = self.parts.listener, self.parts.committing
        # After `seek` there is no position until the next record. So a later commit of positions
        # would leave these offsets out.
        committing.commit_due(listener.owned)
        # Positions of partitions whose stop has not ended pass records that were not handled.
        committing.store.stored_only = listener.stopping
        committing.store.automatic = self._was_automatic

    def store(self, offsets: Iterable[StoredOffset]) -> None:
        """Store offsets for the next commit."""
        self.parts.committing.store.store(
            Offset(one.topic, one.partition, one.offset, one.leader_epoch) for one in offsets
        )

    def wake(self) -> None:
        """Let a waiting `poll` look around; for any thread."""
        self.parts.driver.inbox.wake()

    def tend(
        self,
        offsets: Iterable[StoredOffset],
        pause: Collection[Partition],
        resume: Collection[Partition],
        waiting: Iterable[tuple[Partition, int]],
    ) -> None:
        """Store offsets, pause and resume partitions, and name the records that they wait for."""
        self.store(offsets)
        if pause:
            self.pause(pause)
        if resume:
            self.resume(resume)
        for partition, offset in waiting:
            self._warn("partition_waits_for_record", partition, offset)

    def give_up(self, left: Left) -> None:
        """Store the last offsets of partitions, and say which of their records are not handled."""
        self.store(left.offsets)
        for work in left.late:
            self.warn("handler_takes_too_long", work)

    def warn(self, event: str, work: RecordInFlight, **fields: object) -> None:
        """Log a warning about a record."""
        self._warn(event, work.tenure.partition, work.offset, **fields)

    def _warn(self, event: str, partition: Partition, offset: int, **fields: Any) -> None:  # noqa: ANN401
        topic, number = partition
        self.parts.driver.sink.warn(event, topic=topic, partition=number, offset=offset, **fields)

    def call(self, callback: Callable[..., Any] | None, partitions: Iterable[Partition]) -> Any:  # noqa: ANN401
        """Run a callback of the application for partitions; return its result."""
        named = [TopicPartition(topic, number) for topic, number in sorted(partitions)]
        if callback is None or not named:
            return None
        return callback(self.consumer, named)
