"""What happened to a group of `coopgroup demo`, from the records that its applications got.

No statement of a consumer about itself is used. A record *waits* from its production, or from the
record before it in its partition, until the application gets it. A *spell* is one ownership of a
partition by one process, from its first to its last record. `docs/measuring.md` has all words.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias

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
    """

    consumed: int
    lost: int
    duplicated: int
    moved: int
    retained_pause_ms_max: float
    double_owner_ms: float
    unavailable_partition_s: float


class _Spell(NamedTuple):
    partition: int
    first_ns: int
    last_ns: int
    process: int


def facts_of(logs: Sequence[tuple[str, Rows]], acknowledged: Ints, moments: Sequence[int]) -> Facts:
    """Compute the facts of a group.

    Args:
        logs: the member and the rows (dtype `ROW`) of each process.
        acknowledged: `record_keys` of all records.
        moments: the steps lie between these times, in ns. Moves and waits count within the steps,
            records during the whole run.
    """
    process = np.repeat(np.arange(len(logs)), [len(rows) for _, rows in logs])
    rows = np.concatenate([rows for _, rows in logs])
    order = np.lexsort((rows["offset"], rows["at_ns"], rows["partition"]))
    order = order[rows["offset"][order] >= 0]
    rows, process = rows[order], process[order]
    keys = np.unique(record_keys(rows))

    since = rows["produced_ns"].copy()
    follows = rows["partition"][1:] == rows["partition"][:-1]
    since[1:][follows] = np.maximum(since[1:], rows["at_ns"][:-1])[follows]
    waits_ms = _waits_ms(rows["at_ns"], since, moments[0], moments[-1])
    pauses = [
        float(_waits_ms(rows["at_ns"], since, *step)[mine].max())
        for step in pairwise(moments)
        for mine in (rows["partition"] == one for one in np.unique(rows["partition"]))
        if _is_retained(process[mine], rows["at_ns"][mine], *step)
    ]

    spells = _spells(rows, process)
    following = [
        (one, later) for one, later in pairwise(spells) if one.partition == later.partition
    ]
    overlaps_ns = [
        one.last_ns - later.first_ns for one, later in following if one.process != later.process
    ]
    return Facts(
        consumed=len(keys),
        lost=len(np.setdiff1d(acknowledged, keys)),
        duplicated=len(rows) - len(keys),
        moved=sum(
            logs[one.process][0] != logs[later.process][0]
            and moments[0] <= later.first_ns < moments[-1]
            for one, later in following
        ),
        retained_pause_ms_max=round(max(pauses, default=0.0), 1),
        double_owner_ms=round(max([0, *overlaps_ns]) / 1e6, 3),
        unavailable_partition_s=round(float(waits_ms[waits_ms > UNAVAILABLE_MS].sum()) / 1000, 3),
    )


def record_keys(rows: Rows) -> Ints:
    """Return one number for each record; its offset is below 2**40."""
    keys: Ints = (rows["partition"].astype(np.int64) << 40) | rows["offset"]
    return keys


def _waits_ms(at_ns: Ints, since: Ints, begin_ns: int, end_ns: int) -> npt.NDArray[np.float64]:
    """Return the part of each wait that lies between two times."""
    waits: npt.NDArray[np.float64] = np.minimum(at_ns, end_ns) - np.maximum(since, begin_ns)
    return waits.clip(0) / 1e6


def _is_retained(process: Ints, at_ns: Ints, begin_ns: int, end_ns: int) -> bool:
    before = process[at_ns < begin_ns]
    inside = process[(at_ns >= begin_ns) & (at_ns < end_ns)]
    return len(before) > 0 and len(inside) > 0 and bool((inside == before[-1]).all())


def _spells(rows: Rows, process: Ints) -> list[_Spell]:
    """Return the spells by partition, then by time; the rows are in that order."""
    times: dict[tuple[int, int, int], list[int]] = {}
    names = zip(rows["partition"].tolist(), process.tolist(), rows["spell"].tolist(), strict=True)
    for name, at_ns in zip(names, rows["at_ns"].tolist(), strict=True):
        times.setdefault(name, [at_ns, at_ns])[1] = at_ns
    return sorted(
        _Spell(partition, first_ns, last_ns, number)
        for (partition, number, _), (first_ns, last_ns) in times.items()
    )
