"""Facts about a trial, computed from the records that were handed out.

Nothing here asks a consumer what it thinks it did. The input is, for each process that ever took
part (an *incarnation* of a member), the records that its application got and when, and the records
that the broker acknowledged to the producer. `docs/measuring.md` argues for each definition.

- A record is **lost** if it was acknowledged and never handed out, **duplicated** each time that it
  is handed out again.
- A record **waits** from the moment in which it was produced, or, if later, in which the record
  before it in its partition was handed out, until it is handed out itself. The pace of the producer
  is therefore no wait. With an idle broker a wait is a few milliseconds: the way through it.
- A partition is **retained** in a window if the incarnation that handed out its last record before
  the window handed out all its records within, and at least one. Its **pause** is its longest wait.
- **Unavailable** time is the sum of all waits longer than `UNAVAILABLE_MS` in all partitions.
- A **spell** is the time between the first and the last record of a partition that an incarnation
  handed out in one ownership (between one `on_assign` and the next). Two spells of a partition in
  different incarnations must not overlap; if they do, that is **double-owner** time.
- A partition **moves** when the member of its next spell is another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
from attrs import frozen

from coopgroup.testing.trial.recording import HANDED_OUT, Event, Rows

__all__ = [
    "UNAVAILABLE_MS",
    "Facts",
    "IncarnationLog",
    "Spell",
    "TrialLog",
    "Window",
    "measure",
    "merge",
    "spells_of",
]

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
    """What one process left behind.

    Attributes:
        member: name of the member; a process that takes its place later has the same.
        rows: records that it handed out, dtype `HANDED_OUT`.
        events: what else it reported.
    """

    member: str
    rows: Rows
    events: Sequence[Event] = ()


@frozen(kw_only=True)
class TrialLog:
    """Everything that a group left behind, put in order.

    Attributes:
        rows: dtype `MERGED`, ordered by partition, then by moment.
        acknowledged: records that the broker took, dtype `ACKNOWLEDGED`.
        spells: every ownership that handed something out.
        events: of all incarnations, in order of time.
    """

    rows: Rows
    acknowledged: Rows
    spells: tuple[Spell, ...]
    events: tuple[Event, ...]


@frozen(kw_only=True)
class Spell:
    """One ownership of one partition.

    Attributes:
        partition: which one.
        member: index of the owning member, by name.
        incarnation: index of the owning process, in the order given to `merge`.
        first_ns: first record handed out in it.
        last_ns: last one.
        records: how many.
    """

    partition: int
    member: int
    incarnation: int
    first_ns: int
    last_ns: int
    records: int


@frozen(kw_only=True)
class Window:
    """A stretch of time, from `begin_ns` up to but not including `end_ns`."""

    begin_ns: int
    end_ns: int

    @property
    def length_s(self) -> float:
        """Its length in seconds."""
        return (self.end_ns - self.begin_ns) / 1e9


@frozen(kw_only=True)
class Facts:
    """What happened in a window; the module's docstring defines the words.

    Attributes:
        consumed: different records handed out in it for the first time.
        lost: records produced in it, acknowledged, and never handed out, whenever.
        duplicated: records handed out in it that had been handed out before.
        moved: changes of owner.
        moved_twice: partitions that changed owner more than once.
        retained: partitions that stayed.
        retained_pause_ms_max: longest wait in one that stayed; 0 if none stayed.
        pause_ms_max: longest wait in any partition.
        unavailable_partition_s: seconds in which a partition had records and nobody handed them
            out, summed over partitions.
        double_owner_ms: longest overlap of two spells of a partition.
        double_owner_transitions: how many pairs of spells overlapped.
        commits: commits that succeeded.
        failed_commits: commits that did not.
        commit_ms_max: longest time that a commit took, failed or not.
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
    """Put the logs of a group in order.

    Args:
        incarnations: every process that ever took part, in any order.
        acknowledged: what the producer wrote down, dtype `ACKNOWLEDGED`.
    """
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
    """Everything that can be said about `window`.

    Args:
        log: of the whole trial: what was handed out after the window decides what was lost.
        window: when.
    """
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
    """The spells in `rows` (dtype `MERGED`), by partition, then by their first record."""
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
    """When each record began to wait; `rows` are ordered by partition and moment."""
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
    """Whether a record had been handed out before; `rows` are ordered by partition and moment."""
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
    """Acknowledged records that nobody ever got."""
    lost: Rows = log.acknowledged[~np.isin(_record_keys(log.acknowledged), _record_keys(log.rows))]
    return lost


def _record_keys(rows: Rows) -> _Ints:
    """One number for each (partition, offset); offsets of a trial stay far below 2**40."""
    keys: _Ints = (rows["partition"].astype(np.int64) << 40) | rows["offset"]
    return keys


# --- waits --------------------------------------------------------------------------------------


def _waits_ms(log: TrialLog, window: Window) -> tuple[npt.NDArray[np.float64], _Ints]:
    """How long records waited within the window, in ms, and the partition of each."""
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
    """Waits that never ended: a partition whose last records nobody ever got."""
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
    """Partitions that stayed with one process from before the window to its end."""
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
    """How often each partition changed its owner in the window."""
    moves: dict[int, int] = {}
    for before, after in pairwise(spells):
        is_move = before.partition == after.partition and before.member != after.member
        if is_move and window.begin_ns <= after.first_ns < window.end_ns:
            moves[after.partition] = moves.get(after.partition, 0) + 1
    return moves


def _overlaps_ms(spells: Sequence[Spell], window: Window) -> list[float]:
    """Overlap in ms of each pair of spells of a partition that began to overlap in the window."""
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
