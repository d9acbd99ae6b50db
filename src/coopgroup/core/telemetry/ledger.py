"""`read_ledger`: work, warm-ups and outages of a group, folded from its telemetry.

Pages, the live view and the measures of a simulation read this one ledger, so their numbers agree.

Work follows the applications (`ResourcesStarted`, `ResourcesStopped`) and not the assignments. The
work of a process also ends with the process, and rests while the process is paused. A process that
returns under the same name starts without work.

Real consumers write no records about processes, so the end of a killed or frozen one is inferred:

- A frozen member writes late that it lost its membership. Its work ended with its lease.
- The rounds of a group name its members. A client has ended if it writes no more, and the last
  rounds are without it. Its work ends one session before the first of these rounds. Until that
  round it may have worked (`unsure`).
- A member that is killed returns under its id without a round, and subscribes anew. Or it returns
  with another id and the same name. Its earlier work ended one session before, or with its last
  record. Until its return it may have worked (`unsure`).
- Work without any end is over when another client starts on the resource, and its old owner never
  writes again.

If a client has records about its process, these count instead, so that double owners become
visible.

Theory of operation: records are sorted by time and numbered. Every start and stop becomes a row
(resource, client, number of the record). Work ends with the first end after its start: a look-up in
sorted keys made of pair (or client) and number.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from operator import attrgetter
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
from attrs import define, evolve, field, frozen

from coopgroup.core.model import NOBODY, ResourceSet
from coopgroup.core.model.resource_set import Resource
from coopgroup.core.telemetry.codec import Envelope
from coopgroup.core.telemetry.records import (
    AssignmentReceived,
    MembershipLost,
    ProcessEnded,
    ProcessPaused,
    ProcessResumed,
    ProcessStarted,
    ResourcesStarted,
    ResourcesStopped,
    RoundDecided,
    StateChanged,
    WarmupsChanged,
)

Int64Array: TypeAlias = npt.NDArray[np.int64]
Float64Array: TypeAlias = npt.NDArray[np.float64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]

_OF_PROCESSES: Final = (ProcessStarted, ProcessEnded, ProcessPaused, ProcessResumed)


@frozen(eq=False, kw_only=True)
class Spans:
    """Intervals of single resources; all arrays int64, shape (N,).

    Attributes:
        owner: number of the client; `NOBODY` where no client works.
    """

    resource: Int64Array
    owner: Int64Array
    start_ms: Int64Array
    end_ms: Int64Array

    @staticmethod
    def of(rows: Iterable[tuple[int, int, int, int]]) -> Spans:
        """Return intervals from rows of resource, owner, begin and end."""
        return Spans.from_array(np.array(list(rows), dtype=np.int64).reshape(-1, 4))

    @staticmethod
    def from_array(rows: Int64Array) -> Spans:
        """Return the intervals of an array of shape (N, 4)."""
        resource, owner, start_ms, end_ms = rows.T
        return Spans(resource=resource, owner=owner, start_ms=start_ms, end_ms=end_ms)

    def take(self, picked: npt.NDArray[np.intp] | BoolArray) -> Spans:
        """Return some of the intervals, by position or mask."""
        return Spans(
            resource=self.resource[picked],
            owner=self.owner[picked],
            start_ms=self.start_ms[picked],
            end_ms=self.end_ms[picked],
        )

    def tidy(self) -> Spans:
        """Return the intervals that have a length, by resource, then by begin and end."""
        spans = self.take(self.end_ms > self.start_ms)
        return spans.take(np.lexsort((spans.owner, spans.end_ms, spans.start_ms, spans.resource)))

    def and_more(self, *others: Spans) -> Spans:
        """Return these intervals, then all others."""
        every = (self, *others)
        return Spans(
            resource=np.concatenate([one.resource for one in every]),
            owner=np.concatenate([one.owner for one in every]),
            start_ms=np.concatenate([one.start_ms for one in every]),
            end_ms=np.concatenate([one.end_ms for one in every]),
        )


_NONE: Final = Spans.of(())


@frozen(eq=False, kw_only=True)
class Doubles:
    """Intervals with two owners of one resource.

    Attributes:
        other: int64, shape (N,): the first owner.
    """

    spans: Spans
    other: Int64Array


class WarmEnd(enum.StrEnum):
    """How a warm span ended."""

    MOVED = "moved"
    CANCELLED = "cancelled"
    FAILED = "failed"
    ENDED = "ended"
    """Its process ended."""
    OPEN = "open"
    """It lasts until the end of the history."""


@frozen(kw_only=True)
class WarmSpan:
    """The time of one warm-up or standby: a client prepares a resource of another owner.

    Attributes:
        client: name of the process; its member id if the process has no name.
        warm_ms: when the state was complete; None if it never was.
    """

    resource: Resource
    client: str
    begin_ms: int
    warm_ms: int | None
    end_ms: int
    end: WarmEnd

    @property
    def is_restore(self) -> bool:
        """Whether the client had to restore the state; False if it had it from the beginning."""
        return self.warm_ms is None or self.warm_ms > self.begin_ms


@frozen(kw_only=True, eq=False)
class Ledger:
    """The work and the warm-ups of a group with R resources.

    Attributes:
        resources: resources that members worked on or leaders assigned.
        clients: names of the processes that worked or warmed up, ascending; member ids where
            processes have no name.
        work: sorted by resource, then by begin. Intervals of one client and resource never
            overlap. Intervals of two clients overlap if both worked at the same time. Work that did
            not end has `until_ms` as its end.
        unsure: after the work of clients that write no more: until the round that shows it.
        absent: when the resource did not exist, or no leader had mentioned it yet.
        warm_spans: by begin, then by client and resource.
    """

    resources: ResourceSet
    clients: tuple[str, ...]
    work: Spans
    unsure: Spans = _NONE
    absent: Spans = _NONE
    warm_spans: tuple[WarmSpan, ...] = ()
    begin_ms: int
    until_ms: int

    @cached_property
    def gaps(self) -> Spans:
        """Return the times without an owner."""
        count = len(self.resources)
        return gaps_between(self.work.and_more(self.absent), count, self.begin_ms, self.until_ms)

    @cached_property
    def doubles(self) -> Doubles:
        """Return the times with two owners: work that begins before earlier work has ended."""
        work = self.work
        first = np.diff(work.resource, prepend=-1) != 0
        before_ms = np.roll(_reached(work), 1)
        # The earlier interval with the latest end: the last one that ended later than all before.
        further = first | (work.end_ms > before_ms)
        furthest = np.maximum.accumulate(np.where(further, np.arange(first.size), 0))
        spans = evolve(work, end_ms=np.minimum(work.end_ms, before_ms))
        there = ~first & (spans.end_ms > spans.start_ms)
        return Doubles(spans=spans.take(there), other=work.owner[np.roll(furthest, 1)[there]])


@frozen(kw_only=True, eq=False)
class LagHistory:
    """Lag of R partitions at S times.

    Attributes:
        times_ms: int64 (S,): sample times, ascending.
        lags: (S, R): uncommitted records, 0 while a partition did not exist; NaN if unknown.
    """

    times_ms: Int64Array
    lags: Int64Array | Float64Array
    resources: ResourceSet


def gaps_between(covered: Spans, count: int, begin_ms: int, until_ms: int) -> Spans:
    """Return the times that no interval covers, by resource, then by begin.

    Args:
        covered: intervals of resources below `count`, in any order.
        count: number of the resources.
        begin_ms: begin of the time to search.
        until_ms: its end.
    """
    every = np.arange(count, dtype=np.int64)
    # With two empty intervals as bounds, every gap is between two neighbours.
    bounds = [
        Spans(resource=every, owner=every, start_ms=at_ms, end_ms=at_ms)
        for at_ms in (np.full(count, begin_ms), np.full(count, until_ms))
    ]
    inside = evolve(
        covered,
        start_ms=np.clip(covered.start_ms, begin_ms, until_ms),
        end_ms=np.clip(covered.end_ms, begin_ms, until_ms),
    )
    spans = inside.and_more(*bounds)
    spans = spans.take(np.lexsort((spans.end_ms, spans.start_ms, spans.resource)))
    reached = _reached(spans)
    gaps = np.flatnonzero(
        (spans.resource[1:] == spans.resource[:-1]) & (spans.start_ms[1:] > reached[:-1])
    )
    return Spans(
        resource=spans.resource[gaps],
        owner=np.full(gaps.size, NOBODY, dtype=np.int64),
        start_ms=reached[gaps],
        end_ms=spans.start_ms[gaps + 1],
    )


def _reached(spans: Spans) -> Int64Array:
    """Return the latest end of each interval and all earlier ones of its resource."""
    if not spans.end_ms.size:
        return spans.end_ms
    low_ms = int(spans.end_ms.min())
    stride = int(spans.end_ms.max()) - low_ms + 1  # offset that keeps the resources apart
    lifted: Int64Array = np.maximum.accumulate(spans.end_ms - low_ms + spans.resource * stride)
    return lifted - spans.resource * stride + low_ms


@define
class WarmNow:
    """The warm-ups and standbys of a client at one moment.

    Attributes:
        open: the spans that last.
    """

    client: str = ""
    open: dict[Resource, WarmSpan] = field(factory=dict)

    def take(self, at_ms: int, record: WarmupsChanged) -> list[WarmSpan]:
        """Read a record and return the spans that it ends."""
        for resource in record.begun:
            if resource not in self.open:
                self.open[resource] = self._begun(resource, at_ms)
        for resource in record.warm:
            span = self.open.get(resource) or self._begun(resource, at_ms)
            if span.warm_ms is None:
                self.open[resource] = evolve(span, warm_ms=at_ms)
        return [
            *self.end(at_ms, WarmEnd.MOVED, record.moved),
            *self.end(at_ms, WarmEnd.CANCELLED, record.cancelled),
            *self.end(at_ms, WarmEnd.FAILED, record.failed),
        ]

    def end(
        self, at_ms: int, how: WarmEnd, resources: Iterable[Resource] | None = None
    ) -> Iterator[WarmSpan]:
        """End some or all open spans, and yield them."""
        for resource in tuple(self.open) if resources is None else resources:
            span = self.open.pop(resource, None)
            if span is not None:
                yield evolve(span, end_ms=at_ms, end=how)

    def _begun(self, resource: Resource, at_ms: int) -> WarmSpan:
        return WarmSpan(
            resource=resource,
            client=self.client,
            begin_ms=at_ms,
            warm_ms=None,
            end_ms=at_ms,
            end=WarmEnd.OPEN,
        )


def read_ledger(envelopes: Iterable[Envelope], *, until_ms: int | None = None) -> Ledger:
    """Fold the telemetry of a group.

    Args:
        envelopes: of one group, in any order; envelopes with the same time in the order of writing.
        until_ms: end of the history: later records are ignored, and open work ends there. None for
            the time of the last record.
    """
    history = sorted(envelopes, key=attrgetter("at_ms"))
    if until_ms is not None:
        history = [envelope for envelope in history if envelope.at_ms <= until_ms]
    begin_ms = history[0].at_ms if history else until_ms or 0
    end_ms = until_ms if until_ms is not None else history[-1].at_ms if history else 0
    told = _Told.of(history, end_ms)
    rows = _Rows.of(told)
    work, unsure = _work(rows, told)
    work, unsure = _rested(work, told).tidy(), unsure.tidy()
    numbers = [told.clients[span.client].number for span in told.warm_spans]
    shown = np.union1d(work.owner, np.array(numbers, dtype=np.int64))
    names = tuple(told.clients)
    return Ledger(
        resources=rows.resources,
        clients=tuple(names[number] for number in shown.tolist()),
        work=evolve(work, owner=np.searchsorted(shown, work.owner)),
        unsure=evolve(unsure, owner=np.searchsorted(shown, unsure.owner)),
        absent=_absent(rows.resources, told.rounds, work, begin_ms, end_ms),
        warm_spans=tuple(
            sorted(told.warm_spans, key=lambda span: (span.begin_ms, span.client, span.resource))
        ),
        begin_ms=begin_ms,
        until_ms=end_ms,
    )


# --- records ------------------------------------------------------------------------------------


@define
class _Client:
    """A process, as its records show it.

    Attributes:
        member: its last member id.
        last: number of its last record.
        is_hosted: whether records tell of its process, so that its silence means nothing.
        shown_ms: time of the first of the last rounds without it; None if it is in the last round,
            or wrote after it.
        gone_ms: when it ended; `shown_ms` less its session.
    """

    number: int
    warm: WarmNow
    member: str = ""
    last: int = -1
    last_ms: int = 0
    session_ms: int = 0
    is_hosted: bool = False
    paused_ms: int | None = None
    shown_ms: int | None = None
    gone_ms: int | None = None

    def returns_with(self, envelope: Envelope) -> bool:
        """Return whether a record begins another life of the process, after one without an end."""
        if self.is_hosted or not self.member:
            return False
        record = envelope.record
        subscribes = isinstance(record, StateChanged) and record.before == "unsubscribed"
        return subscribes or envelope.member not in {"", self.member}


def shared_names(history: Iterable[Envelope]) -> frozenset[str]:
    """Return the names that several processes have at the same time, so that they name none.

    Real consumers write their `client.id`. Its default is the host name, and a host can run several
    members. Members that write one after the other are one process that returned. Names of records
    about processes are names of processes.
    """
    times: dict[str, dict[str, tuple[int, int]]] = defaultdict(dict)
    hosted = set()
    for one in history:
        if one.client and one.member:
            begin_ms, end_ms = times[one.client].get(one.member, (one.at_ms, one.at_ms))
            span = min(begin_ms, one.at_ms), max(end_ms, one.at_ms)
            times[one.client][one.member] = span
        if isinstance(one.record, _OF_PROCESSES):
            hosted.add(one.client)
    return frozenset(
        name
        for name, members in times.items()
        if name not in hosted
        and any(after[0] < before[1] for before, after in pairwise(sorted(members.values())))
    )


class _Event(enum.IntEnum):
    START = 0
    STOP = 1
    LOSS = 2
    """A loss whose stop may follow in another record."""


@define
class _Told:
    """The records of a history, sorted by kind.

    Attributes:
        clients: by name, ascending.
        times_ms: time of each record, and the end of the history.
        ends_ms: when the work ended that a record ends.
        events: record, client, event and resources.
        lives: client and record of each start or end of a process.
        returns: records that a process wrote as it returned under its member id.
        pauses: client, begin and end of each pause of a process.
    """

    clients: dict[str, _Client]
    times_ms: Int64Array
    ends_ms: Int64Array
    events: list[tuple[int, int, _Event, ResourceSet]] = field(factory=list)
    lives: list[tuple[int, int]] = field(factory=list)
    returns: list[int] = field(factory=list)
    pauses: list[tuple[int, int, int]] = field(factory=list)
    rounds: list[tuple[int, RoundDecided]] = field(factory=list)
    warm_spans: list[WarmSpan] = field(factory=list)

    @staticmethod
    def of(history: Sequence[Envelope], end_ms: int) -> _Told:
        shared = shared_names(history)
        history = [evolve(one, client="") if one.client in shared else one for one in history]
        names = sorted({name for one in history if (name := one.client or one.member)})
        times_ms = np.array([*(one.at_ms for one in history), end_ms], dtype=np.int64)
        told = _Told(
            clients={name: _Client(number, WarmNow(name)) for number, name in enumerate(names)},
            times_ms=times_ms,
            ends_ms=times_ms.copy(),
        )
        for number, envelope in enumerate(history):
            told.take(number, envelope)
        told._end(end_ms)
        return told

    def take(self, number: int, envelope: Envelope) -> None:
        record, at_ms = envelope.record, envelope.at_ms
        if isinstance(record, RoundDecided):
            self.rounds.append((at_ms, record))
        client = self.clients.get(envelope.client or envelope.member)
        if client is None:
            return
        if client.returns_with(envelope):
            self.lives.append((client.number, number))
            self.returns.append(number)
            self.ends_ms[number] = max(client.last_ms, at_ms - client.session_ms)
        client.last, client.last_ms = number, at_ms
        client.member = envelope.member or client.member
        match record:
            case ResourcesStarted():
                self.events.append((number, client.number, _Event.START, record.resources))
            case ResourcesStopped():
                self.events.append((number, client.number, _Event.STOP, record.resources))
            case MembershipLost():
                event = _Event.STOP if record.since_lease_ms else _Event.LOSS
                self.events.append((number, client.number, event, record.resources))
                self.ends_ms[number] -= record.since_lease_ms
            case AssignmentReceived():
                client.session_ms = record.session_timeout_ms
            case WarmupsChanged():
                self.warm_spans += client.warm.take(at_ms, record)
            case _ if isinstance(record, _OF_PROCESSES):
                self._note_process(number, client, envelope)
            case _:
                pass

    def _note_process(self, number: int, client: _Client, envelope: Envelope) -> None:
        client.is_hosted = True
        paused_ms, client.paused_ms = client.paused_ms, None
        if isinstance(envelope.record, ProcessPaused):
            client.paused_ms = envelope.at_ms if paused_ms is None else paused_ms
        elif paused_ms is not None:
            self.pauses.append((client.number, paused_ms, envelope.at_ms))
        if isinstance(envelope.record, ProcessStarted | ProcessEnded):
            self.lives.append((client.number, number))
            self.warm_spans += client.warm.end(envelope.at_ms, WarmEnd.ENDED)

    def _end(self, end_ms: int) -> None:
        members = [(at_ms, frozenset(record.members)) for at_ms, record in reversed(self.rounds)]
        for client in self.clients.values():
            if client.paused_ms is not None:
                self.pauses.append((client.number, client.paused_ms, end_ms))
            if not client.is_hosted and client.member:
                for at_ms, names in members:
                    if at_ms <= client.last_ms or client.member in names:
                        break
                    client.shown_ms = at_ms
            if client.shown_ms is None:
                self.warm_spans += client.warm.end(end_ms, WarmEnd.OPEN)
            else:
                client.gone_ms = max(client.last_ms, client.shown_ms - client.session_ms)
                self.warm_spans += client.warm.end(client.gone_ms, WarmEnd.ENDED)


@frozen(kw_only=True, eq=False)
class _Rows:
    """Starts and stops, one row for each resource of each record; all arrays int64 (N,)."""

    resources: ResourceSet
    resource: Int64Array
    client: Int64Array
    record: Int64Array
    event: Int64Array

    @staticmethod
    def of(told: _Told) -> _Rows:
        sets = [resources for *_, resources in told.events]
        decided = {
            named: None for _, one in told.rounds for named in (one.granted, one.lost, one.waiting)
        }
        resources = ResourceSet.union_all([*sets, *decided])
        numbers = np.array([one[:3] for one in told.events], dtype=np.int64).reshape(-1, 3)
        record, client, event = np.repeat(numbers, [len(one) for one in sets], axis=0).T
        return _Rows(
            resources=resources,
            resource=resources.positions_all(sets),
            client=client,
            record=record,
            event=event,
        )


# --- work ---------------------------------------------------------------------------------------


def _work(rows: _Rows, told: _Told) -> tuple[Spans, Spans]:
    """Return the work, and what may have been work of clients that write no more."""
    last = told.times_ms.size - 1
    pair = rows.resource * len(told.clients) + rows.client
    order = np.lexsort((rows.record, pair))
    order = order[rows.event[order] == _Event.START]
    start = rows.record[order]

    def next_of(event: _Event) -> Int64Array:
        is_it = rows.event == event
        return _next(pair[is_it], rows.record[is_it], pair[order], start, last)

    lives = np.array(told.lives, dtype=np.int64).reshape(-1, 2)
    ends = np.minimum(
        next_of(_Event.STOP), _next(lives[:, 0], lives[:, 1], rows.client[order], start, last)
    )
    ends = np.where(ends == last, next_of(_Event.LOSS), ends)
    # A second start without an end in between changes nothing.
    again = np.zeros(order.size, dtype=np.bool_)
    again[1:] = (pair[order][1:] == pair[order][:-1]) & (ends[1:] == ends[:-1])
    order, start, ends = order[~again], start[~again], ends[~again]
    work = Spans(
        resource=rows.resource[order],
        owner=rows.client[order],
        start_ms=told.times_ms[start],
        end_ms=told.ends_ms[ends],
    )
    is_back = np.isin(ends, told.returns)
    returned = evolve(work, start_ms=work.end_ms, end_ms=told.times_ms[ends]).take(is_back)
    work, unsure = _guessed(work, start, ends == last, told)
    return work, unsure.and_more(returned)


def _next(
    keys: Int64Array, records: Int64Array, wanted: Int64Array, after: Int64Array, last: int
) -> Int64Array:
    """Return the first record of each wanted key after a given record, or `last`."""
    known = np.sort(keys * (last + 1) + records)
    positions = np.searchsorted(known, wanted * (last + 1) + after, side="right")
    found = np.append(known, -1)[positions]
    return np.where(found // (last + 1) == wanted, found % (last + 1), last)


def _guessed(
    work: Spans, start: Int64Array, is_open: BoolArray, told: _Told
) -> tuple[Spans, Spans]:
    """End the open work of clients that write no more (see the top of this module)."""
    last, until_ms = told.times_ms.size - 1, int(told.times_ms[-1])
    clients = told.clients.values()
    # A client with records about its process is never considered silent.
    words = np.array([last if one.is_hosted else one.last for one in clients], dtype=np.int64)
    gone_ms = np.array([until_ms if one.gone_ms is None else one.gone_ms for one in clients])
    shown_ms = np.array([until_ms if one.shown_ms is None else one.shown_ms for one in clients])
    if not clients:
        return work, work
    # The first work on the resource that starts after the owner's last record.
    next_ms = told.times_ms[_next(work.resource, start, work.resource, words[work.owner], last)]
    end_ms = np.maximum(work.start_ms, np.minimum(next_ms, gone_ms[work.owner]))
    unsure = evolve(work, start_ms=end_ms, end_ms=np.minimum(next_ms, shown_ms[work.owner]))
    return evolve(work, end_ms=np.where(is_open, end_ms, work.end_ms)), unsure.take(is_open)


def _rested(work: Spans, told: _Told) -> Spans:
    """Return the work without the pauses of its process."""
    for client, pause_ms, resume_ms in told.pauses:
        hit = (work.owner == client) & (work.start_ms < resume_ms) & (work.end_ms > pause_ms)
        touched = work.take(hit)
        before = evolve(touched, end_ms=np.full(touched.end_ms.size, pause_ms))
        after = evolve(touched, start_ms=np.full(touched.start_ms.size, resume_ms))
        work = work.take(~hit).and_more(before, after)
        work = work.take(work.end_ms > work.start_ms)
    return work


def _absent(
    resources: ResourceSet,
    rounds: Sequence[tuple[int, RoundDecided]],
    work: Spans,
    begin_ms: int,
    until_ms: int,
) -> Spans:
    """Return when resources did not exist: until a round mentions them, or work begins."""
    is_there = np.zeros(len(resources), dtype=np.bool_)
    since_ms = np.full(len(resources), begin_ms, dtype=np.int64)
    found = []

    def came(places: Int64Array, at_ms: int) -> None:
        ends_ms = np.full(places.size, at_ms, dtype=np.int64)
        owner = np.full(places.size, NOBODY, dtype=np.int64)
        found.append(Spans(resource=places, owner=owner, start_ms=since_ms[places], end_ms=ends_ms))
        is_there[places] = True

    for at_ms, record in rounds:
        for named in (record.granted, record.created, record.lost, record.waiting):
            places = resources.positions(named).astype(np.int64)
            places = places[places >= 0]
            places = places[~is_there[places]]
            if places.size:
                came(places, at_ms)
        places = resources.positions(record.gone)
        places = places[places >= 0]
        since_ms[places[is_there[places]]] = at_ms
        is_there[places] = False
    came(np.flatnonzero(~is_there), until_ms)
    absent = _NONE.and_more(*found)
    stride = until_ms - begin_ms + 1
    starts = np.sort(work.resource * stride + work.start_ms - begin_ms)
    wanted = absent.resource * stride + absent.start_ms - begin_ms
    next_start = np.append(starts, -1)[np.searchsorted(starts, wanted)]
    is_worked = (next_start >= 0) & (next_start // stride == absent.resource)
    started_ms = np.where(is_worked, next_start % stride + begin_ms, until_ms)
    return evolve(absent, end_ms=np.minimum(absent.end_ms, started_ms)).tidy()
