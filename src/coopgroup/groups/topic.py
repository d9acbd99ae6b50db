"""`CatalogueTopic`: a catalogue in a compacted topic, as Kafka Connect keeps its connectors.

The key of a record names a resource, or a connector with its tasks. The value is the definition. A
record without a value deletes it. Each process reads the topic to its end, so that the offset of
the end is the version of the catalogue. With one partition, all processes see the changes in the
same order.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import attrs
from attrs import define, field, frozen
from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition

# Instrumentation replaces confluent_kafka.Consumer, and would make a span for each record.
from confluent_kafka.cimpl import Consumer

from coopgroup.core.model import Resource
from coopgroup.errors import ConfigurationError, CoopgroupError, one_line
from coopgroup.groups.catalogue import Catalogue, Mark, Weights, definition_text
from coopgroup.kafka.clock import now_s
from coopgroup.kafka.config.shown_values import shown_configuration

_STEP_S: Final = 0.1
_ANSWER_S: Final = 10.0
# How long a reader that was at the end waits for records that the broker will not send yet, because
# their transaction is open.
_OPEN_S: Final = 1.0


@frozen(kw_only=True)
class _Entry:
    """The resources of one key.

    Attributes:
        mark: definition, and the offset of its first record since its last deletion.
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
    _consumer: Any = field(default=None, init=False)
    _entries: dict[str, _Entry] = field(factory=dict, init=False)
    _made: Catalogue | None = field(default=None, init=False)
    # Offset of the next record, and where the end was reached last.
    _next: int = field(default=0, init=False)
    _end: int | None = field(default=None, init=False)
    # Held during each call of the consumer, which must not be closed during a call.
    _calling: threading.Lock = field(factory=threading.Lock, init=False)
    _is_closed: bool = field(default=False, init=False)

    def open(
        self,
        configuration: Mapping[str, Any],
        log_in: Callable[[Any], None] | None,
        warn: Callable[..., None],
    ) -> None:
        """Take the connection settings of the group; the group calls it.

        Args:
            configuration: keys of librdkafka's consumer.
            log_in: gives a consumer the newest credentials, or None.
            warn: writes a log event.

        Raises:
            ConfigurationError: another group has the topic already.
        """
        if self._configuration:
            raise ConfigurationError("catalogue", self, "a CatalogueTopic for each group")
        self._configuration, self._log_in, self.warn = configuration, log_in, warn

    def __call__(self) -> Catalogue:
        """Read up to the present end of the topic.

        Raises:
            ConfigurationError: the topic does not exist, or has several partitions.
            CoopgroupError: the broker did not answer in time, the topic was made again, or the
                group is closed.
            KafkaException: the broker refuses.
        """
        with self._calling:
            if self._consumer is None and not self._is_closed:
                self._consumer = self._begin()
            if not self._read_to_end() and self._made is not None:
                return self._made
            self._made = self._catalogue()
            return self._made

    def close(self) -> None:
        """End a read in progress, and close the connections."""
        self._is_closed = True
        with self._calling:
            consumer, self._consumer = self._consumer, None
            if consumer is not None:
                consumer.close()

    def _begin(self) -> Any:  # noqa: ANN401 - librdkafka's consumer
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
            self._check(consumer)
            consumer.assign([TopicPartition(self.topic, 0, OFFSET_BEGINNING)])
        except BaseException:
            consumer.close()
            raise
        return consumer

    def _check(self, consumer: Any) -> None:  # noqa: ANN401 - librdkafka's
        found = consumer.list_topics(self.topic, timeout=_ANSWER_S).topics[self.topic]
        if found.error is not None:
            raise KafkaException(found.error)
        count = len(found.partitions)
        if count != 1:
            raise ConfigurationError(
                "catalogue", self.topic, f"a topic with one partition, not {count}"
            )

    def _read_to_end(self) -> bool:
        """Read all records; return whether there was anything new."""
        if self._is_closed:
            raise CoopgroupError("the catalogue's group is closed")
        began, since_s = self._next, now_s()
        _, end = self._consumer.get_watermark_offsets(
            TopicPartition(self.topic, 0), timeout=_ANSWER_S
        )
        if end < self._next:
            raise CoopgroupError(f"{self.topic} was made again: restart the processes of the group")
        while self._next < end:
            if self._is_closed:
                raise CoopgroupError("the catalogue's group is closed")
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
        return self._next != began or self._made is None

    def _take(self, message: Any) -> bool:  # noqa: ANN401 - confluent_kafka's
        """Take a record; return whether it is the end of the topic instead."""
        error = message.error()
        if error is not None and error.code() == KafkaError._PARTITION_EOF:
            # Offsets before the end may have no record: compaction, or the end of a transaction.
            self._next = self._end = message.offset()
            return True
        if error is not None:
            raise KafkaException(error)
        self._next = message.offset() + 1
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
            return
        definition = self.decode(value)
        if self.tasks is None:
            made = Catalogue.of([(name, 0)])
        else:
            made = Catalogue.of_connectors({name: self.tasks(name, definition)})
        before = self._entries.get(name)
        birth = offset if before is None else before.mark[1]
        mark = definition_text(name, definition), birth
        self._entries[name] = _Entry(weights=made.weights, mark=mark)

    def _catalogue(self) -> Catalogue:
        weights = {pair: weight for one in self._entries.values() for pair, weight in one.weights}
        marks: dict[Resource, Mark] = {
            pair: one.mark for one in self._entries.values() for pair, _ in one.weights
        }
        return attrs.evolve(Catalogue.of(weights, version=self._next), marks=marks)
