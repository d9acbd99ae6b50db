"""What happened to a group of `coopgroup demo`, from the records that its applications got.

No statement of a consumer about itself is used. A record *waits* from its production, or from the
record before it in its partition, until the application gets it. A *spell* is one ownership of a
partition by one process, from its first to its last record. `docs/measuring.md` has all words.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
from attrs import frozen

UNAVAILABLE_MS: Final = 100.0
"""Shorter waits are noise of the machine."""

Rows: TypeAlias = "npt.NDArray[np.void]"
Ints: TypeAlias = "npt.NDArray[np.int64]"


@frozen(kw_only=True)
class Facts:
    """The measured values of a group.

    Attributes:
        retained_pause_ms_max: longest wait in a partition that one process had during a whole step.
        unavailable_by_step_s: the parts of `unavailable_partition_s` in each step.
    """

    consumed: int
    lost: int
    duplicated: int
    moved: int
    retained_pause_ms_max: float
    double_owner_ms: float
    unavailable_partition_s: float
    unavailable_by_step_s: tuple[float, ...]


def facts_of(logs: Sequence[tuple[str, Rows]], written: int, moments: Sequence[int]) -> Facts:
    """Compute the facts of a group.

    Args:
        logs: the member and the rows (dtype `ROW`) of each process.
        written: number of all records.
        moments: the steps lie between these times, in ns. Moves and waits count within the steps,
            records during the whole run.
    """
    process = np.repeat(np.arange(len(logs)), [len(rows) for _, rows in logs])
    rows = np.concatenate([rows for _, rows in logs])
    order = np.lexsort((rows["offset"], rows["at_ns"], rows["partition"]))
    order = order[rows["offset"][order] >= 0]
    rows, process = rows[order], process[order]
    consumed = distinct(rows)

    since = rows["produced_ns"].copy()
    follows = rows["partition"][1:] == rows["partition"][:-1]
    since[1:][follows] = np.maximum(since[1:], rows["at_ns"][:-1])[follows]
    is_long = _waits_ms(rows["at_ns"], since, moments[0], moments[-1]) > UNAVAILABLE_MS
    long_waits = rows["at_ns"][is_long], since[is_long]
    waits_s = [float(_waits_ms(*long_waits, *step).sum()) / 1000 for step in pairwise(moments)]
    pauses = []
    for mine in (rows["partition"] == one for one in np.unique(rows["partition"])):
        at_ns, who = rows["at_ns"][mine], process[mine]
        for step in pairwise(moments):
            begin, end = np.searchsorted(at_ns, step)
            if 0 < begin < end and len(set(who[begin - 1 : end])) == 1:
                pauses.append(float(_waits_ms(at_ns, since[mine], *step).max()))

    first, last = _spells(np.stack([rows["partition"], process, rows["spell"]]))
    later, earlier = first[1:], last[:-1]
    begun_ns, ended_ns = rows["at_ns"][later], rows["at_ns"][earlier]
    follows = rows["partition"][later] == rows["partition"][earlier]
    is_other = follows & (process[later] != process[earlier])
    member = np.array([name for name, _ in logs])[process]
    is_moved = follows & (member[later] != member[earlier])
    return Facts(
        consumed=consumed,
        lost=written - consumed,
        duplicated=len(rows) - consumed,
        moved=int((is_moved & (moments[0] <= begun_ns) & (begun_ns < moments[-1])).sum()),
        retained_pause_ms_max=round(max(pauses, default=0.0), 1),
        double_owner_ms=round(int((ended_ns - begun_ns)[is_other].max(initial=0)) / 1e6, 3),
        unavailable_partition_s=round(sum(waits_s), 3),
        unavailable_by_step_s=tuple(round(one, 3) for one in waits_s),
    )


def distinct(rows: Rows) -> int:
    """Return the number of different records among rows; offsets are below 2**40."""
    rows = rows[rows["offset"] >= 0]
    return np.unique((rows["partition"].astype(np.int64) << 40) | rows["offset"]).size


def _waits_ms(at_ns: Ints, since: Ints, begin_ns: int, end_ns: int) -> npt.NDArray[np.float64]:
    """Return the part of each wait that lies between two times."""
    waits: npt.NDArray[np.float64] = np.minimum(at_ns, end_ns) - np.maximum(since, begin_ns)
    return waits.clip(0) / 1e6


def _spells(names: Ints) -> tuple[Ints, Ints]:
    """Return the places of the first and the last record of each spell, by the first.

    Args:
        names: partition, process and spell of each record, by partition and time.
    """
    count = names.shape[1]
    first = np.unique(names, axis=1, return_index=True)[1]
    last = count - 1 - np.unique(names[:, ::-1], axis=1, return_index=True)[1]
    order = np.argsort(first)
    return first[order], last[order]
