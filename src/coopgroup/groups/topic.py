"""`CatalogueTopic`: a catalogue in a compacted topic, as Kafka Connect keeps its connectors.

The key of a record names a resource, or a connector with its tasks. The value is the definition. A
record without a value deletes it. Each process reads the topic to its end, and the version of the
catalogue grows with the offset of the end. With one partition, all processes see the changes in the
same order.

If the topic was made again, or has lost records, a process reads it from the beginning. The id of a
topic tells whether it was made again.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from typing import Any, Final
from uuid import UUID

import attrs
from attrs import define, field, frozen
from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition

# Instrumentation replaces confluent_kafka.Consumer, and would make a span for each record.
from confluent_kafka.cimpl import Consumer

from coopgroup.core.member.effects import Lane
from coopgroup.core.model import Resource
from coopgroup.errors import ConfigurationError, CoopgroupError, one_line
from coopgroup.groups.catalogue import Catalogue, Mark, Weights, definition_text
from coopgroup.kafka.clock import now_s
from coopgroup.kafka.config.shown_values import shown_configuration
from coopgroup.kafka.rpc.outcomes import TransportFailure
from coopgroup.kafka.rpc.questions import FindTopics, FoundTopic
from coopgroup.kafka.rpc.transport import GroupTransport

_STEP_S: Final = 0.1
_ANSWER_S: Final = 10.0
# How long a reader that was at the end waits for records that the broker will not send yet, because
# their transaction is open.
_OPEN_S: Final = 1.0
# Errors after which the topic may have other records at the offsets that were read before.
_DOUBTS: Final = frozenset(
    {
        KafkaError._AUTO_OFFSET_RESET,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)
# A faulty member may tell any version. A version beyond this limit could not grow any longer.
_TOLD_MAX: Final = 2**62


@frozen(kw_only=True)
class _Entry:
    """The resources of one key.

    Attributes:
        mark: definition, and a number that a name keeps until it is deleted.
    """

    weights: Weights
    mark: Mark


@define(eq=False)
class CatalogueTopic:
    """A catalogue in a compacted topic of one partition; give it to one `CooperativeGroup`.

    Without `tasks`, the key of a record names one resource, with index 0. With `tasks`, it names a
    connector, which is (name, -1), and each of its tasks has the same definition.

    A record that cannot be used is ignored with a warning (`definition_unusable`), so that its
    earlier definition counts.

    Args:
        topic: name of the topic.
        tasks: returns the number of tasks of a connector, or the weight of each task, from its name
            and its definition.
        decode: returns the definition as bytes or as a JSON value from the bytes of a value.
    """

    topic: str
    tasks: Callable[[str, Any], int | Iterable[int]] | None = field(default=None, kw_only=True)
    decode: Callable[[bytes], object] = field(default=json.loads, kw_only=True)
    _configuration: Mapping[str, Any] = field(factory=dict, init=False, repr=shown_configuration)
    _log_in: Callable[[Any], None] | None = field(default=None, init=False, repr=False)
    warn: Callable[..., None] = field(default=lambda *_, **__: None, init=False, repr=False)
    _transport: GroupTransport = field(init=False, repr=False)
    _consumer: Any = field(default=None, init=False)
    _entries: dict[str, _Entry] = field(factory=dict, init=False)
    _births: Iterator[int] = field(factory=count, init=False, repr=False)
    _made: Catalogue | None = field(default=None, init=False)
    # Whether records were read that `_made` does not have.
    _is_changed: bool = field(default=True, init=False)
    # The topic's id, None before Kafka 2.8, and its log start offset.
    _topic_id: UUID | None = field(default=None, init=False)
    _start: int = field(default=0, init=False)
    # Offset of the next record, and where the end was reached last.
    _next: int = field(default=0, init=False)
    _end: int | None = field(default=None, init=False)
    # The version of the catalogue minus `_next`.
    _ahead: int = field(default=0, init=False)
    # Only during another read from the beginning: the entries of the read before, and the end of
    # that read. The end is 0 if the topic is another one.
    _before: dict[str, _Entry] = field(factory=dict, init=False)
    _read_before: int = field(default=0, init=False)
    # Whether the last read failed in a way that may mean other records than before.
    _is_in_doubt: bool = field(default=False, init=False)
    # Held during each call of the consumer, which must not be closed during a call.
    _calling: threading.Lock = field(factory=threading.Lock, init=False)
    _is_closed: bool = field(default=False, init=False)

    def open(
        self,
        configuration: Mapping[str, Any],
        log_in: Callable[[Any], None] | None,
        warn: Callable[..., None],
        transport: GroupTransport,
    ) -> None:
        """Take the connection settings of the group; the group calls it.

        Args:
            configuration: keys of librdkafka's consumer.
            log_in: gives a consumer the newest credentials, or None.
            warn: writes a log event.
            transport: the group's connections.

        Raises:
            ConfigurationError: another group has the topic already.
        """
        if self._configuration:
            raise ConfigurationError("catalogue", self, "a CatalogueTopic for each group")
        self._configuration, self._log_in, self.warn = configuration, log_in, warn
        self._transport = transport

    def __call__(self, told: int | None = None) -> Catalogue:
        """Read up to the present end of the topic.

        Args:
            told: version that another member has seen before this call. This read cannot be older,
                so its catalogue gets at least this version.

        Raises:
            ConfigurationError: the topic has several partitions.
            CoopgroupError: the broker did not answer in time, or the group is closed.
            KafkaException: the topic does not exist, or the broker refuses.
        """
        with self._calling:
            self._refuse_if_closed()
            try:
                self._read_to_end()
            except KafkaException as failure:
                self._is_in_doubt |= failure.args[0].code() in _DOUBTS
                raise
            self._before = {}
            self._made, self._is_changed = self._catalogue(told), False
            return self._made

    def close(self) -> None:
        """End a read in progress, and close the connections."""
        self._is_closed = True
        with self._calling:
            consumer, self._consumer = self._consumer, None
            if consumer is not None:
                consumer.close()

    def _refuse_if_closed(self) -> None:
        if self._is_closed:
            raise CoopgroupError("the catalogue's group is closed")

    def _read_to_end(self) -> None:
        topic_id = self._find()
        if self._consumer is None:
            self._consumer, self._topic_id = self._connect(), topic_id
        start, end = self._consumer.get_watermark_offsets(
            TopicPartition(self.topic, 0), timeout=_ANSWER_S
        )
        if topic_id != self._topic_id:
            self._begin_again("the topic was made again", read_before=0)
        elif end < self._next:
            self._begin_again("the topic was made again, or has lost records", read_before=0)
        elif start > self._start and self._next > 0:
            self._begin_again("the oldest records were deleted", read_before=self._next)
        elif self._is_in_doubt:
            self._begin_again(None, read_before=self._next)
        self._topic_id, self._start, self._is_in_doubt = topic_id, start, False
        self._read_up_to(end)

    def _find(self) -> UUID | None:
        """Return the topic's id."""
        find = FindTopics(names=(self.topic,))
        timeout_ms = round(_ANSWER_S * 1000)
        answer = self._transport.ask(Lane.COMMIT, find, node=None, timeout_ms=timeout_ms)
        if isinstance(answer, TransportFailure):
            raise CoopgroupError(f"{self.topic}: {answer.message}")
        found: FoundTopic = answer[self.topic]
        if found.error_code:
            raise KafkaException(KafkaError(found.error_code))
        if found.partition_count != 1:
            raise ConfigurationError(
                "catalogue", self.topic, f"a topic with one partition, not {found.partition_count}"
            )
        return found.topic_id

    def _connect(self) -> Any:  # noqa: ANN401 - librdkafka's consumer
        consumer = Consumer(
            {
                **self._configuration,
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
            }
        )
        try:
            if self._log_in is not None:
                self._log_in(consumer)
            consumer.assign([TopicPartition(self.topic, 0, OFFSET_BEGINNING)])
        except BaseException:
            consumer.close()
            raise
        return consumer

    def _begin_again(self, why: str | None, *, read_before: int) -> None:
        """Read the topic from its beginning: resources that it has no longer are deleted.

        Otherwise this process would keep resources that a process that starts now cannot know.
        """
        if why is not None:
            self.warn("catalogue_read_again", topic=self.topic, error=why)
        self._consumer.assign([TopicPartition(self.topic, 0, OFFSET_BEGINNING)])
        self._before = self._before | self._entries
        self._entries, self._next, self._end = {}, 0, None
        self._read_before, self._is_changed = read_before, True

    def _read_up_to(self, end: int) -> None:
        since_s = now_s()
        while self._next < end:
            self._refuse_if_closed()
            message = self._consumer.poll(_STEP_S)
            if message is not None:
                since_s = now_s()
                # The end of the last read may arrive only now, behind which there are new records.
                if self._take(message) and self._next >= end:
                    break
            elif self._next == self._end and now_s() >= since_s + _OPEN_S:
                break
            elif now_s() >= since_s + _ANSWER_S:
                raise CoopgroupError(f"{self.topic}: the broker sends no records")

    def _take(self, message: Any) -> bool:  # noqa: ANN401 - confluent_kafka's
        """Take a record; return whether it is the end of the topic instead."""
        error = message.error()
        if error is not None and error.code() == KafkaError._PARTITION_EOF:
            # Offsets before the end may have no record: compaction, or the end of a transaction.
            self._next = self._end = message.offset()
            return True
        if error is not None:
            raise KafkaException(error)
        self._next, self._is_changed = message.offset() + 1, True
        try:
            name = message.key().decode()
            self._define(name, message.value(), message.offset())
        except Exception as failure:  # noqa: BLE001 -- one bad record must not end all reads
            key, error = repr(message.key()), one_line(failure)
            self.warn("definition_unusable", key=key, error=error)
        return False

    def _define(self, name: str, value: bytes | None, offset: int) -> None:
        if value is None:
            self._entries.pop(name, None)
            if offset >= self._read_before:
                self._before.pop(name, None)
            return
        definition = self.decode(value)
        if self.tasks is None:
            made = Catalogue.of([(name, 0)])
        else:
            made = Catalogue.of_connectors({name: self.tasks(name, definition)})
        earlier = self._entries.get(name) or self._before.get(name)
        birth = next(self._births) if earlier is None else earlier.mark[1]
        mark = definition_text(name, definition), birth
        self._entries[name] = _Entry(weights=made.weights, mark=mark)

    def _catalogue(self, told: int | None) -> Catalogue:
        """Return the catalogue; its version never goes back, and grows with each change.

        The end of a topic that was made again may be lower than before. Members that have seen
        different ends of the old topic would not agree on a version: `told` brings them together.
        """
        version = self._ahead + self._next
        if told is not None and told <= _TOLD_MAX:
            version = max(version, told)
        made = self._made
        found = made if made is not None and not self._is_changed else self._contents()
        if made is not None and made.version is not None:
            is_same = (found.weights, found.marks) == (made.weights, made.marks)
            if is_same and version <= made.version:
                return made
            version = max(version, made.version + 1)
        self._ahead = version - self._next
        return attrs.evolve(found, version=version)

    def _contents(self) -> Catalogue:
        weights = {pair: weight for one in self._entries.values() for pair, weight in one.weights}
        marks: dict[Resource, Mark] = {
            pair: one.mark for one in self._entries.values() for pair, _ in one.weights
        }
        return attrs.evolve(Catalogue.of(weights), marks=marks)
