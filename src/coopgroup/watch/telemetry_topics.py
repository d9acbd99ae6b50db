"""Read telemetry from a topic (`coopgroup.telemetry.topic`), as the lines of telemetry files."""

from __future__ import annotations

import hashlib
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, Self
from uuid import UUID

from attrs import define, field
from confluent_kafka import KafkaError, KafkaException, TopicPartition

# Instrumentation replaces confluent_kafka.Consumer, and would make a span for each record.
from confluent_kafka.cimpl import Consumer

from coopgroup.core.member.effects import Lane
from coopgroup.errors import ConfigurationError, CoopgroupError
from coopgroup.kafka.clock import now_s
from coopgroup.kafka.config.shown_values import shown_configuration
from coopgroup.kafka.rpc.outcomes import TransportFailure
from coopgroup.kafka.rpc.questions import FindTopics, FoundTopic
from coopgroup.kafka.rpc.transport import GroupTransport

_BATCH: Final = 1_000
_WAIT_S: Final = 0.5
# A member repeats a batch within a minute. A reader may run for months.
_SEEN_MAX: Final = 100_000
_BEGINNING, _END = -2, -1
# Between two questions for the topic's id and its partitions.
_TOPIC_S: Final = 5.0


@define(eq=False)
class TelemetryReader:
    """Reads a topic from its beginning, or from a time on; it joins no group.

    A member may add a record twice, if an answer of the broker is lost. The reader returns it once.

    `read_now` also asks for the topic's id. A topic that was made again may have more records than
    were read of the old one, so the offsets do not tell. The reader then begins at its beginning.

    The end of the `with` block does not wait for another thread that reads. librdkafka's consumer
    must not be closed during a call, so then that thread closes it.

    Attributes:
        configuration: keys of librdkafka's consumer.
        group: the group to read, None for all.
        since_ms: time of the first record, in ms since 1970; None for the oldest record.
        timeout_s: how long the brokers may take for an answer.
        transport: connections for the questions of `read_now`; None if it is not called.
        times_made_again: how often the topic was made again.
    """

    configuration: Mapping[str, Any] = field(repr=shown_configuration)
    topic: str
    group: str | None = None
    since_ms: int | None = None
    timeout_s: float = 10.0
    transport: GroupTransport | None = None
    times_made_again: int = field(default=0, init=False)
    # The id of the topic that is read, None if unknown, and the topic as last found.
    _topic_id: UUID | None = field(default=None, init=False)
    _found: FoundTopic | None = field(default=None, init=False)
    _is_asking: bool = field(default=False, init=False)
    _ask_at_s: float = field(default=0.0, init=False)
    _consumer: Any = field(default=None, init=False)
    # Next offset of each partition.
    _next: dict[int, int] = field(factory=dict, init=False)
    # The latest records, as digests, and their order.
    _seen: set[bytes] = field(factory=set, init=False)
    _order: deque[bytes] = field(factory=deque, init=False)
    # Held during each call of the consumer after `__enter__`.
    _calling: threading.Lock = field(factory=threading.Lock, init=False)
    _is_over: bool = field(default=False, init=False)

    def __enter__(self) -> Self:
        """Find the partitions.

        Raises:
            ConfigurationError: no broker answers, or there is no such topic, or no right to read.
        """
        more = {"auto.offset.reset": "earliest", "enable.partition.eof": True}
        self._consumer = Consumer({**self.configuration, **more})
        try:
            self._ask_for_topic()  # first: a topic that is made again after this is noticed
            self._begin({}, self.since_ms)
        except BaseException:
            self._consumer.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connections, or let the thread that reads close them."""
        self._is_over = True
        self._close_if_over()

    def read_to_end(self) -> Iterator[bytes]:
        """Yield the records up to the present end of the topic; a later call yields later ones.

        Raises:
            ConfigurationError: a broker does not answer in time, or refuses.
            CoopgroupError: the reader is closed.
        """
        ends = {one: self._end_of(one) for one in self._next}
        deadline_s = now_s() + self.timeout_s
        while any(offset < ends[one] for one, offset in self._next.items()):
            with self._client() as consumer:
                found = consumer.consume(_BATCH, _WAIT_S)
            yield from self._take_all(found)
            if found:
                deadline_s = now_s() + self.timeout_s
            elif now_s() > deadline_s:
                raise ConfigurationError("topic", self.topic, "brokers that send its records")

    def read_now(self) -> Iterator[bytes]:
        """Yield records that have arrived since the last call, at most 1,000.

        This waits only if the topic was made again, or has got more partitions.

        Raises:
            ConfigurationError: a broker refuses.
            CoopgroupError: the reader is closed.
        """
        self._ask_for_topic()
        self._follow_topic()
        with self._client() as consumer:
            found = consumer.consume(_BATCH, 0)
        yield from self._take_all(found)

    @contextmanager
    def _client(self) -> Iterator[Any]:
        try:
            with self._calling:
                if self._is_over:
                    raise CoopgroupError("the reader of telemetry is closed")
                yield self._consumer
        finally:
            self._close_if_over()

    def _close_if_over(self) -> None:
        # Both threads try after `_is_over` is set, so one of them gets the lock.
        if self._is_over and self._calling.acquire(blocking=False):
            try:
                consumer, self._consumer = self._consumer, None
                if consumer is not None:
                    consumer.close()
            finally:
                self._calling.release()

    # --- the topic itself ------------------------------------------------------------------------

    def _ask_for_topic(self) -> None:
        """Ask for the topic's id and its partitions, if that is due."""
        if self.transport is None or self._is_asking or now_s() < self._ask_at_s:
            return
        self._is_asking, self._ask_at_s = True, now_s() + _TOPIC_S
        question = FindTopics(names=(self.topic,))
        timeout_ms = round(1000 * self.timeout_s)
        self.transport.send(
            Lane.COMMIT, question, self._hear_topic, node=None, timeout_ms=timeout_ms
        )

    def _hear_topic(self, answer: Mapping[str, FoundTopic] | TransportFailure) -> None:
        """Note the topic, on the transport's thread."""
        if not isinstance(answer, TransportFailure):
            self._found = answer[self.topic]
        self._is_asking = False

    def _follow_topic(self) -> None:
        """Begin again if the topic was made again, and add new partitions."""
        found, self._found = self._found, None
        if found is None or found.error_code:
            return
        before = self._topic_id or found.topic_id
        is_other = found.topic_id is not None and found.topic_id != before
        if is_other or found.partition_count > len(self._next):
            with self._client():
                self._begin({} if is_other else self._next, None)
        self.times_made_again += is_other
        self._topic_id = found.topic_id or before

    def _begin(self, known: Mapping[int, int], since_ms: int | None) -> None:
        """Read some partitions on, and begin the others at a time or at their beginning.

        Args:
            known: next offsets of the partitions that are read on.
            since_ms: as the attribute.
        """
        try:
            found = self._consumer.list_topics(self.topic, timeout=self.timeout_s)
            topic = found.topics[self.topic]
            if topic.error is not None:
                raise self._refusal(topic.error)
            fresh = topic.partitions.keys() - known.keys()
            places = [TopicPartition(self.topic, one, _BEGINNING) for one in fresh]
            if since_ms is not None:
                asked = [TopicPartition(self.topic, one, since_ms) for one in fresh]
                places = self._consumer.offsets_for_times(asked, timeout=self.timeout_s)
            offsets = {**known, **{one.partition: self._first_of(one) for one in places}}
            self._consumer.assign(
                [TopicPartition(self.topic, *one) for one in sorted(offsets.items())]
            )
        except KafkaException as error:
            raise self._refusal(error.args[0]) from None
        self._next = offsets

    def _first_of(self, place: TopicPartition) -> int:
        low, high = self._consumer.get_watermark_offsets(place, timeout=self.timeout_s)
        return low if place.offset == _BEGINNING else high if place.offset == _END else place.offset

    def _end_of(self, partition: int) -> int:
        place = TopicPartition(self.topic, partition)
        try:
            with self._client() as consumer:
                return int(consumer.get_watermark_offsets(place, timeout=self.timeout_s)[1])
        except KafkaException as error:
            raise self._refusal(error.args[0]) from None

    def _take_all(self, messages: Iterable[Any]) -> Iterator[bytes]:
        """Yield the new records of a batch; an error comes after the other partitions' records."""
        refusal = None
        for message in messages:
            try:
                yield from self._take(message)
            except ConfigurationError as error:
                refusal = error
        if refusal is not None:
            raise refusal

    def _take(self, message: Any) -> Iterator[bytes]:  # noqa: ANN401  (confluent_kafka's)
        """Note the offset, and yield a new record of the group."""
        error, partition = message.error(), message.partition()
        if error is not None and error.code() == KafkaError._PARTITION_EOF:
            # Offsets before the end may have no record, because retention has deleted it.
            self._next[partition] = max(self._next[partition], message.offset())
            return
        if error is not None:
            raise self._refusal(error)
        self._next[partition] = message.offset() + 1
        value = message.value()
        if value is None or (self.group is not None and message.key() != self.group.encode()):
            return
        digest = hashlib.blake2b(value, digest_size=16).digest()
        if digest in self._seen:
            return
        self._seen.add(digest)
        self._order.append(digest)
        if len(self._order) > _SEEN_MAX:
            self._seen.remove(self._order.popleft())
        yield value

    def _refusal(self, error: Any) -> ConfigurationError:  # noqa: ANN401  (KafkaError)
        return ConfigurationError("topic", self.topic, f"a topic that can be read ({error.str()})")
