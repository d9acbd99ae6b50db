"""Records that were fetched and not handed out yet.

Taking records from librdkafka in batches is far cheaper than one by one. But librdkafka counts a
record as consumed once it has returned it. So records wait here until the application takes them,
and the position of a partition is the offset of its first waiting record.

Rules of this file: records of a partition keep their order. Records of a paused partition wait
aside. Records of a revoked or lost partition are dropped, because the next owner reads them again.

The application pauses partitions, and so does `coopgroup.processing` at its limits. Each of them
resumes only its own pauses: a partition continues when neither pauses it.

A buffer may be shared with one other thread, which takes records (`coopgroup.aio`). It takes single
records from the start of `ready` without a lock, because a lock for each record is too slow. So a
shared buffer empties `ready` from its end before it rearranges the records. All other work of
either thread needs the lock.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby, islice
from typing import Literal, TypeAlias

from attrs import define, field
from confluent_kafka import Message

Partition: TypeAlias = tuple[str, int]
Pauser: TypeAlias = Literal["application", "processing"]


def partition_of(message: Message) -> Partition:
    """Return the partition of a record or event; ("", -1) for an error without a partition."""
    topic, partition = message.topic(), message.partition()
    return ("" if topic is None else topic, -1 if partition is None else partition)


@define(eq=False)
class RecordBuffer:
    """The waiting records; only the application's thread changes it, unless it is shared.

    Attributes:
        is_shared: whether another thread takes the records.
        lock: guards all changes but single records taken from the start of `ready`.
        ready: records to hand out next, in order. The deque is never replaced.
        rearranged: number of changes to `ready` other than adding at the end and taking from the
            start.
        leaving: records on their way to the application. They stay here until they arrive, because
            a signal handler may close the consumer meanwhile, or raise.
    """

    is_shared: bool = False
    lock: threading.RLock = field(factory=threading.RLock, init=False)
    ready: deque[Message] = field(factory=deque, init=False)
    rearranged: int = field(default=0, init=False)
    leaving: Sequence[Message] = field(default=(), init=False)
    _aside: dict[Partition, list[Message]] = field(factory=dict, init=False)
    _paused_by: dict[Pauser, set[Partition]] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._paused_by = {"application": set(), "processing": set()}

    @property
    def paused(self) -> frozenset[Partition]:
        """Return the partitions whose records wait aside."""
        return frozenset(self._aside)

    def paused_by(self, pauser: Pauser) -> frozenset[Partition]:
        """Return the partitions that the application, or processing, has paused; for any thread."""
        with self.lock:
            return frozenset(self._paused_by[pauser])

    def paused_besides(self, pauser: Pauser) -> frozenset[Partition]:
        """Return the partitions that stay paused when this one resumes them; for any thread."""
        return self.paused_by("processing" if pauser == "application" else "application")

    def add(self, messages: Iterable[Message]) -> None:
        """Add fetched records at the end."""
        with self.lock:
            if not self._aside:
                self.ready.extend(messages)
                return
            for message in messages:
                waiting = self._aside.get(partition_of(message))
                (self.ready if waiting is None else waiting).append(message)

    def peek(self, count: int) -> list[Message]:
        """Return the next records, at most `count`, without removing them."""
        if len(self.ready) <= count:
            return list(self.ready)
        return list(islice(self.ready, count))

    def take(self, count: int) -> None:
        """Remove the first `count` records, which the application has received."""
        if count >= len(self.ready):
            self.ready.clear()
            return
        for _ in range(count):
            self.ready.popleft()

    def leave(self, count: int, partitions: frozenset[Partition] = frozenset()) -> list[Message]:
        """Remove and return the next records, at most `count`, of some partitions if any are given.

        They are `leaving` until the caller says otherwise.
        """
        with self.lock:
            if partitions:
                self.leaving = taken = self._take_of(partitions, count)
            else:
                # First: they are always in one of the two.
                self.leaving = taken = self.peek(count)
                self.take(len(taken))
            return taken

    def _take_of(self, partitions: frozenset[Partition], count: int) -> list[Message]:
        taken: list[Message] = []
        passed: list[Message] = []
        # Only the thread that takes records calls this, so none leaves meanwhile.
        while self.ready and len(taken) < count:
            message = self.ready.popleft()
            (taken if partition_of(message) in partitions else passed).append(message)
        if passed:
            self.rearranged += 1
            self.ready.extendleft(reversed(passed))
        return taken

    def ready_counts(self) -> Counter[Partition]:
        """Return the number of ready records of each partition, from any thread."""
        with self.lock:
            return Counter(map(partition_of, self.ready.copy()))

    def has_ready(self, partitions: Container[Partition]) -> bool:
        """Return whether a record of some partitions is ready, from any thread."""
        with self.lock:
            return any(partition_of(message) in partitions for message in self.ready.copy())

    def waiting_of(self, partition: Partition) -> int:
        """Return the number of records of a paused partition."""
        return len(self._aside.get(partition, ()))

    def put_back(self, messages: Sequence[Message], leaving: Sequence[Message] = ()) -> None:
        """Put back records that were leaving and did not reach the application.

        Args:
            messages: the records; the last of them may be in `ready` still.
            leaving: records that are still leaving.
        """
        first = self.ready[0] if self.ready else None
        gone = next((at for at, one in enumerate(messages) if one is first), len(messages))
        self.ready.extendleft(reversed(messages[:gone]))
        self.leaving = leaving

    def drop(self, partitions: Iterable[Partition]) -> None:
        """Remove the records of partitions that are given up, and forget that they were paused."""
        gone = frozenset(partitions)
        with self.lock:
            for partition in gone:
                self._aside.pop(partition, None)
            for paused in self._paused_by.values():
                paused.difference_update(gone)
            self._keep(lambda message: partition_of(message) not in gone)

    def skip(self, partition: Partition) -> None:
        """Remove the records of a partition that continues at another offset.

        A paused partition stays paused.
        """
        with self.lock:
            if partition in self._aside:
                self._aside[partition] = []
            self._keep(lambda message: partition_of(message) != partition)

    def pause(self, partitions: Iterable[Partition], by: Pauser = "application") -> None:
        """Put the present and future records of partitions aside."""
        with self.lock:
            for partition in partitions:
                self._paused_by[by].add(partition)
                self._aside.setdefault(partition, [])
            ready = self._at_rest()
            for message in ready:
                waiting = self._aside.get(partition_of(message))
                if waiting is not None:
                    waiting.append(message)
            self._replace([one for one in ready if partition_of(one) not in self._aside])

    def resume(self, partitions: Iterable[Partition], by: Pauser = "application") -> None:
        """Hand out the records that were put aside, before any later record.

        A partition that the other one pauses too stays paused.
        """
        with self.lock:
            self.rearranged += 1
            kept = self.paused_besides(by)
            for partition in partitions:
                self._paused_by[by].discard(partition)
                if partition not in kept:
                    self.ready.extendleft(reversed(self._aside.pop(partition, [])))

    def first_waiting(self) -> Mapping[Partition, Message]:
        """Return the first waiting record of each partition, from any thread."""
        first: dict[Partition, Message] = {}
        for message in self._all():
            first.setdefault(partition_of(message), message)
        return first

    def last_waiting(self) -> Mapping[Partition, Message]:
        """Return the last waiting record of each partition."""
        return {partition_of(message): message for message in self._all()}

    def _all(self) -> list[Message]:
        with self.lock:
            aside = [message for messages in tuple(self._aside.values()) for message in messages]
            # Copying a deque is atomic, so another thread may take records meanwhile.
            ready = self.ready.copy()
            return [one for one in (*self.leaving, *aside, *ready) if one.error() is None]

    def _keep(self, wanted: Callable[[Message], bool]) -> None:
        self._replace([message for message in self._at_rest() if wanted(message)])

    def _at_rest(self) -> Sequence[Message]:
        """Return the ready records; if the buffer is shared, no other thread takes them now."""
        if not self.is_shared:
            return self.ready
        taken: list[Message] = []
        while self.ready:
            with suppress(IndexError):  # the other thread took the last record
                taken.append(self.ready.pop())
        taken.reverse()
        return taken

    def _replace(self, kept: Sequence[Message]) -> None:
        self.rearranged += 1
        self.ready.clear()
        self.ready.extend(kept)


def runs_of(messages: Sequence[Message]) -> Iterator[tuple[Partition, Sequence[Message]]]:
    """Yield each run of records of one partition; leave events out."""
    # Without Python code for each record: a partition's records arrive in long runs.
    records = messages
    if any(map(Message.error, messages)):
        records = [one for one in messages if one.error() is None]
    for topic, of_topic in groupby(records, Message.topic):
        for number, run in groupby(of_topic, Message.partition):
            yield ("" if topic is None else topic, -1 if number is None else number), tuple(run)
