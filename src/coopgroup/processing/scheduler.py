"""Which record is handled next, and which offsets are safe to commit.

This is the pure part of `coopgroup.processing`: no thread, no clock, no consumer. Records come in
from the poll loop, workers take them and report the outcome, and the poll loop asks which offsets
to store. The caller makes sure that only one thread at a time is in here.

Rules of this file:

- Records of one lane are handled one after the other. A lane is a partition, or a key of a
  partition, as `Order` says.
- An offset is stored only if every earlier record of its partition has been handled. So a crash
  repeats records, and never skips one.
- A tenure keeps the places of its records, and no record. So the values of handled records go,
  even if an earlier record takes long.
- When a partition is given up, records that have not begun are dropped, because the next owner
  reads them anyway. The exception is a record before one that has begun already: it is still
  handled, so that the offset can pass the later one and the next owner need not repeat it.
- An assignment of a partition is a `Tenure`. What is reported for an earlier tenure never counts
  for a later one.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeAlias

from attrs import define, field, frozen
from confluent_kafka import Message

from coopgroup.errors import ConfigurationError
from coopgroup.processing.failures import DeadLetter, Failure, check_count

Order: TypeAlias = Literal["partition", "key", "none"]
Partition: TypeAlias = tuple[str, int]
LaneKey: TypeAlias = tuple[Partition, object]
State: TypeAlias = Literal[
    "trying",  # its handler runs, or may run next
    "pausing",  # the record waits for another attempt
    "last",  # its handler runs, or may run next, for the last time
    "sending",  # the record is sent to a topic for failed records
    "handled",  # the record need not be handled again
    "abandoned",  # the record is left to the next owner, or to a restart
]
"""The state of a record; `attempts.NEXT` has the state that follows."""
Place: TypeAlias = tuple[int, int]
"""An offset, and the leader epoch of the record before it, -1 if unknown."""

ORDERS = ("partition", "key", "none")


@frozen
class Limits:
    """How much may be in flight: taken from the consumer, and not handled yet.

    Args:
        records: number of records.
        bytes: size of their keys and values.
        partition_records: number of records of one partition. A partition at this limit is paused,
            so that a slow one does not take all the room.
        handled_behind: number of records of one partition that were handled while an earlier
            record was not. Their offsets cannot be committed, so a crash repeats them. A partition
            at this limit is paused until the earlier record ends.
    """

    records: int = 10_000
    bytes: int = 64_000_000
    partition_records: int = 1_000
    handled_behind: int = 10_000

    def __attrs_post_init__(self) -> None:
        for name in ("records", "bytes", "partition_records", "handled_behind"):
            check_count(f"limits.{name}", getattr(self, name))


@frozen
class StoredOffset:
    """An offset to store: every earlier record of the partition has been handled.

    Attributes:
        topic: topic.
        partition: number of the partition.
        offset: offset of the next record to handle.
        leader_epoch: epoch of the last handled record, -1 if unknown.
    """

    topic: str
    partition: int
    offset: int
    leader_epoch: int


@define(eq=False)
class Tenure:
    """One assignment of a partition, from its first record until it is given up or lost.

    Attributes:
        partition: topic and number.
        in_flight: number of records that were added, and neither handled nor dropped.
        is_ending: the partition is being given up, so no further record begins.
        is_lost: the group took the partition away; outcomes no longer count.
        added: number of records that have come in.
        begun_until: highest number of a record that has begun, 0 for none.
        first_unhandled: offset of the first record that has not been handled, None without one.
        handled_behind: number of records that were handled behind that record.
        is_waiting: `handled_behind` came to its limit, and has not fallen to half of it since.
    """

    partition: Partition
    in_flight: int = 0
    is_ending: bool = False
    is_lost: bool = False
    added: int = 0
    begun_until: int = 0
    first_unhandled: int | None = None  # written in one step: the health asks on another thread
    handled_behind: int = 0
    is_waiting: bool = False
    _first: int = 0  # number of the first record that has not been handled
    _unhandled: OrderedDict[int, Place] = field(factory=OrderedDict)  # by number
    _end: Place = (-1, -1)  # after the latest record
    _has_passed: bool = False  # since the last look at the offset to store

    def add(self, work: RecordInFlight) -> None:
        """Note a record. Offsets ascend, except where the topic was made again."""
        self.added += 1
        work.number = self.added
        self._unhandled[work.number] = work.offset, self._end[1]
        epoch = work.message.leader_epoch()
        self._end = work.offset + 1, -1 if epoch is None else epoch
        if self.first_unhandled is None:
            self._first, self.first_unhandled = work.number, work.offset

    def pass_by(self, work: RecordInFlight) -> None:
        """Note that a record has been handled."""
        del self._unhandled[work.number]
        if work.number == self._first:
            self._has_passed = True
            self._first, place = next(iter(self._unhandled.items()), (0, None))
            self.first_unhandled = None if place is None else place[0]
        places = self.added - self._first + 1
        self.handled_behind = places - len(self._unhandled) if self._unhandled else 0

    def take_offset(self) -> StoredOffset | None:
        """Return the offset to store, if it has changed since the last call."""
        has_passed, self._has_passed = self._has_passed, False
        if self.is_lost or not has_passed:
            return None
        offset, epoch = next(iter(self._unhandled.values()), self._end)
        return StoredOffset(*self.partition, offset, epoch)


@define(eq=False)
class Lane:
    """Records that are handled one after the other.

    Attributes:
        key: partition, and the key of its records if these are ordered by key.
        waiting: records that wait for the one before them, in order.
    """

    key: LaneKey
    waiting: deque[RecordInFlight] = field(factory=deque)


@define(eq=False)
class RecordInFlight:
    """A record in flight.

    Attributes:
        message: the record.
        tenure: the assignment under which it was fetched.
        lane: the lane that it occupies or waits in; None without any order.
        size: bytes of key and value.
        offset: its offset.
        number: its place among the records of the tenure.
        state: its state.
        attempt: number of the attempt, 1 for the first one.
        pause_s: pause before the next attempt, in seconds.
        letter: the dead letter, with the failure that it reports; None before it is due.
        error: the error of the last step.
    """

    message: Message
    tenure: Tenure
    lane: Lane | None
    size: int
    offset: int
    number: int = 0
    state: State = "trying"
    attempt: int = 1
    pause_s: float = 0.0
    letter: tuple[DeadLetter, Failure] | None = None
    error: BaseException | None = None


@define(eq=False)
class Scheduler:
    """The records in flight of one consumer.

    Args:
        order: which records are handled one after the other.
        limits: how much may be in flight.
    """

    order: Order
    limits: Limits
    _tenures: dict[Partition, Tenure] = field(factory=dict, init=False)
    _ending: dict[Partition, Tenure] = field(factory=dict, init=False)
    _lanes: dict[LaneKey, Lane] = field(factory=dict, init=False)
    _ready: deque[RecordInFlight] = field(factory=deque, init=False)
    _begun: set[RecordInFlight] = field(factory=set, init=False)
    _paused: set[Partition] = field(factory=set, init=False)
    _changed: set[Tenure] = field(factory=set, init=False)
    _records: int = field(default=0, init=False)
    _bytes: int = field(default=0, init=False)
    _latest_size: int = field(default=0, init=False)
    _is_closed: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        if self.order not in ORDERS:
            raise ConfigurationError("order", self.order, "'partition', 'key' or 'none'")

    # --- records come in -------------------------------------------------------------------------

    @property
    def room(self) -> int:
        """Return how many more records may come in, if they have the size of the latest one."""
        left = self.limits.bytes - self._bytes
        if left <= 0:
            return 0
        by_size = max(1, left // self._latest_size) if self._latest_size else self.limits.records
        return max(0, min(self.limits.records - self._records, by_size))

    @property
    def in_flight(self) -> int:
        """Return the number of records in flight."""
        return self._records

    def oldest(self) -> dict[Partition, int]:
        """Return the offset of the first unhandled record of each partition; for any thread."""
        found = {one: tenure.first_unhandled for one, tenure in self._tenures.copy().items()}
        return {one: offset for one, offset in found.items() if offset is not None}

    @property
    def in_progress(self) -> int:
        """Return the number of records that a worker has taken and not ended."""
        return len(self._begun)

    @property
    def partition_count(self) -> int:
        """Return the number of partitions that records have come from."""
        return len(self._tenures)

    @property
    def ready(self) -> int:
        """Return the number of records that a worker could take now."""
        return len(self._ready)

    def add(self, messages: Iterable[Message]) -> None:
        """Add records that the consumer has handed out, in order."""
        for message in messages:
            key, value = message.key(), message.value()
            size = (len(key) if key else 0) + (len(value) if value else 0)
            record: Any = message  # its topic, partition and offset are not None
            tenure = self._tenure((record.topic(), record.partition()))
            work = RecordInFlight(message, tenure, None, size, record.offset())
            tenure.add(work)
            self._latest_size = size
            if not self._is_closed:
                tenure.in_flight += 1
                self._records += 1
                self._bytes += size
                self._queue(work, key)

    def _tenure(self, partition: Partition) -> Tenure:
        tenures = self._ending if self._is_closed else self._tenures
        tenure = tenures.get(partition)
        if tenure is None:
            tenure = tenures[partition] = Tenure(partition, is_ending=self._is_closed)
        return tenure

    def _queue(self, work: RecordInFlight, key: object) -> None:
        # A record without a key has no order to keep; Kafka spreads such records as well.
        if self.order == "none" or (self.order == "key" and key is None):
            self._ready.append(work)
            return
        lane_key = (work.tenure.partition, key if self.order == "key" else None)
        lane = self._lanes.get(lane_key)
        if lane is None:
            work.lane = self._lanes[lane_key] = Lane(lane_key)
            self._ready.append(work)
        else:
            work.lane = lane
            lane.waiting.append(work)

    # --- workers take them -----------------------------------------------------------------------

    def take(self) -> RecordInFlight | None:
        """Return the next record to handle; None if every other one waits for one in progress."""
        if not self._ready:
            return None
        work = self._ready.popleft()
        work.tenure.begun_until = max(work.tenure.begun_until, work.number)
        self._begun.add(work)
        return work

    def finish(self, work: RecordInFlight) -> None:
        """Report that a record need not be handled again."""
        self._begun.discard(work)
        tenure = work.tenure
        if not tenure.is_lost:
            self._leave(work)
            tenure.pass_by(work)
            self._changed.add(tenure)
        self._free(work.lane)

    def abandon(self, work: RecordInFlight) -> None:
        """Report that a record was given up without being handled; later ones of its lane are too.

        Its offset is never passed, so the next owner handles it.
        """
        self._begun.discard(work)
        if not work.tenure.is_lost:
            self._leave(work)
        if work.lane is not None:
            self._drop(lambda other: other.lane is work.lane and other.tenure is work.tenure)
        self._free(work.lane)

    def _leave(self, work: RecordInFlight) -> None:
        work.tenure.in_flight -= 1
        self._records -= 1
        self._bytes -= work.size

    def _free(self, lane: Lane | None) -> None:
        if lane is None:
            return
        if lane.waiting:
            self._ready.append(lane.waiting.popleft())
        else:
            del self._lanes[lane.key]

    # --- partitions go ---------------------------------------------------------------------------

    def end(self, partitions: Iterable[Partition]) -> None:
        """Begin no further record of partitions, except those before one that has begun.

        `is_drained` tells when their records have ended.
        """
        for partition in partitions:
            tenure = self._tenures.pop(partition, None)
            if tenure is not None:
                tenure.is_ending = True
                self._ending[partition] = tenure
                self._paused.discard(partition)
        self._drop(lambda work: work.tenure.is_ending and work.number > work.tenure.begun_until)

    def close(self) -> None:
        """Begin no further record, as `end` does for all partitions.

        Records that still come in are noted as not handled.
        """
        self.end(list(self._tenures))
        self._is_closed = True

    def is_drained(self, partition: Partition) -> bool:
        """Return whether a partition that ends has no record in flight any more."""
        tenure = self._ending.get(partition)
        return tenure is None or not tenure.in_flight

    def stop_waiting(self, partition: Partition) -> list[RecordInFlight]:
        """Give up the records of a partition that ends, and return those in progress.

        Their outcome does not count any more, so the next owner repeats them.
        """
        tenure = self._ending.get(partition)
        return [] if tenure is None else self._lose(tenure)

    def drop_waiting(self) -> None:
        """Drop all records that have not begun: the time to handle them is over."""
        self._drop(lambda _: True)

    def forget(self, partition: Partition) -> None:
        """Forget a partition that has been given up; take its offset before."""
        tenure = self._ending.pop(partition, None)
        if tenure is not None:
            self._changed.discard(tenure)

    def lose(self, partitions: Iterable[Partition]) -> list[RecordInFlight]:
        """Give up partitions that another member may own already.

        Returns:
            Their records in progress. The outcome of these does not count any more.
        """
        begun = []
        for partition in partitions:
            self._paused.discard(partition)
            for tenures in (self._tenures, self._ending):
                tenure = tenures.pop(partition, None)
                if tenure is not None:
                    begun += self._lose(tenure)
                    self._changed.discard(tenure)
        return begun

    def _lose(self, tenure: Tenure) -> list[RecordInFlight]:
        self._drop(lambda work: work.tenure is tenure)
        begun = [work for work in self._begun if work.tenure is tenure]
        for work in begun:
            self._leave(work)
        tenure.is_lost = True
        return begun

    def _drop(self, is_dropped: Callable[[RecordInFlight], bool]) -> None:
        """Drop records that have not begun."""
        for lane in self._lanes.values():
            self._drop_from(lane.waiting, is_dropped)
        for work in self._drop_from(self._ready, is_dropped):
            self._free(work.lane)

    def _drop_from(
        self, queue: deque[RecordInFlight], is_dropped: Callable[[RecordInFlight], bool]
    ) -> list[RecordInFlight]:
        dropped = [work for work in queue if is_dropped(work)]
        if dropped:
            kept = [work for work in queue if not is_dropped(work)]
            queue.clear()
            queue.extend(kept)
            for work in dropped:
                self._leave(work)
        return dropped

    # --- what the poll loop asks -----------------------------------------------------------------

    def take_offsets(self) -> list[StoredOffset]:
        """Return the offsets to store that have changed since the last call."""
        due = [tenure.take_offset() for tenure in self._changed]
        self._changed.clear()
        return [offset for offset in due if offset is not None]

    def take_pauses(self) -> tuple[list[Partition], list[Partition], list[tuple[Partition, int]]]:
        """Return which partitions to pause and to resume since the last call.

        A partition pauses at a limit, and resumes at half of it. Otherwise it would be paused
        and resumed for each record.

        Returns:
            Partitions to pause; partitions to resume; and partitions that came to the limit
            `handled_behind`, with the offset of the record for which they wait.
        """
        pause: list[Partition] = []
        resume: list[Partition] = []
        waiting: list[tuple[Partition, int]] = []
        most, most_behind = self.limits.partition_records, self.limits.handled_behind
        for partition, tenure in () if self._is_closed else self._tenures.items():
            in_flight, behind = tenure.in_flight, tenure.handled_behind
            if behind >= most_behind and not tenure.is_waiting:
                tenure.is_waiting = True
                assert tenure.first_unhandled is not None
                waiting.append((partition, tenure.first_unhandled))
            elif behind <= most_behind // 2:
                tenure.is_waiting = False
            if partition not in self._paused:
                if in_flight >= most or tenure.is_waiting:
                    pause.append(partition)
            elif in_flight <= most // 2 and not tenure.is_waiting:
                resume.append(partition)
        self._paused.update(pause)
        self._paused.difference_update(resume)
        return pause, resume, waiting

    @property
    def paused(self) -> frozenset[Partition]:
        """Return the partitions that are paused because of their limit."""
        return frozenset(self._paused)

    def unhandled(self) -> list[tuple[Partition, int]]:
        """Return the first offset that has not been handled, of each partition that has one."""
        found = ((one, tenure.first_unhandled) for one, tenure in self._all())
        return [(partition, offset) for partition, offset in found if offset is not None]

    def _all(self) -> list[tuple[Partition, Tenure]]:
        return [*self._tenures.items(), *self._ending.items()]

    @property
    def partitions(self) -> list[Partition]:
        """Return the partitions that have a tenure, ending or not."""
        return [partition for partition, _ in self._all()]
