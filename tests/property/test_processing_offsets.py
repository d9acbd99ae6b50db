"""Any order of records, outcomes, revocations and losses: no offset passes an unfinished record."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from coopgroup.processing.scheduler import Limits, Order, Partition, RecordInFlight, Scheduler
from tests.support.fake_records import FakeRecord

PARTITIONS = st.integers(0, 2)
KEYS = st.sampled_from([None, b"a", b"b"])


class SchedulerMachine(RuleBasedStateMachine):
    """Plays a consumer and its workers; the model is the list of records of each assignment."""

    order: Order = "key"

    def __init__(self) -> None:
        super().__init__()
        limits = Limits(records=12, bytes=1_000, partition_records=6, handled_behind=3)
        self.scheduler = Scheduler(self.order, limits)
        self.read: dict[Partition, int] = {}  # next offset that the consumer hands out
        self.given: dict[Partition, list[int]] = {}  # offsets of the present assignment
        self.keys: dict[tuple[Partition, int], bytes | None] = {}
        self.handled: dict[Partition, set[int]] = {}
        self.committed: dict[Partition, int] = {}
        self.begun: list[RecordInFlight] = []
        self.ending: set[Partition] = set()
        self.lost: list[RecordInFlight] = []
        self.waiting: set[Partition] = set()  # at their limit of handled records, until half of it

    @rule(number=PARTITIONS, keys=st.lists(KEYS, min_size=1, max_size=4))
    def records_arrive(self, number: int, keys: list[bytes | None]) -> None:
        partition = ("t", number)
        if partition in self.ending or self.scheduler.room < len(keys):
            return
        start = self.read.get(partition, 0)
        offsets = range(start, start + 2 * len(keys), 2)  # transactions leave gaps
        records: Any = [
            FakeRecord(number=number, at=offset, its_key=key)
            for offset, key in zip(offsets, keys, strict=True)
        ]
        self.scheduler.add(records)
        self.read[partition] = offsets[-1] + 2
        self.given.setdefault(partition, []).extend(offsets)
        self.keys.update(zip(((partition, one) for one in offsets), keys, strict=True))
        self.handled.setdefault(partition, set())

    @rule()
    def worker_begins(self) -> None:
        work = self.scheduler.take()
        if work is not None:
            in_lane = [one for one in self.begun + self.lost if one.lane is work.lane is not None]
            assert not in_lane, "two records of a lane at the same time"
            assert not self._earlier(work), f"{work.offset} began before an earlier one of its lane"
            self.begun.append(work)

    def _earlier(self, work: RecordInFlight) -> list[int]:
        """Return the records that must be handled before this one, and are not."""
        partition = work.tenure.partition
        key = self.keys[partition, work.offset]
        if self.order == "none" or (self.order == "key" and key is None):
            return []
        return [
            offset
            for offset in self.given[partition]
            if offset < work.offset
            and offset not in self.handled[partition]
            and (self.order == "partition" or self.keys[partition, offset] == key)
        ]

    @precondition(lambda self: self.begun)
    @rule(data=st.data())
    def worker_finishes(self, data: st.DataObject) -> None:
        work = data.draw(st.sampled_from(self.begun))
        self.begun.remove(work)
        self.scheduler.finish(work)
        self.handled[work.tenure.partition].add(work.offset)

    @precondition(lambda self: self.lost)
    @rule(data=st.data(), is_handled=st.booleans())
    def worker_ends_a_lost_record(self, data: st.DataObject, *, is_handled: bool) -> None:
        work = data.draw(st.sampled_from(self.lost))
        self.lost.remove(work)
        (self.scheduler.finish if is_handled else self.scheduler.abandon)(work)

    @precondition(lambda self: any(one.tenure.is_ending for one in self.begun))
    @rule(data=st.data())
    def worker_gives_up(self, data: st.DataObject) -> None:
        work = data.draw(st.sampled_from([one for one in self.begun if one.tenure.is_ending]))
        self.begun.remove(work)
        self.scheduler.abandon(work)

    @rule()
    def offsets_are_stored(self) -> None:
        for one in self.scheduler.take_offsets():
            partition = (one.topic, one.partition)
            passed = {offset for offset in self.given[partition] if offset < one.offset}
            assert passed <= self.handled[partition], "an offset passed an unfinished record"
            assert one.offset > self.committed.get(partition, -1), "an offset fell back"
            self.committed[partition] = one.offset

    @rule(number=PARTITIONS)
    def partition_is_revoked(self, number: int) -> None:
        partition = ("t", number)
        if partition not in self.given:
            return
        self.scheduler.end([partition])
        self.ending.add(partition)
        if self.scheduler.is_drained(partition):
            self._give_up(partition)

    @precondition(lambda self: self.ending)
    @rule()
    def drained_partitions_are_given_up(self) -> None:
        for partition in sorted(self.ending):
            if self.scheduler.is_drained(partition):
                self._give_up(partition)

    @precondition(lambda self: self.ending)
    @rule(data=st.data())
    def stop_takes_too_long(self, data: st.DataObject) -> None:
        partition = data.draw(st.sampled_from(sorted(self.ending)))
        self.offsets_are_stored()
        self._begun_is_lost(self.scheduler.stop_waiting(partition), partition)
        self._give_up(partition)

    @rule(number=PARTITIONS)
    def partition_is_lost(self, number: int) -> None:
        partition = ("t", number)
        if partition in self.given:
            self._begun_is_lost(self.scheduler.lose([partition]), partition)
            self._begin_anew(partition)

    def _begun_is_lost(self, works: list[RecordInFlight], partition: Partition) -> None:
        assert set(works) == {one for one in self.begun if one.tenure.partition == partition}
        self.begun = [one for one in self.begun if one.tenure.partition != partition]
        self.lost += works

    def _give_up(self, partition: Partition) -> None:
        self.offsets_are_stored()
        self.scheduler.forget(partition)
        self._begin_anew(partition)

    def _begin_anew(self, partition: Partition) -> None:
        """The partition returns later, at its committed offset."""
        self.ending.discard(partition)
        del self.given[partition]
        del self.handled[partition]
        self.waiting.discard(partition)
        self.read[partition] = self.committed.get(partition, 0)

    @invariant()
    def room_is_what_is_left(self) -> None:
        scheduler = self.scheduler
        assert 0 <= scheduler.in_flight <= 12
        assert scheduler.room == 12 - scheduler.in_flight
        assert scheduler.in_flight >= len(self.begun)

    @invariant()
    def paused_partitions_are_full(self) -> None:
        pause, resume, waiting = self.scheduler.take_pauses()
        assert not set(pause) & set(resume)
        assert {partition for partition, _ in waiting} <= set(pause)
        for partition, offsets in self.given.items():
            if partition in self.ending:
                continue
            is_handled = [one in self.handled[partition] for one in offsets]
            unhandled = is_handled.count(False)
            behind = sum(is_handled[is_handled.index(False) :]) if unhandled else 0
            if behind >= 3:
                self.waiting.add(partition)
            elif behind <= 1:
                self.waiting.discard(partition)
            is_paused = partition in self.scheduler.paused
            assert is_paused or (unhandled < 6 and partition not in self.waiting)
            assert not is_paused or unhandled > 3 or partition in self.waiting

    def teardown(self) -> None:
        """When all goes on to its end, nothing is left behind, and all offsets are passed."""
        for one in self.begun + self.lost:
            self.scheduler.finish(one)
            if one in self.begun:
                self.handled[one.tenure.partition].add(one.offset)
        while (work := self.scheduler.take()) is not None:
            self.scheduler.finish(work)
            self.handled[work.tenure.partition].add(work.offset)
        self.offsets_are_stored()
        assert self.scheduler.in_flight == 0
        assert self.scheduler.room == 12
        for partition, offsets in self.given.items():
            if partition not in self.ending and offsets:
                assert self.committed[partition] > offsets[-1]


class PartitionOrderMachine(SchedulerMachine):
    order = "partition"


class NoOrderMachine(SchedulerMachine):
    order = "none"


TestKeys = SchedulerMachine.TestCase
TestPartitions = PartitionOrderMachine.TestCase
TestNoOrder = NoOrderMachine.TestCase
TestKeys.settings = TestPartitions.settings = TestNoOrder.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None
)
