"""`read_ownership`: which client worked on which resource and when, from telemetry alone.

Ownership follows the applications (`ResourcesStarted`, `ResourcesStopped`) and not the assignments.
The work of a process also ends with the process, and rests while the process is paused: a killed
process writes nothing more, and a frozen process writes later. A process that returns under the
same name starts without work.

Real consumers write no records about processes, so a crash must be inferred. Work without an end is
over when another client starts on the resource and its old owner never writes again. If a client
has records about its process, these count instead, so that double owners become visible.

Theory of operation: records are sorted by time and numbered. Every start and stop becomes a row
(resource, client, number of the record). Work ends with the first of three events after its start:
a stop of the same pair, a start or an end of the process, the end of the history. Each event is a
look-up in sorted keys made of pair (or client) and number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
from attrs import evolve, frozen

from coopgroup.core.model import ResourceSet
from coopgroup.core.telemetry.codec import Envelope
from coopgroup.core.telemetry.records import (
    ProcessEnded,
    ProcessPaused,
    ProcessResumed,
    ProcessStarted,
    ResourcesStarted,
    ResourcesStopped,
    RoundDecided,
)

__all__ = ["Ownership", "read_ownership"]

Int32Array: TypeAlias = npt.NDArray[np.int32]
Int64Array: TypeAlias = npt.NDArray[np.int64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]

_RECORDS_OF_PROCESSES: Final = (ProcessStarted, ProcessEnded, ProcessPaused, ProcessResumed)
_LIVES: Final = (ProcessStarted, ProcessEnded)
_WORK: Final = (ResourcesStarted, ResourcesStopped)


@frozen(kw_only=True, eq=False)
class Ownership:
    """I intervals in which clients worked on R resources, sorted by resource, then by begin.

    Intervals are never empty. Intervals of one client and resource never overlap. Intervals of two
    clients overlap if both worked on a resource at the same time.

    Attributes:
        resources: resources that members worked on or leaders assigned.
        clients: names of processes, ascending; member ids where processes have no name.
        resource: int32 (I,): number of the resource.
        owner: int32 (I,): number of the client.
        start_ms: int64 (I,): when the work began.
        end_ms: int64 (I,): when it ended or rested; `until_ms` if it did not end.
    """

    resources: ResourceSet
    clients: tuple[str, ...]
    resource: Int32Array
    owner: Int32Array
    start_ms: Int64Array
    end_ms: Int64Array
    begin_ms: int
    until_ms: int


def read_ownership(envelopes: Iterable[Envelope], *, until_ms: int | None = None) -> Ownership:
    """Derive the intervals of work from telemetry.

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
    rows = _Rows.of(history)
    work = _work(rows, history)
    times_ms = np.array([*(envelope.at_ms for envelope in history), end_ms], dtype=np.int64)
    intervals = _rested(rows, work, times_ms, history)
    intervals = intervals.take(intervals.end > intervals.start)
    intervals = intervals.take(
        np.lexsort((intervals.end, intervals.client, intervals.start, intervals.resource))
    )
    return Ownership(
        resources=rows.resources,
        clients=rows.clients,
        resource=intervals.resource.astype(np.int32),
        owner=intervals.client.astype(np.int32),
        start_ms=intervals.start,
        end_ms=intervals.end,
        begin_ms=begin_ms,
        until_ms=end_ms,
    )


# --- rows ---------------------------------------------------------------------------------------


@frozen(kw_only=True, eq=False)
class _Rows:
    """Starts and stops, one row for each resource of each record.

    Attributes:
        resource: int64 (N,): number of the resource.
        client: int64 (N,): number of the client.
        record: int64 (N,): number of the record in the history.
        is_start: bool (N,): True for a start, False for a stop.
    """

    resources: ResourceSet
    clients: tuple[str, ...]
    resource: Int64Array
    client: Int64Array
    record: Int64Array
    is_start: BoolArray
    numbers: Mapping[str, int]

    @staticmethod
    def of(history: Sequence[Envelope]) -> _Rows:
        clients = tuple(sorted({name for one in history if (name := _name(one))}))
        numbers = {name: number for number, name in enumerate(clients)}
        worked = [
            (number, one, one.record)
            for number, one in enumerate(history)
            if isinstance(one.record, _WORK) and _name(one)
        ]
        sets = [record.resources for _, _, record in worked]
        resources = ResourceSet.union_all([*sets, *_decided(history)])
        sizes = [len(one) for one in sets]
        return _Rows(
            resources=resources,
            clients=clients,
            resource=resources.positions_all(sets),
            client=_repeated([numbers[_name(one)] for _, one, _ in worked], sizes),
            record=_repeated([number for number, _, _ in worked], sizes),
            is_start=_repeated(
                [isinstance(record, ResourcesStarted) for _, _, record in worked], sizes
            ).astype(np.bool_),
            numbers=numbers,
        )


def _name(envelope: Envelope) -> str:
    return envelope.client or envelope.member


def _decided(history: Sequence[Envelope]) -> list[ResourceSet]:
    decided: dict[ResourceSet, None] = {}
    for envelope in history:
        if isinstance(led := envelope.record, RoundDecided):
            decided |= dict.fromkeys((led.granted, led.lost, led.waiting))
    return list(decided)


def _repeated(values: Sequence[int], sizes: Sequence[int]) -> Int64Array:
    return np.repeat(np.array(values, dtype=np.int64), np.array(sizes, dtype=np.int64))


# --- work ---------------------------------------------------------------------------------------


@frozen(kw_only=True, eq=False)
class _Work:
    """Intervals of work; all arrays int64 (I,). Begins and ends are record numbers, or ms."""

    resource: Int64Array
    client: Int64Array
    start: Int64Array
    end: Int64Array

    def take(self, picked: BoolArray | npt.NDArray[np.intp]) -> _Work:
        return _Work(
            resource=self.resource[picked],
            client=self.client[picked],
            start=self.start[picked],
            end=self.end[picked],
        )


def _work(rows: _Rows, history: Sequence[Envelope]) -> _Work:
    """Return the intervals in record numbers, sorted by resource and client, then by begin."""
    last = len(history)
    pair = rows.resource * len(rows.clients) + rows.client
    order = np.lexsort((rows.record, pair))
    order = order[rows.is_start[order]]
    work = _Work(
        resource=rows.resource[order],
        client=rows.client[order],
        start=rows.record[order],
        end=np.full(order.size, last, dtype=np.int64),
    )
    stops = ~rows.is_start
    ends = np.minimum(
        _next(pair[stops], rows.record[stops], pair[order], work.start, last),
        _next(*_lives(rows, history), work.client, work.start, last),
    )
    # A second start without an end in between changes nothing.
    again = np.zeros(order.size, dtype=np.bool_)
    again[1:] = (pair[order][1:] == pair[order][:-1]) & (ends[1:] == ends[:-1])
    work = evolve(work, end=ends).take(~again)
    return evolve(work, end=_guessed_ends(rows, work, history))


def _next(
    keys: Int64Array, records: Int64Array, wanted: Int64Array, after: Int64Array, last: int
) -> Int64Array:
    """Return the first record of each wanted key after a given record, or `last`."""
    known = np.sort(keys * (last + 1) + records)
    positions = np.searchsorted(known, wanted * (last + 1) + after, side="right")
    found = np.append(known, -1)[positions]
    return np.where(found // (last + 1) == wanted, found % (last + 1), last)


def _lives(rows: _Rows, history: Sequence[Envelope]) -> tuple[Int64Array, Int64Array]:
    edges = [
        (rows.numbers[_name(one)], number)
        for number, one in enumerate(history)
        if isinstance(one.record, _LIVES) and _name(one)
    ]
    both = np.array(edges, dtype=np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def _guessed_ends(rows: _Rows, work: _Work, history: Sequence[Envelope]) -> Int64Array:
    """Return the ends of work, including inferred ends (see the top of this module)."""
    last = len(history)
    last_words = np.full(len(rows.clients), -1, dtype=np.int64)
    for number, one in enumerate(history):
        if name := _name(one):
            # A client with records about its process is never considered silent.
            is_believed = isinstance(one.record, _RECORDS_OF_PROCESSES)
            client = rows.numbers[name]
            last_words[client] = last if is_believed else max(number, last_words[client])
    starts = np.sort(work.resource * (last + 1) + work.start)
    # The first work on the resource that starts after the owner's last record.
    successor = _next(
        starts // (last + 1), starts % (last + 1), work.resource, last_words[work.client], last
    )
    return np.where(work.end == last, successor, work.end)


# --- rests --------------------------------------------------------------------------------------


def _rested(rows: _Rows, work: _Work, times_ms: Int64Array, history: Sequence[Envelope]) -> _Work:
    """Return the work in ms, without the times in which the process was paused."""
    intervals = evolve(work, start=times_ms[work.start], end=times_ms[work.end])
    for client, pause_ms, resume_ms in _pauses(rows, times_ms, history):
        hit = (
            (intervals.client == client)
            & (intervals.start < resume_ms)
            & (intervals.end > pause_ms)
        )
        touched, others = intervals.take(hit), intervals.take(~hit)
        before = evolve(touched, end=np.full(touched.end.size, pause_ms))
        after = evolve(touched, start=np.full(touched.start.size, resume_ms))
        intervals = _joined([others, before, after])
        intervals = intervals.take(intervals.end > intervals.start)
    return intervals


def _pauses(
    rows: _Rows, times_ms: Int64Array, history: Sequence[Envelope]
) -> list[tuple[int, int, int]]:
    """Return client, begin and end of each pause of a process."""
    pauses = []
    since: dict[int, int] = {}
    for one in history:
        if isinstance(one.record, _RECORDS_OF_PROCESSES) and _name(one):
            client = rows.numbers[_name(one)]
            paused_ms = since.pop(client, None)
            if isinstance(one.record, ProcessPaused):
                since[client] = one.at_ms if paused_ms is None else paused_ms
            elif paused_ms is not None:
                pauses.append((client, paused_ms, one.at_ms))
    return pauses + [(client, ms, int(times_ms[-1])) for client, ms in since.items()]


def _joined(parts: Sequence[_Work]) -> _Work:
    return _Work(
        resource=np.concatenate([part.resource for part in parts]),
        client=np.concatenate([part.client for part in parts]),
        start=np.concatenate([part.start for part in parts]),
        end=np.concatenate([part.end for part in parts]),
    )
