"""Notice that librdkafka's consumer has lost all brokers and will not look for them again.

librdkafka forgets brokers that a metadata answer does not list. An answer during a rolling upgrade
may list none. librdkafka then forgets all brokers, the bootstrap brokers too, and may never connect
again. It reports no error (librdkafka#5301, seen with 2.16). Only a new client helps.

A client without brokers is silent, and so is a client without new records. So this file asks a
silent client for metadata. `_TRANSPORT` means that the client knows no broker or reaches none.
Replacing a client that only waits for its brokers is harmless: the new client waits for them, too.
"""

from __future__ import annotations

from typing import Any, Final

from attrs import define, field
from confluent_kafka import OFFSET_END, KafkaError, KafkaException, TopicPartition

from coopgroup.kafka.clock import now_s

__all__ = ["ClientWatch", "seen_start"]

# How long a client is silent before a question. Each question is one request to a broker.
_SILENT_S: Final = 10.0
# Silence after the replacement of a client. It doubles with each replacement in a row.
_SILENT_S_MAX: Final = 160.0
_DOUBT_S: Final = 2.0
_FAILURES_MAX: Final = 3
# The application waits meanwhile: no longer than `poll` waits for records between two notices.
_ASK_S: Final = 0.05


@define(eq=False)
class ClientWatch:
    """Decides when a silent client must be replaced."""

    due_s: float = field(default=0.0, init=False)
    _silent_s: float = field(default=_SILENT_S, init=False)
    _failures: int = field(default=0, init=False)

    def hear(self) -> None:
        """Note a sign of life, or the first assignment of an idle client."""
        self._failures = 0
        self._silent_s = _SILENT_S
        self.due_s = now_s() + _SILENT_S

    def is_lost(self, client: Any, topic: str) -> bool:  # noqa: ANN401  (librdkafka's, or a test's)
        """Ask the client for metadata; return whether it repeatedly had no broker."""
        if _has_broker(client, topic):
            self.hear()
            return False
        self._failures += 1
        if self._failures < _FAILURES_MAX:
            self.due_s = now_s() + _DOUBT_S
            return False
        self._failures = 0
        self.due_s = now_s() + self._silent_s
        self._silent_s = min(2 * self._silent_s, _SILENT_S_MAX)
        return True


def _has_broker(client: Any, topic: str) -> bool:  # noqa: ANN401  (librdkafka's, or a test's)
    try:
        client.list_topics(topic, timeout=_ASK_S)
    except KafkaException as error:
        # A late answer is another error: then the client has a connection.
        return bool(error.args[0].code() != KafkaError._TRANSPORT)
    return True


def seen_start(client: Any, start: TopicPartition) -> TopicPartition:  # noqa: ANN401  (the same)
    """Return where a new client begins a partition without a position.

    The end of the partition is the end that the earlier client last saw. The end of today would
    leave out the records since.
    """
    if start.offset != OFFSET_END:
        return start
    partition = TopicPartition(start.topic, start.partition)
    _, partition.offset = client.get_watermark_offsets(partition, cached=True)
    return partition if partition.offset >= 0 else start
