"""The swarm with `coopgroup.processing`: records, commits and their judge, for both kinds of hosts.

`processed` runs `process` in threads, and `tasked` on an event loop. Handlers take time, fail, are
tried again, and sometimes hang. The application calls `process` again when a callback raises. The
oracle of callbacks judges what `process` does as the application of its consumer. This file judges
the records: their order, and that each is handled before an offset behind it is committed.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, cast

import attrs
from attrs import define, field
from confluent_kafka import TopicPartition

from coopgroup.core.member.events import CommitRequested, Offset
from coopgroup.core.model import EMPTY, Resource, ResourceSet
from coopgroup.kafka.callbacks.listener import as_resources
from coopgroup.kafka.membership.work_meter import WorkMeter
from coopgroup.kafka.records.fetching import Begin, Origin
from coopgroup.kafka.records.offsets import OffsetStore
from coopgroup.processing import Limits, Retry
from coopgroup.processing.running import Timing
from coopgroup.processing.scheduler import Scheduler
from tests.support.fake_records import FakeRecord
from tests.swarm.polled import Fetching, PolledApplication, PolledSimulation, draw_true

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from coopgroup.core.member.effects import FinishCommit
    from tests.swarm.checkers.callbacks import Call
    from tests.swarm.runs import SwarmRun

HANDLERS: Final = 4
RETRY: Final = Retry(attempts=50, backoff_ms=20, backoff_max_ms=100)
LOOK_MS: Final = 5
_EVERY_MS: Final = 100  # a record of each partition
_BEHIND_MAX: Final = 20  # records of a partition at rest
_LIMITS: Final = Limits(records=30, partition_records=8, handled_behind=6)


def draw_processing(seed: int, theirs: str) -> SwarmRun:
    """Draw a run of a group whose records are processed."""
    run = draw_true(seed, theirs)
    return attrs.evolve(run, faults=attrs.evolve(run.faults, leaves=0.0))


@define(eq=False)
class Records(Fetching):
    """The records of the fetched partitions; one comes every 100 ms."""

    now_ms: Callable[[], int] = lambda: 0
    stored: dict[Resource, int] = field(factory=dict)  # offsets in the brokers
    next: dict[Resource, int] = field(factory=dict)
    start: dict[Resource, int] = field(factory=dict)
    full: ResourceSet = EMPTY
    grants: dict[Resource, int] = field(factory=dict)

    def begin(self, partitions: list[TopicPartition]) -> None:
        for one in as_resources(partitions):
            self.next[one] = self.start[one] = self.stored.get(one, 0)
            self.grants[one] = self.grants.get(one, 0) + 1
        super().begin(partitions)

    def end(self, resources: ResourceSet) -> None:
        self.full -= resources
        super().end(resources)

    def pause(self, partitions: Any, resources: ResourceSet, by: str) -> None:  # noqa: ANN401 - a list
        some = as_resources(partitions) & resources
        if by == "processing":
            self.full |= some
        else:
            super().pause(partitions, some, by)

    def resume(self, partitions: list[TopicPartition], _: str) -> None:
        """Hand out records of full partitions again."""
        self.full -= as_resources(partitions)

    @property
    def record_buffer(self) -> Any:  # noqa: ANN401 - as the fetcher's
        return SimpleNamespace(pause=self._fill, paused_by=lambda _: tuple(self.full))

    def _fill(self, keys: Iterable[tuple[str, int]], _: str) -> None:
        self.full |= ResourceSet.from_pairs(keys)

    @property
    def starts(self) -> Any:  # noqa: ANN401 - as the fetcher's
        return SimpleNamespace(lookup=SimpleNamespace(is_idle=True))

    def positions(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Return the position of each fetched partition."""
        some = as_resources(partitions) & self.fetched
        return [TopicPartition(*one, self.next[one]) for one in some]

    def begin_of(self, one: Resource) -> Begin | None:
        if one not in self.fetched:
            return None
        return Begin(TopicPartition(*one, self.start[one]), Origin.COMMITTED)

    def take(self, count: int) -> list[FakeRecord]:
        """Hand out some records."""
        found: list[FakeRecord] = []
        for one in self.fetched - self.paused - self.full:
            while len(found) < count and self.next[one] < self.now_ms() // _EVERY_MS:
                at = self.next[one]
                key = b"%d" % (at % 3)
                found.append(FakeRecord(of=one.name, number=one.index, at=at, its_key=key))
                self.next[one] += 1
        return found

    def seek(self, place: TopicPartition, offset: int) -> None:
        """Continue at another offset."""
        self.next[Resource(place.topic, place.partition)] = offset


@define(kw_only=True, eq=False, slots=False)  # a second base of applications with slots
class ProcessingApplication(PolledApplication):
    """The application of one process, which calls `process`."""

    group: ProcessingSimulation
    fetching: Records = field(init=False)
    store: OffsetStore = field(init=False)
    stop_ms: int = field(init=False)
    by_key: bool = field(init=False)
    ends_ms: float = math.inf  # since when `process` ends
    # By the id of a commit in flight: offsets of `process`.
    _sent: dict[int, tuple[Offset, ...]] = field(factory=dict)
    # What was asked to be committed. A deletion sets positions of the load back, and the fate of a
    # commit can be unknown.
    _asked: dict[Resource, int] = field(factory=dict)
    _revoked_ms: dict[Resource, int] = field(factory=dict)
    _lives: int = 0
    # By life, grant, partition and key: the record in progress, and the one to begin next.
    _running: dict[tuple[Any, ...], int] = field(factory=dict)
    _again: dict[tuple[Any, ...], int] = field(factory=dict)
    _last: dict[tuple[Any, ...], int] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        dice = self.process.world.dice("processing")
        self.puts_off, self.hears_losses, self.oracle.hears_losses = False, True, True
        self.stop_ms = dice.choice((50, 300, 1_000))
        self.by_key = bool(dice.getrandbits(1))
        self.store = OffsetStore(cast("Any", self.fetching), automatic=True)
        self.listener.committing = cast("Any", self)

    def new_fetching(self) -> Records:
        world, stored = self.process.world, self.group.stored
        return Records(
            self._refresh, self.oracle.begins, now_ms=lambda: world.now_ms, stored=stored
        )

    @property
    def parts(self) -> Any:  # noqa: ANN401 - as the consumer's
        """The parts of the consumer that `process` uses."""
        return SimpleNamespace(
            listener=self.listener,
            fetching=self.fetching,
            committing=self,
            decoder=None,
            work=SimpleNamespace(oldest=None),
            driver=SimpleNamespace(inbox=self.port.inbox, meter=WorkMeter(), sink=self.port.sink),
        )

    def new_life(self) -> tuple[Scheduler, Timing]:
        """Return scheduler and timing of the next call of `process`."""
        self._lives, self.ends_ms = self._lives + 1, math.inf
        stop = SimpleNamespace(is_set=self.is_over)
        scheduler = Scheduler("key" if self.by_key else "partition", _LIMITS)
        return scheduler, Timing(stop, self.stop_ms, hands_over=False)

    def is_over(self) -> bool:
        """Return whether `process` must end."""
        return self.closing

    def winds_down(self) -> None:
        """Note that `process` ends."""
        self.ends_ms = self.process.world.now_ms

    def grant(self, resources: ResourceSet) -> None:
        for one in resources:
            self._revoked_ms.pop(one, None)
        super().grant(resources)

    def _refresh(self) -> None:
        self.working = self.fetching.fetched & self.owned
        ends = self.oracle.stops | ResourceSet.from_pairs(self._revoked_ms)
        self.stopping = self.working & (self.fetching.paused | ends)
        self._feed()

    # --- its commits --------------------------------------------------------------------------

    interval_ms = 1

    def commit_last(self, resources: ResourceSet, limit_s: float | None = None) -> None:
        """Commit handled records, and wait for the answer."""
        self._commit_last(resources, limit_s)

    def commit_due(self, owned: ResourceSet) -> None:
        """Commit handled records."""
        self._commit(owned, self.load.numbers(owned), lambda: None)

    def _commit(self, resources: ResourceSet, numbers: Any, then: Callable[[], None]) -> None:  # noqa: ANN401
        due = self.store.due(resources & self.listener.owned)
        ahead = self.load.to_commit(resources, numbers)  # the simulation's own records
        some = {(one.topic, one.partition) for one in due} | {row[:2] for row in ahead}
        rows = [
            row
            for row, before in zip(
                self.load.processed(resources, numbers), self.load.committed[numbers], strict=True
            )
            if row[:2] in some and row[2] >= max(before, self._asked.get(Resource(*row[:2]), 0))
        ]
        if not rows:
            then()
            return
        commit_id = self.process.world.number()
        offsets = tuple(Offset(*row) for row in rows)
        self._asked |= {Resource(one.topic, one.partition): one.offset for one in offsets}
        self._commits[commit_id], self._sent[commit_id] = then, due
        self.process.give(CommitRequested(commit_id=commit_id, offsets=offsets))

    def finish_commit(self, effect: FinishCommit) -> None:
        due = {Resource(one.topic, one.partition): one for one in self._sent.pop(effect.commit_id)}
        done = {Resource(topic, number) for topic, number, code in effect.codes if not code}
        committed = [one for place, one in due.items() if place in done]
        self.store.mark_committed(committed)
        for one in committed:
            place = Resource(one.topic, one.partition)
            if one.offset > self.group.first_unhandled(place):
                self.object_to(f"commits {one.offset} of {place}, past an unhandled record")
            self.group.stored[place] = max(one.offset, self.group.stored.get(place, 0))
        super().finish_commit(effect)

    # --- its callbacks and its handler --------------------------------------------------------

    @contextmanager
    def told(self, name: str, partitions: list[TopicPartition]) -> Iterator[Call]:
        """Tell the oracle of a callback of `process`."""
        resources = as_resources(partitions)
        since_ms = self.process.world.now_ms if name == "on_revoke" else -self.stop_ms
        self._revoked_ms |= dict.fromkeys(resources, since_ms)
        call = self.oracle.called(name, resources)
        self._refresh()
        try:
            yield call
        finally:
            self.oracle.returned(call)

    def hears_end(self, partitions: list[TopicPartition]) -> None:
        """Judge that `process` tells the application of partitions that have gone."""
        now_ms = self.process.world.now_ms
        for one in as_resources(partitions) - self.oracle.lost:
            # An earlier call of `process` has waited for its records as long as it may.
            runs = any(lane[:3] == self._tenure(self._lives, one) for lane in self._running)
            since_ms = min(self._revoked_ms.get(one, 0), self.ends_ms)
            if runs and now_ms < since_ms + self.stop_ms:
                self.object_to(f"is told that {one} has ended, while a record is handled")

    def _tenure(self, life: int, one: Resource) -> tuple[Any, ...]:
        return life, self.fetching.grants.get(one, 0), one

    @contextmanager
    def handling(self, life: int, record: FakeRecord) -> Iterator[int]:
        """Judge a handler; yield how long it takes, in ms. Then it raises perhaps."""
        one, at = Resource(record.of, record.number), record.at
        tenure = self._tenure(life, one)
        lane = (*tenure, record.its_key if self.by_key else None)
        if one not in self.listener.owned:
            self.object_to(f"handles {one}, which it does not own")
        if lane in self._running:
            self.object_to(f"handles two records of {lane} at once")
        if at != self._again.get(lane, at) or at < self._last.get(lane, at):
            self.object_to(f"handles {at} of {lane} out of order")
        self._running[lane] = self._again[lane] = self._last[lane] = at
        try:
            hangs = self.happens("stuck")
            yield 2 * self.stop_ms if hangs else self.process.world.dice("handle").randint(1, 30)
            if self.happens("raises"):
                raise ValueError("not now")
        finally:
            del self._running[lane]
        del self._again[lane]
        if one in self.listener.owned and tenure == self._tenure(life, one):
            self.group.handled.setdefault(one, set()).add(at)


@define(kw_only=True, eq=False, slots=False)
class ProcessingSimulation(PolledSimulation):
    """A group of such applications.

    Attributes:
        stored: committed offsets.
        handled: offsets of the records that were handled.
    """

    stored: dict[Resource, int] = field(factory=dict)
    handled: dict[Resource, set[int]] = field(factory=dict)
    _first: dict[Resource, int] = field(factory=dict)

    def first_unhandled(self, one: Resource) -> int:
        """Return the offset of the first record that was never handled."""
        first, handled = self._first.get(one, 0), self.handled.get(one, set())
        while first in handled:
            first += 1
        self._first[one] = first
        return first

    def is_at_rest(self) -> bool:
        """Return whether the group rests, its records are handled, and no `process` is ending."""
        some = (cast("ProcessingApplication", process.application) for process in self.alive)
        if any(application.is_over() for application in some):
            return False
        newest = self.world.now_ms // _EVERY_MS
        worked_on = [one for process in self.alive for one in process.application.working]
        behind = (newest - self.first_unhandled(one) for one in worked_on)
        return all(one < _BEHIND_MAX for one in behind) and super().is_at_rest()
