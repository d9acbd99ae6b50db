"""Records that were fetched and not handed out yet.

librdkafka gives records in batches far cheaper than one by one, and counts a record as consumed
once it gave it. So what the application has not got yet waits here, and the position of a
partition is that of its first record that waits.

Rules of this file: records of a partition keep their order; those of a paused partition wait
aside; those of a partition that is given up are dropped, for its next owner reads them again.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, TypeAlias

from attrs import define, field

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from confluent_kafka import Message

__all__ = ["HandOut", "Partition"]

Partition: TypeAlias = tuple[str, int]


@define(eq=False)
class HandOut:
    """The records that wait; only the application's thread touches it.

    Attributes:
        ready: to be handed out next, in order. The deque stays the same object for ever.
    """

    ready: deque[Message] = field(factory=deque, init=False)
    _aside: dict[Partition, list[Message]] = field(factory=dict, init=False)

    def add(self, messages: Iterable[Message]) -> None:
        """Add fetched records at the end."""
        if not self._aside:
            self.ready.extend(messages)
            return
        for message in messages:
            waiting = self._aside.get(_partition_of(message))
            (self.ready if waiting is None else waiting).append(message)

    def drop(self, partitions: Iterable[Partition]) -> None:
        """Forget the records of partitions that are given up or sought in."""
        gone = set(partitions)
        for partition in gone:
            self._aside.pop(partition, None)
        self._keep(lambda message: _partition_of(message) not in gone)

    def pause(self, partitions: Iterable[Partition]) -> None:
        """Put the records of partitions aside, those to come too."""
        for partition in partitions:
            self._aside.setdefault(partition, [])
        for message in self.ready:
            waiting = self._aside.get(_partition_of(message))
            if waiting is not None:
                waiting.append(message)
        self._keep(lambda message: _partition_of(message) not in self._aside)

    def resume(self, partitions: Iterable[Partition]) -> None:
        """Hand out what was put aside, before anything that comes later."""
        for partition in partitions:
            self.ready.extendleft(reversed(self._aside.pop(partition, [])))

    def first_waiting_of_all(self) -> dict[Partition, Message]:
        """The first record that waits of every partition that has one."""
        first: dict[Partition, Message] = {}
        for messages in (*self._aside.values(), self.ready):
            for message in messages:
                if message.error() is None:
                    first.setdefault(_partition_of(message), message)
        return first

    def _keep(self, wanted: Callable[[Message], bool]) -> None:
        kept = [message for message in self.ready if wanted(message)]
        self.ready.clear()
        self.ready.extend(kept)


def _partition_of(message: Message) -> Partition:
    topic, partition = message.topic(), message.partition()
    return ("" if topic is None else topic, -1 if partition is None else partition)
