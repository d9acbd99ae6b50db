"""Any order of attempts, revocations and losses: no record waits without a reason to go on."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from coopgroup.processing import DeadLetter, Limits, Retry, Skip, Stop
from coopgroup.processing.attempts import Attempts, Event, Leaving
from coopgroup.processing.scheduler import Order, Partition, RecordInFlight, Scheduler
from tests.support.fake_records import FakeProducer, FakeRecord

WORKERS = 3
NEVER_S = 1e9
PARTITIONS = st.integers(0, 2)
KEYS = st.sampled_from([None, b"a", b"b"])
OUTCOMES = st.sampled_from(
    [Retry(attempts=3), Skip(), DeadLetter(FakeProducer(), "failed"), Stop()]
)


class AttemptsMachine(RuleBasedStateMachine):
    """Plays a host: `begun` has the records in its hands, `paused` those with a timer."""

    order: Order = "key"

    def __init__(self) -> None:
        super().__init__()
        self.outcome: Any = Skip()
        self.ended = 0
        self.warned: list[str] = []
        self.scheduler = Scheduler(self.order, Limits(records=12))
        self.attempts = Attempts(
            self.scheduler,
            lambda _: self.outcome,
            WORKERS,
            warn=lambda event, _, **__: self.warned.append(event),
            note_end=self._note_end,
        )
        self.read: dict[Partition, int] = {}
        self.seen: set[RecordInFlight] = set()
        self.begun: list[RecordInFlight] = []
        self.paused: list[RecordInFlight] = []
        self.leaving: list[Leaving] = []
        self.is_closed = False
        self.is_over = False

    def _note_end(self) -> None:
        self.ended += 1

    @rule(number=PARTITIONS, keys=st.lists(KEYS, min_size=1, max_size=4))
    def records_arrive(self, number: int, keys: list[bytes | None]) -> None:
        partition = ("t", number)
        if self.is_closed or self._is_leaving(partition) or self.scheduler.room < len(keys):
            return
        start = self.read.get(partition, 0)
        records: Any = [
            FakeRecord(number=number, at=at, its_key=key) for at, key in enumerate(keys, start)
        ]
        self.scheduler.add(records)
        self.read[partition] = start + len(keys)

    def _is_leaving(self, partition: Partition) -> bool:
        return any(one.partition == partition for one in self.leaving)

    @rule()
    def step_begins(self) -> None:
        ready = self.attempts.ready
        work = self.attempts.take()
        assert (work is not None) == (ready > 0)
        if work is not None:
            assert work not in self.begun
            assert work.state in {"trying", "last", "sending"}
            self.begun.append(work)
            self.seen.add(work)

    @precondition(lambda self: self.begun)
    @rule(data=st.data(), outcome=OUTCOMES, is_good=st.booleans())
    def step_ends(self, data: st.DataObject, outcome: object, *, is_good: bool) -> None:
        self._end(data.draw(st.sampled_from(self.begun)), outcome, is_good=is_good)

    def _end(self, work: RecordInFlight, outcome: object, *, is_good: bool) -> None:
        self.begun.remove(work)
        self.outcome, state = outcome, work.state
        if work.tenure.is_lost:
            event: Event = "gone"
        elif is_good:
            event = self.attempts.succeed(work)
        else:
            event = self.attempts.fail(work, OSError("bad"))
        self.attempts.report(work, event)
        if work.state == "pausing":
            assert state == "trying", "another attempt after the last one"
            self.paused.append(work)
        if work.state == "handled":
            assert is_good or isinstance(outcome, Skip), "a failed record is passed"
        if event == "stop":
            self.is_closed = True
            assert self.attempts.failure is not None

    @precondition(lambda self: self.paused)
    @rule(data=st.data())
    def timer_ends(self, data: st.DataObject) -> None:
        work = data.draw(st.sampled_from(self.paused))
        self.paused.remove(work)
        self.attempts.end_pause(work)

    @rule(numbers=st.sets(PARTITIONS, min_size=1))
    def partitions_are_revoked(self, numbers: set[int]) -> None:
        wanted = [("t", one) for one in numbers if not self._is_leaving(("t", one))]
        waiting = [
            work
            for work in self.paused
            if work.state == "pausing" and work.tenure.partition in wanted
        ]
        self.leaving += self.attempts.revoke(wanted, NEVER_S)
        assert all(work.state == "last" for work in waiting)

    @rule(is_time_over=st.booleans())
    def ended_partitions_are_given_up(self, *, is_time_over: bool) -> None:
        now_s = NEVER_S if is_time_over else 0.0
        ended = self.attempts.ended(self.leaving, now_s)
        left = self.attempts.give_up(ended)
        assert is_time_over or not left.late
        assert set(left.late) <= {*self.begun, *self.attempts._due}  # noqa: SLF001
        assert self.attempts.leave(ended) == ended
        self.leaving = [one for one in self.leaving if one not in ended]

    @rule(number=PARTITIONS)
    def partition_is_lost(self, number: int) -> None:
        partition = ("t", number)
        self.attempts.lose([partition])
        gone = [one for one in self.leaving if one.partition == partition]
        assert self.attempts.ended(gone, 0.0) == gone
        assert not self.attempts.give_up(gone).partitions
        self.leaving = [one for one in self.leaving if one not in gone]

    @rule()
    def processing_stops(self) -> None:
        self.attempts.close()
        self.is_closed = True

    @rule()
    def time_is_over(self) -> None:
        self.processing_stops()
        self.attempts.drop_waiting()
        self.is_over = True

    @invariant()
    def no_step_begins_when_the_time_is_over(self) -> None:
        assert not (self.is_over and self.attempts.ready)

    @invariant()
    def no_more_records_are_in_progress_than_workers(self) -> None:
        assert self.scheduler.in_progress <= WORKERS

    @invariant()
    def only_records_of_owned_partitions_pause(self) -> None:
        for work in self.paused:
            if work.state == "pausing":
                assert not work.tenure.is_ending
                assert not work.tenure.is_lost

    def teardown(self) -> None:
        """When processing stops, each record ends, and each end is noted once."""
        self.attempts.close()
        while self.begun or self.attempts.ready:
            self.step_begins()
            if self.begun:
                self._end(self.begun[0], Retry(attempts=9), is_good=False)
        assert not self.scheduler.in_flight
        assert not self.scheduler.in_progress
        assert {work.state for work in self.seen} <= {"handled", "abandoned"}
        assert self.ended == len(self.seen)


class ByPartition(AttemptsMachine):
    order = "partition"


class Unordered(AttemptsMachine):
    order = "none"


TestByKey = AttemptsMachine.TestCase
TestByPartition = ByPartition.TestCase
TestUnordered = Unordered.TestCase
TestByKey.settings = TestByPartition.settings = TestUnordered.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None
)
