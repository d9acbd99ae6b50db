"""`Chronicle`: the last half hour of a group, as a `History` that the report draws: pure.

Snapshots say who owns a partition now. Bars of the timeline begin and end at the looks that show
another owner. Telemetry of members (`GroupView.records`) adds rounds, faults and warm-ups.

A process that restarts keeps its colour if it is a static member. Every other member id is a
process of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
from attrs import define, evolve, field, frozen

from coopgroup.core.model import NOBODY, ResourceSet
from coopgroup.core.telemetry.ledger import LagHistory
from coopgroup.printable import printable
from coopgroup.report.history import History
from coopgroup.report.history.names import named, told_apart
from coopgroup.report.history.rounds import round_rows
from coopgroup.report.history.timeline_events import (
    TimelineEvent,
    TimelineEventKind,
    timeline_events,
)
from coopgroup.report.palette import Paint, paints, ranks
from coopgroup.report.wording import seconds
from coopgroup.telemetry import Envelope, Ledger, Spans, read_ledger
from coopgroup.watch.values import GroupView, MemberView

_Key: TypeAlias = tuple[str, int]
_Float64Array: TypeAlias = npt.NDArray[np.float64]

_WINDOW_MS: Final = 1_800_000
_SAMPLE_MS: Final = 3_000  # the report draws 600 points of lag: one each 3 s in half an hour
_RECORDS_MAX: Final = 50_000  # all who may write to the topic choose the records
_EVENTS: Final = {"joined": TimelineEventKind.STARTED, "left": TimelineEventKind.ENDED}


@frozen(eq=False, kw_only=True)
class Chapter:
    """A history and its colours.

    Attributes:
        paint: of each client of the ledger.
    """

    history: History
    paint: tuple[Paint, ...]


@frozen
class _Work:
    """Work of a process (see `_process`) on a partition."""

    key: _Key
    process: str
    start_ms: int
    end_ms: int


@define(eq=False)
class Chronicle:
    """Collects the snapshots of one group.

    Attributes:
        window_ms: length of the history.
        changes: grows with each change of owners or members, and with telemetry. It grows once more
            at the next look: only then have the bars that begin with a change a length.
    """

    window_ms: int = _WINDOW_MS
    changes: int = field(default=0, init=False)
    _is_changed: bool = field(default=False, init=False)  # at the last look
    _begin_ms: int = field(default=-1, init=False)
    _until_ms: int = field(default=-1, init=False)
    # Open work: the process and the begin.
    _owned: dict[_Key, tuple[str, int]] = field(factory=dict, init=False)
    _done: deque[_Work] = field(factory=deque, init=False)
    _first_ms: dict[_Key, int] = field(factory=dict, init=False)
    _last_ms: dict[_Key, int] = field(factory=dict, init=False)
    # The lag of each partition, in the order of `_first_ms`, which only grows.
    _lags: deque[tuple[int, _Float64Array]] = field(factory=deque, init=False)
    _events: deque[TimelineEvent] = field(factory=deque, init=False)
    _records: list[Envelope] = field(factory=list, init=False)
    # The records before it were too many.
    _cut: TimelineEvent | None = field(default=None, init=False)
    _view: GroupView | None = field(default=None, init=False)
    # Processes in the window: their names, see `told_apart`, and the numbers of their colours.
    _names: dict[str, tuple[str, str]] = field(factory=dict, init=False)
    _colours: dict[str, int] = field(factory=dict, init=False)
    _processes: dict[str, str] = field(factory=dict, init=False)
    _present: frozenset[str] = field(default=frozenset(), init=False)

    def note(self, view: GroupView) -> None:
        """Take the next snapshot of `GroupTracker`."""
        self.changes += self._is_changed
        changes = self.changes
        at_ms = self._until_ms = max(self._until_ms, view.at_ms)  # clocks can be set back
        if self._begin_ms < 0:
            self._begin_ms = at_ms
        self._note_members(view.members)
        self._note_owners(view, at_ms)
        keys = [(one.topic, one.partition) for one in view.partitions]
        self._first_ms |= {key: at_ms for key in keys if key not in self._first_ms}
        self._last_ms |= dict.fromkeys(keys, at_ms)
        if not self._lags or at_ms - self._lags[-1][0] >= _SAMPLE_MS:
            lags = {key: one.lag for key, one in zip(keys, view.partitions, strict=True)}
            row = [lags.get(key, 0) for key in self._first_ms]
            self._lags.append((at_ms, np.array(row, dtype=np.float64)))  # NaN for an unknown lag
        self._note_moves(view)
        # A record of a clock that is ahead would outlast the window.
        self._records += [evolve(one, at_ms=min(one.at_ms, at_ms)) for one in view.records]
        self.changes += len(view.records)
        self._is_changed = self.changes > changes
        self._forget(max(self._begin_ms, at_ms - self.window_ms))

    def note_silence(self, since_ms: int, until_ms: int) -> None:
        """Mark a time without answers of the brokers."""
        label = f"no answer for {seconds(round(until_ms - since_ms, -3))}"
        self._events.append(_event(since_ms, TimelineEventKind.FAULT, label))
        self.changes += 1

    def chapter(self) -> Chapter | None:
        """Return the history up to the last snapshot; None without a partition or a second look."""
        resources = ResourceSet.from_pairs(self._first_ms)
        if not resources or self._until_ms == self._begin_ms:
            return None
        open_work = (
            _Work(key, process, start_ms, self._until_ms)
            for key, (process, start_ms) in self._owned.items()
        )
        work = [one for one in (*self._done, *open_work) if one.end_ms > one.start_ms]
        texts = told_apart(self._names)
        members = {member: texts[process] for member, process in self._processes.items()}
        records, names = named(
            [
                evolve(one, client=members.get(one.member, ""))
                for one in sorted(self._records, key=lambda one: one.at_ms)
            ]
        )
        spans = read_ledger(records, until_ms=self._until_ms).warm_spans
        processes = {texts[process]: process for process in self._names}
        clients = sorted({texts[one.process] for one in work} | {one.client for one in spans})
        rounds = round_rows(records, names)
        colours = [self._colours.get(processes.get(client, ""), 0) for client in clients]
        made = paints(max(colours, default=0) + 1)
        cut = () if self._cut is None else (self._cut,)
        history = History(
            ledger=evolve(self._ledger(work, resources, clients, texts), warm_spans=spans),
            rounds=rounds,
            timeline_events=tuple(
                sorted(
                    (*self._events, *cut, *timeline_events(records, rounds)),
                    key=lambda one: one.at_ms,
                )
            ),
            settled_ms=self._begin_ms,
            envelopes=tuple(records),
            lag=self._samples() if self._view is None or not self._view.shares_resources else None,
        )
        return Chapter(history=history, paint=tuple(made[number] for number in colours))

    def _note_members(self, members: Iterable[MemberView]) -> None:
        self._present = frozenset(one.member_id for one in members)
        fresh = [one for one in members if one.member_id not in self._processes]
        order = ranks(one.name for one in fresh)
        for _, one in sorted(zip(order, fresh, strict=True), key=lambda pair: pair[0]):
            process = _process(one)
            text = "" if one.instance_id else one.member_id.removeprefix(f"{one.name}-")
            self._processes[one.member_id] = process
            self._names[process] = printable(one.name), printable(text)
            if process not in self._colours:
                taken = set(self._colours.values())
                self._colours[process] = next(
                    number for number in range(len(taken) + 1) if number not in taken
                )

    def _note_owners(self, view: GroupView, at_ms: int) -> None:
        owners = {
            (one.topic, one.partition): self._processes[one.owner]
            for one in view.partitions
            if one.owner in self._processes
        }
        for key, (process, start_ms) in list(self._owned.items()):
            if owners.get(key) != process:
                del self._owned[key]
                self._done.append(_Work(key, process, start_ms, at_ms))
                self.changes += 1
        for key in owners.keys() - self._owned.keys():
            self._owned[key] = owners[key], at_ms
            self.changes += 1

    def _note_moves(self, view: GroupView) -> None:
        fresh, self._view = view.moves_since(self._view), view
        events = [
            _event(one.at_ms, _EVENTS[one.kind], printable(one.text))
            for one in reversed(fresh)
            if one.kind in _EVENTS
        ]
        self._events += events
        self.changes += len(events)

    def _forget(self, begin_ms: int) -> None:
        """Forget what was before the window."""
        self._begin_ms = begin_ms
        while self._done and self._done[0].end_ms <= begin_ms:
            self._done.popleft()
        while self._events and self._events[0].at_ms < begin_ms:
            self._events.popleft()
        while len(self._lags) > 1 and self._lags[0][0] < begin_ms:
            self._lags.popleft()
        if any(one.at_ms < begin_ms for one in self._records):
            self._records = [one for one in self._records if one.at_ms >= begin_ms]
        if len(self._records) > _RECORDS_MAX:
            del self._records[:-_RECORDS_MAX]
            label = "older records are left out, because they were many"
            self._cut = _event(self._records[0].at_ms, TimelineEventKind.FAULT, label)
        elif self._cut is not None and self._cut.at_ms < begin_ms:
            self._cut = None
        gone = [key for key, last_ms in self._last_ms.items() if last_ms < begin_ms]
        if gone:
            places = [number for number, key in enumerate(self._first_ms) if key in set(gone)]
            self._lags = deque((at_ms, np.delete(row, places)) for at_ms, row in self._lags)
            for key in gone:
                del self._last_ms[key], self._first_ms[key]
        self._forget_processes()

    def _forget_processes(self) -> None:
        kept = {process for process, _ in self._owned.values()}
        kept |= {one.process for one in self._done}
        kept |= {self._processes[member] for member in self._present}
        for process in self._names.keys() - kept:
            del self._names[process], self._colours[process]
        self._processes = {
            member: process for member, process in self._processes.items() if process in kept
        }

    def _ledger(
        self, work: list[_Work], resources: ResourceSet, clients: list[str], texts: dict[str, str]
    ) -> Ledger:
        place = {(name, index): number for number, (name, index) in enumerate(resources)}
        number = {client: number for number, client in enumerate(clients)}
        begin_ms, until_ms = self._begin_ms, self._until_ms
        worked = (
            (place[one.key], number[texts[one.process]], max(one.start_ms, begin_ms), one.end_ms)
            for one in work
        )
        unseen = (
            (place[one], NOBODY, start_ms, end_ms)
            for one in resources
            for start_ms, end_ms in (
                (begin_ms, self._first_ms[one]),
                (self._last_ms[one], until_ms),
            )
        )
        return Ledger(
            resources=resources,
            clients=tuple(clients),
            work=Spans.of(worked).tidy(),
            absent=Spans.of(unseen).tidy(),
            begin_ms=self._begin_ms,
            until_ms=self._until_ms,
        )

    def _samples(self) -> LagHistory:
        lags = np.zeros((len(self._lags), len(self._first_ms)))
        for number, (_, row) in enumerate(self._lags):
            lags[number, : row.size] = row
        order = sorted(range(len(self._first_ms)), key=list(self._first_ms).__getitem__)
        return LagHistory(
            times_ms=np.array([at_ms for at_ms, _ in self._lags], dtype=np.int64),
            lags=lags[:, order],
            resources=ResourceSet.from_pairs(self._first_ms),
        )


def _process(member: MemberView) -> str:
    return f"static {member.instance_id}" if member.instance_id else member.member_id


def _event(at_ms: int, kind: TimelineEventKind, label: str) -> TimelineEvent:
    return TimelineEvent(at_ms=at_ms, kind=kind, label=label, story=label)
