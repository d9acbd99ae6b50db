"""`Pump`: serves the group and hands out records, for both kinds of consumer.

A pump has no thread of its own. `serve` carries out the notices of the group, and begins the
auto-commit when it is due. Then the caller fetches (`fetching`). `take` hands out records. The
synchronous consumer does all three on the application's thread. With asyncio, one thread serves and
fetches, and the event loop takes.

Rules of this file. A record leaves only while the lease holds and the group has no notice; both are
checked immediately before. Until a record has reached the application it is `leaving`, and no
position counts it. A record that does not reach the application is put back with its bytes. It is
dropped if its partition was given up meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from attrs import define, field
from confluent_kafka import KafkaException, Message
from confluent_kafka.error import ConsumeError

from coopgroup.kafka.callbacks.listener import GroupListener
from coopgroup.kafka.clock import now_s
from coopgroup.kafka.membership.driver import GroupDriver
from coopgroup.kafka.records.committing import Committing
from coopgroup.kafka.records.decoding import Decoder
from coopgroup.kafka.records.fetching import Fetching
from coopgroup.kafka.records.pace import Pace
from coopgroup.kafka.records.record_buffer import Partition, partition_of

ALL: Final[frozenset[Partition]] = frozenset()
"""Records of any partition, in place of some partitions."""


@define(eq=False)
class Pump:
    """Serves the group for one consumer, and hands out its records.

    Attributes:
        decoder: decodes records as they leave; None without deserializers.
        pace: how long a thread may wait for records before it looks at the group again.
    """

    driver: GroupDriver
    fetching: Fetching
    committing: Committing
    listener: GroupListener
    decoder: Decoder | None = None
    pace: Pace = field(factory=Pace)
    # The decoded records that are leaving, with their bytes.
    _before: Sequence[tuple[Message, Any, Any]] = field(default=(), init=False)

    def may_leave(self) -> bool:
        """Return whether records may leave now; for any thread."""
        # Check the lease first: the loss is queued before the lease is cleared.
        return now_s() < self.driver.lease_until_s and not self.driver.inbox.waiting

    def serve(self) -> None:
        """Carry out all notices of the group, and begin the auto-commit if it is due.

        Raises:
            KafkaException: the group has permanently refused this member, or a callback polls.
            Exception: raised by a callback.
        """
        if self.driver.inbox.waiting:
            self.pace.restart()
        self.listener.serve()
        self.committing.commit_by_clock(self.listener.owned)

    def take(self, count: int, partitions: frozenset[Partition] = ALL) -> list[Message]:
        """Take the next records that may leave, at most `count`, decoded.

        They are leaving until the caller empties `leaving` of the buffer. If another thread takes
        records, those that need no decoding count as received immediately.

        Raises:
            ConsumeError: the first record is an error event, or cannot be decoded. It has left.
            KafkaException: another thread takes records, and an error event is first.
        """
        buffer = self.fetching.record_buffer
        decodes = self.decoder is not None and not self.decoder.is_paused
        self._before = ()
        if not self.may_leave():
            return []
        with buffer.lock:
            taken = buffer.leave(count, partitions)
            # Do not compare an error with None: in confluent_kafka 2.16 this fails later.
            if buffer.is_shared and any(map(Message.error, taken)):
                taken = self._before_event(taken)
            if buffer.is_shared and not decodes:
                buffer.leaving = ()
        return self._decoded(taken) if decodes and taken else taken

    def _before_event(self, taken: list[Message]) -> list[Message]:
        """Put back all from the first error event on; raise the event if nothing is before it."""
        first = next(at for at, one in enumerate(taken) if one.error() is not None)
        self.put_back(taken[max(1, first) :], leaving=taken[:first])
        if first == 0:
            raise KafkaException(taken[0].error())
        return taken[:first]

    def _decoded(self, taken: list[Message]) -> list[Message]:
        """Decode records that are leaving; put back those that do not leave now."""
        assert self.decoder is not None
        self._before = [(one, one.key(), one.value()) for one in taken]
        decoded: list[Message] = []
        try:
            decoded = self.decoder.decode(taken)
        except ConsumeError:
            self.put_back(taken[1:])  # the first one leaves in the exception
            raise
        except BaseException:
            self.put_back(taken)
            raise
        if len(decoded) < len(taken):
            self.put_back(taken[len(decoded) :], leaving=decoded)
        return decoded

    def put_back(self, messages: Sequence[Message], *, leaving: Sequence[Message] = ()) -> None:
        """Queue records again that did not reach the application, with their bytes.

        Args:
            messages: the records. Those of partitions that were given up meanwhile are dropped.
            leaving: records that are still leaving.
        """
        for message, key, value in self._before:
            if any(message is one for one in messages):
                message.set_key(key)
                message.set_value(value)
        buffer = self.fetching.record_buffer
        with buffer.lock:
            fetched = self.fetching.fetched
            kept = [one for one in messages if partition_of(one) in fetched]
            buffer.put_back(kept, leaving)
