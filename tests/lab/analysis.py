"""Facts about a trial, computed from the records that consumers handed out.

The analysis does not trust any statement of a consumer about itself. An *incarnation* of a member
is one of its processes. The input contains, for each incarnation, the records that its application
got and when, and the records that the broker acknowledged to the producer. `docs/measuring.md`
explains each definition.

- A record is **lost** if it was acknowledged and never handed out. It is **duplicated** each time
  that it is handed out again.
- A record **waits** from its production until it is handed out. If the previous record of its
  partition was handed out later than that, the wait begins then. The pace of the producer is
  therefore not a wait. With an idle broker a wait is the transport time of a few milliseconds.
- A partition is **retained** in a window if it stays with one incarnation. This incarnation handed
  out the last record before the window, and all records within, at least one. Its **pause** is its
  longest wait.
- **Unavailable** time is the sum of all waits longer than `UNAVAILABLE_MS` in all partitions.
- A **spell** belongs to one ownership of a partition by an incarnation, between one `on_assign` and
  the next. It is the time between the first and the last record handed out. Two spells of a
  partition in different incarnations must not overlap; an overlap is **double-owner** time.
- A partition **moves** when its next spell belongs to a different member.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
from attrs import frozen

from tests.lab.recording import HANDED_OUT, Event, Rows

UNAVAILABLE_MS: Final = 100.0
"""Waits up to this long count as noise of the machine, not as unavailability."""

MERGED: Final = np.dtype(
    [
        *((name, HANDED_OUT[name]) for name in HANDED_OUT.names or ()),
        ("member", "<i4"),
        ("incarnation", "<i4"),
        ("waiting_since_ns", "<i8"),
        ("is_repeated", "?"),
    ]
)

_Ints: TypeAlias = "npt.NDArray[np.int64]"
_Bools: TypeAlias = "npt.NDArray[np.bool_]"


@frozen(kw_only=True)
class IncarnationLog:
    """The logs of one process.

    Attributes:
        member: name of the member; a process that replaces this process has the same name.
        rows: records that it handed out, dtype `HANDED_OUT`.
    """

    member: str
    rows: Rows
    events: Sequence[Event] = ()


@frozen(kw_only=True)
class TrialLog:
    """All logs of a group, in order.

    Attributes:
        rows: dtype `MERGED`, ordered by partition, then by moment.
        acknowledged: records that the broker accepted, dtype `ACKNOWLEDGED`.
    """

    rows: Rows
    acknowledged: Rows
    spells: tuple[Spell, ...]
    events: tuple[Event, ...]


@frozen(kw_only=True)
class Spell:
    """One ownership of one partition; `member` and `incarnation` are indices in the trial's log."""

    partition: int
    member: int
    incarnation: int
    first_ns: int
    last_ns: int
    records: int


@frozen(kw_only=True)
class Window:
    """A period from `begin_ns` up to but not including `end_ns`."""

    begin_ns: int
    end_ns: int

    @property
    def length_s(self) -> float:
        """Length in seconds."""
        return (self.end_ns - self.begin_ns) / 1e9


@frozen(kw_only=True)
class Facts:
    """The measured values of a window; the module's docstring defines the terms.

    Attributes:
        consumed: different records handed out in the window for the first time.
        lost: acknowledged records, produced in the window, that were never handed out.
        duplicated: records handed out in the window although they had been handed out before.
        retained_pause_ms_max: longest wait in a retained partition; 0 without such partitions.
    """

    consumed: int
    lost: int
    duplicated: int
    moved: int
    moved_twice: int
    retained: int
    retained_pause_ms_max: float
    pause_ms_max: float
    unavailable_partition_s: float
    double_owner_ms: float
    double_owner_transitions: int
    commits: int
    failed_commits: int
    commit_ms_max: float


def merge(incarnations: Sequence[IncarnationLog], acknowledged: Rows) -> TrialLog:
    """Merge the logs of a group and put them in order."""
    members = sorted({incarnation.member for incarnation in incarnations})
    parts = [np.empty(0, MERGED)]
    for index, incarnation in enumerate(incarnations):
        part = np.zeros(len(incarnation.rows), MERGED)
        for name in HANDED_OUT.names or ():
            part[name] = incarnation.rows[name]
        part["incarnation"] = index
        part["member"] = members.index(incarnation.member)
        parts.append(part)
    rows = np.concatenate(parts)
    rows = rows[np.lexsort((rows["offset"], rows["at_ns"], rows["partition"]))]
    rows["waiting_since_ns"] = _waiting_since(rows)
    rows["is_repeated"] = _repeated(rows)
    events = (event for incarnation in incarnations for event in incarnation.events)
    return TrialLog(
        rows=rows,
        acknowledged=acknowledged,
        spells=spells_of(rows),
        events=tuple(sorted(events, key=lambda event: event.at_ns)),
    )


def measure(log: TrialLog, window: Window) -> Facts:
    """Return all facts about `window`."""
    inside = log.rows[_within(log.rows["at_ns"], window)]
    waits, partitions = _waits_ms(log, window)
    retained = _retained(log.rows, window)
    moves = _moves(log.spells, window)
    overlaps = _overlaps_ms(log.spells, window)
    commits = [event for event in log.events if window.begin_ns <= event.at_ns < window.end_ns]
    took_ms = [
        float(str(event.fields["took_ms"])) for event in commits if "took_ms" in event.fields
    ]
    return Facts(
        consumed=int(np.count_nonzero(~inside["is_repeated"])),
        lost=int(np.count_nonzero(_within(_lost(log)["produced_ns"], window))),
        duplicated=int(np.count_nonzero(inside["is_repeated"])),
        moved=sum(moves.values()),
        moved_twice=sum(count > 1 for count in moves.values()),
        retained=len(retained),
        retained_pause_ms_max=_longest(waits[np.isin(partitions, retained)]),
        pause_ms_max=_longest(waits),
        unavailable_partition_s=round(float(waits[waits > UNAVAILABLE_MS].sum()) / 1000, 3),
        double_owner_ms=round(max(overlaps, default=0.0), 3),
        double_owner_transitions=len(overlaps),
        commits=sum(event.name == "committed" for event in commits),
        failed_commits=sum(event.name == "commit_failed" for event in commits),
        commit_ms_max=max(took_ms, default=0.0),
    )


def spells_of(rows: Rows) -> tuple[Spell, ...]:
    """Return the spells in `rows` (dtype `MERGED`), by partition, then by their first record."""
    if not len(rows):
        return ()
    order = np.lexsort((rows["at_ns"], rows["spell"], rows["incarnation"], rows["partition"]))
    ordered = rows[order]
    differs = np.zeros(len(ordered), bool)
    differs[0] = True
    for name in ("partition", "incarnation", "spell"):
        differs[1:] |= ordered[name][1:] != ordered[name][:-1]
    starts = np.flatnonzero(differs)
    ends = np.append(starts[1:], len(ordered))
    spells = [
        Spell(
            partition=int(ordered["partition"][start]),
            member=int(ordered["member"][start]),
            incarnation=int(ordered["incarnation"][start]),
            first_ns=int(ordered["at_ns"][start]),
            last_ns=int(ordered["at_ns"][end - 1]),
            records=int(end - start),
        )
        for start, end in zip(starts, ends, strict=True)
    ]
    return tuple(sorted(spells, key=lambda spell: (spell.partition, spell.first_ns)))


# --- rows ---------------------------------------------------------------------------------------


def _within(moments: _Ints, window: Window) -> _Bools:
    inside: _Bools = (moments >= window.begin_ns) & (moments < window.end_ns)
    return inside


def _waiting_since(rows: Rows) -> _Ints:
    """Return the start of each wait; `rows` are ordered by partition and moment."""
    since: _Ints = np.where(rows["produced_ns"] > 0, rows["produced_ns"], rows["at_ns"])
    follows = np.zeros(len(rows), bool)
    follows[1:] = rows["partition"][1:] == rows["partition"][:-1]
    before = np.zeros(len(rows), np.int64)
    before[1:] = rows["at_ns"][:-1]
    since = np.where(follows & (rows["produced_ns"] == 0), before, since)
    since[follows] = np.maximum(since[follows], before[follows])
    np.minimum(since, rows["at_ns"], out=since)
    return since


def _repeated(rows: Rows) -> _Bools:
    """Return which records are repeated; `rows` are ordered by partition and moment."""
    order = np.lexsort((rows["at_ns"], rows["offset"], rows["partition"]))
    ordered = rows[order]
    again = np.zeros(len(rows), bool)
    again[1:] = (ordered["partition"][1:] == ordered["partition"][:-1]) & (
        ordered["offset"][1:] == ordered["offset"][:-1]
    )
    repeated = np.zeros(len(rows), bool)
    repeated[order] = again
    return repeated


def _lost(log: TrialLog) -> Rows:
    lost: Rows = log.acknowledged[~np.isin(_record_keys(log.acknowledged), _record_keys(log.rows))]
    return lost


def _record_keys(rows: Rows) -> _Ints:
    """Return one number for each (partition, offset); offsets of a trial stay below 2**40."""
    keys: _Ints = (rows["partition"].astype(np.int64) << 40) | rows["offset"]
    return keys


# --- waits --------------------------------------------------------------------------------------


def _waits_ms(log: TrialLog, window: Window) -> tuple[npt.NDArray[np.float64], _Ints]:
    """Return the waits within the window, in ms, and the partition of each."""
    since = np.maximum(log.rows["waiting_since_ns"], window.begin_ns)
    until = np.minimum(log.rows["at_ns"], window.end_ns)
    touches = until > since
    waits = ((until - since)[touches]) / 1e6
    partitions = log.rows["partition"][touches].astype(np.int64)
    open_waits, open_partitions = _open_waits_ms(log, window)
    return (
        np.concatenate([waits, np.array(open_waits, np.float64)]),
        np.concatenate([partitions, np.array(open_partitions, np.int64)]),
    )


def _open_waits_ms(log: TrialLog, window: Window) -> tuple[list[float], list[int]]:
    """Return waits without an end: the last records of these partitions were never handed out."""
    lost = _lost(log)
    waits: list[float] = []
    partitions: list[int] = []
    for partition in np.unique(lost["partition"]).tolist():
        handed = log.rows[log.rows["partition"] == partition]
        tail = lost[lost["partition"] == partition]
        if len(handed):
            tail = tail[tail["offset"] > handed["offset"].max()]
        if not len(tail):
            continue
        last_ns = int(handed["at_ns"].max()) if len(handed) else 0
        since = max(int(tail["produced_ns"].min()), last_ns, window.begin_ns)
        if since < window.end_ns:
            waits.append((window.end_ns - since) / 1e6)
            partitions.append(partition)
    return waits, partitions


def _longest(waits: npt.NDArray[np.float64]) -> float:
    return round(float(waits.max()), 1) if len(waits) else 0.0


# --- owners -------------------------------------------------------------------------------------


def _retained(rows: Rows, window: Window) -> list[int]:
    """Return the partitions that stayed with one process from before the window to its end."""
    retained = []
    for partition in np.unique(rows["partition"]).tolist():
        mine = rows[rows["partition"] == partition]
        before = mine[mine["at_ns"] < window.begin_ns]
        inside = mine[_within(mine["at_ns"], window)]
        if len(before) and len(inside):
            owner = before["incarnation"][-1]
            if (inside["incarnation"] == owner).all():
                retained.append(partition)
    return retained


def _moves(spells: Sequence[Spell], window: Window) -> dict[int, int]:
    moves: dict[int, int] = {}
    for before, after in pairwise(spells):
        is_move = before.partition == after.partition and before.member != after.member
        if is_move and window.begin_ns <= after.first_ns < window.end_ns:
            moves[after.partition] = moves.get(after.partition, 0) + 1
    return moves


def _overlaps_ms(spells: Sequence[Spell], window: Window) -> list[float]:
    """Return the overlap in ms of each pair of spells that began to overlap in the window."""
    overlaps = []
    for index, spell in enumerate(spells):
        for later in spells[index + 1 :]:
            if later.partition != spell.partition:
                break
            is_inside = window.begin_ns <= later.first_ns < window.end_ns
            if is_inside and later.incarnation != spell.incarnation:
                overlap_ns = min(spell.last_ns, later.last_ns) - later.first_ns
                if overlap_ns >= 0:
                    overlaps.append(overlap_ns / 1e6)
    return overlaps
