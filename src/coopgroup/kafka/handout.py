"""Records that were fetched and not handed out yet.

librdkafka gives records in batches far cheaper than one by one, and counts a record as consumed
once it gave it. So what the application has not got yet waits here, and the position of a
partition is that of its first record that waits.

Rules of this file: records of a partition keep their order; those of a paused partition wait
aside; those of a partition that is given up are dropped, for its next owner reads them again.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

from attrs import define, field

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from confluent_kafka import Message

__all__ = ["HandOut", "Partition", "partition_of"]

Partition: TypeAlias = tuple[str, int]


def partition_of(message: Message) -> Partition:
    """Which partition a record or event is of; ("", -1) for an error that is of none."""
    topic, partition = message.topic(), message.partition()
    return ("" if topic is None else topic, -1 if partition is None else partition)


@define(eq=False)
class HandOut:
    """The records that wait; only the application's thread changes it.

    Attributes:
        ready: to be handed out next, in order. The deque stays the same object for ever.
        rearranged: how often records came to it, or left it, in any other way than the usual ones.
        leaving: records on their way to the application. They wait until they are there: the
            handler of a signal may close the consumer meanwhile, or end the way by raising.
    """

    ready: deque[Message] = field(factory=deque, init=False)
    rearranged: int = field(default=0, init=False)
    leaving: Sequence[Message] = field(default=(), init=False)
    _aside: dict[Partition, list[Message]] = field(factory=dict, init=False)

    @property
    def paused(self) -> frozenset[Partition]:
        """Partitions whose records wait aside."""
        return frozenset(self._aside)

    def add(self, messages: Iterable[Message]) -> None:
        """Add fetched records at the end."""
        if not self._aside:
            self.ready.extend(messages)
            return
        for message in messages:
            waiting = self._aside.get(partition_of(message))
            (self.ready if waiting is None else waiting).append(message)

    def peek(self, count: int) -> list[Message]:
        """The next records, up to a number; they stay until `take` is told that they went."""
        if len(self.ready) <= count:
            return list(self.ready)
        return list(islice(self.ready, count))

    def take(self, count: int) -> None:
        """Forget the first records: the application has them."""
        if count >= len(self.ready):
            self.ready.clear()
            return
        for _ in range(count):
            self.ready.popleft()

    def put_back(self, messages: Sequence[Message]) -> None:
        """Have records wait again that were leaving and reached nobody.

        Args:
            messages: the first that waited before; some of them may wait still, as the first.
        """
        self.leaving = ()
        first = self.ready[0] if self.ready else None
        gone = next((at for at, one in enumerate(messages) if one is first), len(messages))
        self.ready.extendleft(reversed(messages[:gone]))

    def drop(self, partitions: Iterable[Partition]) -> None:
        """Forget partitions that are given up, and that they were paused."""
        gone = frozenset(partitions)
        for partition in gone:
            self._aside.pop(partition, None)
        self._keep(lambda message: partition_of(message) not in gone)

    def skip(self, partition: Partition) -> None:
        """Forget what waits of a partition that goes on elsewhere; it stays paused if it was."""
        if partition in self._aside:
            self._aside[partition] = []
        self._keep(lambda message: partition_of(message) != partition)

    def pause(self, partitions: Iterable[Partition]) -> None:
        """Put the records of partitions aside, those to come too."""
        for partition in partitions:
            self._aside.setdefault(partition, [])
        for message in self.ready:
            waiting = self._aside.get(partition_of(message))
            if waiting is not None:
                waiting.append(message)
        self._keep(lambda message: partition_of(message) not in self._aside)

    def resume(self, partitions: Iterable[Partition]) -> None:
        """Hand out what was put aside, before anything that comes later."""
        self.rearranged += 1
        for partition in partitions:
            self.ready.extendleft(reversed(self._aside.pop(partition, [])))

    def first_waiting(self) -> Mapping[Partition, Message]:
        """The first record that waits of every partition that has one; from any thread."""
        first: dict[Partition, Message] = {}
        for message in self._all():
            first.setdefault(partition_of(message), message)
        return first

    def last_waiting(self) -> Mapping[Partition, Message]:
        """The last record that waits of every partition that has one."""
        return {partition_of(message): message for message in self._all()}

    def _all(self) -> list[Message]:
        """All records, the older ones of each partition first; those that leave may come twice."""
        aside = [message for messages in tuple(self._aside.values()) for message in messages]
        # A copy of the deque is made in one go, so another thread may take records meanwhile.
        ready = self.ready.copy()
        return [one for one in (*self.leaving, *aside, *ready) if one.error() is None]

    def _keep(self, wanted: Callable[[Message], bool]) -> None:
        self.rearranged += 1
        kept = [message for message in self.ready if wanted(message)]
        self.ready.clear()
        self.ready.extend(kept)
