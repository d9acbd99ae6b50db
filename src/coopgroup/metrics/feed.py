"""`MetricsFeed`: the values of all metrics, from the telemetry and the health of members.

Records wait in a queue (`record_queue`), and grow counters and histograms. Gauges are read from the
members at each scrape. A scrape first takes all waiting records, so it misses none. An exporter
only gives the values its library's form.

Rule of this file: members are referenced weakly, so that a dropped consumer is collected.
"""

from __future__ import annotations

import bisect
import math
import threading
import time
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Protocol, TypeAlias

from attrs import define, field

from coopgroup.errors import ConfigurationError
from coopgroup.kafka.clock import now_s
from coopgroup.kafka.health.value import DEFAULT_LIMITS, GroupLoad, Health, HealthLimits
from coopgroup.kafka.records.commit_meter import NO_COMMITS, CommitCounts, CommitMeter
from coopgroup.metrics.events import MemberEvents
from coopgroup.metrics.names import (
    COMMIT_SECONDS,
    COMMITS,
    DROPPED,
    METRICS,
    CommonLabels,
    Kind,
    Metric,
    Value,
)
from coopgroup.metrics.record_queue import RecordQueue
from coopgroup.metrics.wanted import WantedMembers
from coopgroup.telemetry import Envelope


class Probe(Protocol):
    """Reads one member; `kafka.health.probe` has the one of this package."""

    def read(self) -> Health:
        """Return the health of this moment, without waiting."""
        ...

    def commit_meter(self) -> CommitMeter | None:
        """Return what counts the commits; None for named resources.

        It outlives the member, because the last commits come when the member is closed.
        """
        ...

    def load(self) -> GroupLoad | None:
        """Look up the work of the whole group; None unless this member leads it."""
        ...


@define(kw_only=True)
class FeedOptions:
    """The options of an exporter.

    Attributes:
        drain_horizon_s: time in which `coopgroup_members_wanted` members would drain the lag, in
            seconds; None to look up no lags.
        limits: when a member counts as stuck.
    """

    drain_horizon_s: float | None = None
    limits: HealthLimits = DEFAULT_LIMITS

    def __attrs_post_init__(self) -> None:
        value = self.drain_horizon_s
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (is_number and value > 0):
            raise ConfigurationError("drain_horizon_s", value, "seconds above 0")
        if not isinstance(self.limits, HealthLimits):
            raise ConfigurationError("limits", self.limits, "HealthLimits(…)")


@define(eq=False)
class Observed:
    """The observations of a histogram.

    Attributes:
        counts: number of observations up to each bound, and of higher ones; not cumulative.
        sums: sum of the observations in each bucket.
    """

    counts: list[int]
    sums: list[float]


Series: TypeAlias = dict[tuple[str, ...], float | Observed]
"""The values of a metric, by the values of the common labels, then of its own."""


@define(eq=False, weakref_slot=True)
class MemberListener:
    """The telemetry listener of one member.

    Attributes:
        probe: reads the member; None once it is gone, or without one.
        commits: counts its commits; None if it has none.
    """

    feed: MetricsFeed
    labels: CommonLabels
    probe: Callable[[], Probe | None]
    events: MemberEvents = field(factory=MemberEvents, init=False)
    wanted: WantedMembers | None = field(default=None, init=False)
    commits: CommitMeter | None = field(default=None, init=False)

    def __call__(self, envelope: Envelope) -> None:
        """Queue a record; never waits."""
        self.feed.put(self, envelope)


@define(eq=False)
class MetricsFeed:
    """The members of one exporter, and their metrics."""

    options: FeedOptions
    _members: list[MemberListener] = field(factory=list, init=False)
    _unbound: dict[CommonLabels, MemberListener] = field(factory=dict, init=False)
    # Commits of members that are gone.
    _gone: dict[CommonLabels, CommitCounts] = field(factory=dict, init=False)
    _counters: dict[str, dict[tuple[str, ...], float]] = field(
        factory=lambda: defaultdict(lambda: defaultdict(float)), init=False
    )
    _histograms: dict[str, dict[tuple[str, ...], Observed]] = field(
        factory=lambda: defaultdict(dict), init=False
    )
    _queue: RecordQueue[MemberListener] = field(init=False)
    _lock: threading.RLock = field(factory=threading.RLock, init=False)  # guards members and counts

    def __attrs_post_init__(self) -> None:
        own = weakref.WeakMethod(self._take)
        look = weakref.WeakMethod(self.look)
        self._queue = RecordQueue(
            take=lambda listener, envelope: _call(own, listener, envelope),
            look=(lambda: _call(look)) if self.looks else None,
        )

    # --- from the threads of members --------------------------------------------------------------

    def watch(self, probe: Probe) -> MemberListener:
        """Return the listener of a member."""
        health = probe.read()
        labels = health.group_id, health.client_id, health.instance_id
        listener = MemberListener(self, labels, weakref.ref(probe))
        listener.commits = probe.commit_meter()
        if self.options.drain_horizon_s is not None:
            listener.wanted = WantedMembers(self.options.drain_horizon_s)
        with self._lock:
            self._members.append(listener)
        self._queue.wake()
        return listener

    def put(self, listener: MemberListener | None, envelope: Envelope) -> None:
        """Queue a record; never waits for the exporter."""
        self._queue.put(listener or self._listener_of(envelope), envelope)

    def _listener_of(self, envelope: Envelope) -> MemberListener:
        """Return the listener for records that did not come from a watched member."""
        labels = envelope.group, envelope.client, ""
        listener = self._unbound.get(labels)
        if listener is None:
            listener = self._unbound[labels] = MemberListener(self, labels, lambda: None)
        return listener

    # --- for the exporter -------------------------------------------------------------------------

    def values(self) -> dict[str, Series]:
        """Take all waiting records, and return the values of each metric that has any."""
        self._queue.drain()
        found: dict[str, Series] = defaultdict(dict)
        with self._lock:
            for labels in {one.labels for one in self._members}:
                self._begin(labels)
            for name, counters in self._counters.items():
                found[name] |= counters
            for name, observed in self._histograms.items():
                found[name] |= {
                    key: Observed([*one.counts], [*one.sums]) for key, one in observed.items()
                }
        for name, gauges in self._gauges().items():
            found[name] |= gauges
        for labels, commits in self._commits().items():
            for outcome, count in commits.by_outcome.items():
                found[COMMITS][*labels, outcome] = count
            found[COMMIT_SECONDS][labels] = Observed([*commits.buckets], [*commits.bucket_seconds])
        found[DROPPED][()] = self._queue.dropped
        return found

    def _begin(self, labels: CommonLabels) -> None:
        """Let the usual series of a member begin at 0."""
        for metric in METRICS.values():
            for value in metric.values:
                self._counters[metric.name].setdefault((*labels, value), 0.0)
            if metric.kind is Kind.HISTOGRAM and metric.name != COMMIT_SECONDS:
                self._observed(metric, labels)

    def _observed(self, metric: Metric, key: tuple[str, ...]) -> Observed:
        series, size = self._histograms[metric.name], len(metric.buckets) + 1
        return series.setdefault(key, Observed([0] * size, [0.0] * size))

    def _take(self, listener: MemberListener, envelope: Envelope) -> None:
        for one in listener.events.changes(envelope):
            metric, key = METRICS[one.name], (*listener.labels, *one.labels)
            with self._lock:
                if metric.kind is Kind.COUNTER:
                    self._counters[one.name][key] += one.value
                else:
                    observed = self._observed(metric, key)
                    bucket = bisect.bisect_left(metric.buckets, one.value)
                    observed.counts[bucket] += 1
                    observed.sums[bucket] += one.value

    def _gauges(self) -> dict[str, dict[tuple[str, ...], float]]:
        """Read the members; values with equal labels become one value."""
        found: dict[str, dict[tuple[str, ...], list[float]]] = defaultdict(
            lambda: defaultdict(list)
        )
        for labels, one in self._sample():
            found[one.name][*labels, *one.labels].append(one.value)
        return {
            name: {key: METRICS[name].merge.of(values) for key, values in series.items()}
            for name, series in found.items()
        }

    def _sample(self) -> Iterator[tuple[CommonLabels, Value]]:
        """Yield the gauges of all members that still exist."""
        now = time.time()
        for listener, probe in self._living():
            with suppress(Exception):  # a member that is being closed
                health = probe.read()
                wanted = None if listener.wanted is None else listener.wanted.value
                for one in readings(
                    health, listener.events, wanted, now, limits=self.options.limits
                ):
                    yield listener.labels, one

    def _commits(self) -> dict[CommonLabels, CommitCounts]:
        """Return the commits of all members by their labels, also of members that are gone."""
        self._living()
        with self._lock:
            found = {**self._gone}
            for one in self._members:
                if one.commits is not None:
                    found[one.labels] = found.get(one.labels, NO_COMMITS) + one.commits.counts()
        return found

    def _living(self) -> list[tuple[MemberListener, Probe]]:
        with self._lock:
            kept = []
            for listener in self._members:
                probe = listener.probe()
                if probe is not None:
                    kept.append((listener, probe))
                elif listener.commits is not None:
                    gone = self._gone.get(listener.labels, NO_COMMITS)
                    self._gone[listener.labels] = gone + listener.commits.counts()
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


def _call(method: weakref.WeakMethod[Any], *arguments: object) -> None:
    """Call a method while its object exists: the queue's thread must not keep it alive."""
    found = method()
    if found is not None:
        found(*arguments)


def readings(
    health: Health,
    events: MemberEvents,
    wanted: int | None,
    time_s: float,
    *,
    limits: HealthLimits = DEFAULT_LIMITS,
) -> Iterator[Value]:
    """Yield the gauges of one member.

    Args:
        health: its health.
        events: what its telemetry told.
        wanted: number of members that its group needs, None if unknown.
        time_s: time of day, in seconds since 1970.
        limits: when the member counts as stuck.
    """
    yield Value("coopgroup_assigned_partitions", len(health.owned))
    yield Value("coopgroup_revoking_partitions", len(health.revoking))
    yield Value("coopgroup_rebalancing_seconds", health.rebalancing_s)
    yield Value("coopgroup_last_poll_timestamp_seconds", time_s - health.since_poll_s)
    yield Value("coopgroup_warmups", health.warmups)
    yield Value("coopgroup_standbys", health.standbys)
    yield Value("coopgroup_problems", len(health.problems(limits)))
    yield Value("coopgroup_broker_assigns", health.broker_assigns)
    yield Value("coopgroup_records_lag", sum(health.lags.values()))
    yield Value("coopgroup_records_lag_max", max(health.lags.values(), default=0))
    if math.isfinite(health.lease_s):
        yield Value("coopgroup_lease_remaining_seconds", health.lease_s)
    if events.last_rebalance_s is not None:
        yield Value("coopgroup_last_rebalance_timestamp_seconds", events.last_rebalance_s)
    if health.leads and events.members is not None:
        yield Value("coopgroup_members", events.members)
        yield Value("coopgroup_waiting_partitions", events.waiting)
        yield Value("coopgroup_unowned_partitions", events.unowned)
        yield Value("coopgroup_without_room_partitions", events.without_room)
        overdue = sum(one.count for one in health.overdue_claims)
        yield Value("coopgroup_overdue_partitions", overdue)
        if wanted is not None:
            yield Value("coopgroup_members_wanted", wanted)


# --- several listeners ----------------------------------------------------------------------------


class Several:
    """Passes each record to all of its listeners, in order.

    A listener that raises keeps the record from no other listener; the first exception is raised
    after all were called.

    Args:
        listeners: callables, also those of this package.
    """

    def __init__(self, *listeners: Callable[[Envelope], object]) -> None:
        self._listeners = listeners

    def watch_member(self, probe: Probe) -> Several:
        """Return the listeners of one member; a consumer calls it when it is made."""
        return Several(*(_of_member(one, probe) for one in self._listeners))

    def __call__(self, envelope: Envelope) -> None:
        """Pass on a record."""
        failure: Exception | None = None
        for listener in self._listeners:
            try:
                listener(envelope)
            except Exception as error:  # noqa: BLE001 -- raised once all have been called
                failure = failure or error
        if failure is not None:
            raise failure


def _of_member(listener: Callable[[Envelope], object], probe: Probe) -> Any:  # noqa: ANN401
    watch = getattr(listener, "watch_member", None)
    return watch(probe) if callable(watch) else listener
