"""`MetricsFeed`: from the telemetry of members to an exporter, without holding up a member.

Theory of operation. A member's threads only append records to a bounded queue. A thread of the feed
takes them and changes the metrics. If that thread is too slow, further records are dropped and
counted. A scrape first takes all waiting records itself, so it misses none.

Rules of this file: members are referenced weakly, so that a dropped consumer is collected. An
exception of an exporter is counted and goes no further.
"""

from __future__ import annotations

import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final, Protocol, TypeAlias

from attrs import define, field

from coopgroup.errors import ConfigurationError
from coopgroup.kafka.clock import now_s
from coopgroup.kafka.health.value import GroupLoad, Health
from coopgroup.kafka.records.commit_meter import CommitCounts
from coopgroup.metrics.events import Change, MemberEvents
from coopgroup.metrics.sampling import Reading, readings
from coopgroup.metrics.wanted import WantedMembers
from coopgroup.telemetry import Envelope

__all__ = ["CommonLabels", "FeedOptions", "MemberListener", "MetricsFeed", "Probe"]

_LOOK_S: Final = 30.0
_IDLE_S: Final = 5.0

CommonLabels: TypeAlias = tuple[str, str, str]
"""Group, client id, and instance id."""


class Probe(Protocol):
    """Reads one member; `kafka.health.probe` has the one of this package."""

    def read(self) -> Health:
        """Return the health of this moment, without waiting."""
        ...

    def commits(self) -> CommitCounts | None:
        """Return the commits so far; None for named resources."""
        ...

    def load(self) -> GroupLoad | None:
        """Look up the work of the whole group; None unless this member leads it."""
        ...


@define(kw_only=True)
class FeedOptions:
    """The options of an exporter.

    Attributes:
        queue_records: number of records that may wait for the exporter.
        per_partition: whether each partition has a series of its own.
        drain_horizon_s: time in which `coopgroup_members_wanted` members would drain the lag, in
            seconds; None to look up no lags.
        wanted_window_s: how long the load must be lower before that number falls, in seconds.
    """

    queue_records: int = 10_000
    per_partition: bool = False
    drain_horizon_s: float | None = None
    wanted_window_s: float = 300.0

    def __attrs_post_init__(self) -> None:
        count = self.queue_records
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ConfigurationError("queue_records", count, "a whole number above 0")
        for name in ("drain_horizon_s", "wanted_window_s"):
            value = getattr(self, name)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if value is not None and not (is_number and value > 0):
                raise ConfigurationError(name, value, "seconds above 0")


@define(eq=False, weakref_slot=True)
class MemberListener:
    """The telemetry listener of one member.

    Attributes:
        probe: reads the member; None once it is gone, or without one.
    """

    feed: MetricsFeed
    labels: CommonLabels | None
    probe: Callable[[], Probe | None]
    events: MemberEvents = field(factory=MemberEvents, init=False)
    wanted: WantedMembers | None = field(default=None, init=False)
    commits: CommitCounts | None = field(default=None, init=False)

    def __call__(self, envelope: Envelope) -> None:
        """Queue a record; never waits."""
        self.feed.put(self, envelope)


@define(eq=False)
class MetricsFeed:
    """The members of one exporter.

    Attributes:
        emit: gets each change, with the common labels; only one thread at a time calls it.
        dropped: number of records without a place in the queue, or refused by the exporter.
    """

    options: FeedOptions
    emit: Callable[[CommonLabels, Change], None]
    dropped: int = field(default=0, init=False)
    _members: list[MemberListener] = field(factory=list, init=False)
    _unbound: dict[CommonLabels, MemberListener] = field(factory=dict, init=False)
    _gone: list[tuple[CommonLabels, CommitCounts]] = field(factory=list, init=False)
    _waiting: deque[tuple[MemberListener, Envelope]] = field(factory=deque, init=False)
    # `put` of a SimpleQueue may be interrupted by a signal handler that puts, too.
    _wakes: queue.SimpleQueue[None] = field(factory=queue.SimpleQueue, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)
    _lock: threading.RLock = field(factory=threading.RLock, init=False)  # guards the members
    _applying: threading.RLock = field(factory=threading.RLock, init=False)

    # --- from the threads of members --------------------------------------------------------------

    def watch(self, probe: Probe) -> MemberListener:
        """Return the listener of a member."""
        health = probe.read()
        labels = health.group_id, health.client_id, health.instance_id
        listener = MemberListener(self, labels, weakref.ref(probe))
        if self.options.drain_horizon_s is not None:
            listener.wanted = WantedMembers(
                self.options.drain_horizon_s, self.options.wanted_window_s
            )
        with self._lock:
            self._members.append(listener)
        self._ensure_thread()
        return listener

    def put(self, listener: MemberListener | None, envelope: Envelope) -> None:
        """Queue a record; never waits for the exporter."""
        if len(self._waiting) >= self.options.queue_records:
            self.dropped += 1
            return
        self._waiting.append((listener or self._listener_of(envelope), envelope))
        self._wakes.put(None)
        self._ensure_thread()

    def _listener_of(self, envelope: Envelope) -> MemberListener:
        """Return the listener for records that did not come from a watched member."""
        labels = envelope.group, envelope.client, ""
        listener = self._unbound.get(labels)
        if listener is None:
            listener = self._unbound[labels] = MemberListener(self, labels, lambda: None)
        return listener

    def _ensure_thread(self) -> None:
        # A forked child has no thread, and gets its own.
        if self._thread is None or not self._thread.is_alive():
            thread = threading.Thread(
                target=_serve, args=(weakref.ref(self), self._wakes), daemon=True
            )
            thread.name = "coopgroup-metrics"
            self._thread = thread
            with suppress(RuntimeError):  # the interpreter ends, or no thread is available
                thread.start()

    # --- for the exporter -------------------------------------------------------------------------

    def drain(self) -> None:
        """Take all waiting records, so that the metrics are up to date."""
        with self._applying:
            while self._waiting:
                listener, envelope = self._waiting.popleft()
                labels = listener.labels or (envelope.group, envelope.client, "")
                try:
                    for change in listener.events.changes(envelope):
                        self.emit(labels, change)
                except Exception:  # noqa: BLE001 -- counted, and shown as a metric
                    self.dropped += 1

    def sample(self) -> Iterator[tuple[CommonLabels, Reading]]:
        """Yield the gauges of all members that still exist."""
        now = time.time()
        for listener, probe in self._living():
            with suppress(Exception):  # a member that is being closed
                health = probe.read()
                wanted = None if listener.wanted is None else listener.wanted.value
                assert listener.labels is not None
                for one in readings(
                    health,
                    listener.events,
                    wanted,
                    now,
                    per_partition=self.options.per_partition,
                ):
                    yield listener.labels, one

    def commits(self) -> Iterator[tuple[CommonLabels, CommitCounts]]:
        """Yield the commits of all members, also of members that are gone."""
        for listener, probe in self._living():
            listener.commits = probe.commits()
        with self._lock:
            found = [*self._gone]
            found += [
                (one.labels, one.commits)
                for one in self._members
                if one.labels is not None and one.commits is not None
            ]
        yield from found

    def _living(self) -> list[tuple[MemberListener, Probe]]:
        with self._lock:
            kept = []
            for listener in self._members:
                probe = listener.probe()
                if probe is not None:
                    kept.append((listener, probe))
                elif listener.commits is not None and listener.labels is not None:
                    self._gone.append((listener.labels, listener.commits))
            self._members = [listener for listener, _ in kept]
            return kept

    def look(self) -> None:
        """Look up the load of the groups that members lead here; this waits for brokers."""
        for listener, probe in self._living():
            if listener.wanted is None:
                continue
            with suppress(Exception):  # no answer: the next look tries again
                load = probe.load()
                if load is None:
                    listener.wanted.forget()
                else:
                    listener.wanted.note(now_s(), load)

    @property
    def looks(self) -> bool:
        """Return whether the feed looks up the load of groups."""
        return self.options.drain_horizon_s is not None


def _serve(own: weakref.ref[MetricsFeed], wakes: queue.SimpleQueue[None]) -> None:
    """Take records, and look up loads, as long as the feed exists."""
    look_at_s = now_s()
    while True:
        with suppress(queue.Empty):
            wakes.get(timeout=_IDLE_S)
        feed = own()
        if feed is None:
            return
        feed.drain()
        if feed.looks and now_s() >= look_at_s:
            look_at_s = now_s() + _LOOK_S
            feed.look()
        del feed
