"""Processor time of this process and of everything that it started, as Linux counts it.

On a machine that is busy otherwise only processor time means anything, and a benchmark should say
how busy it was: `others_s` is what everybody else had meanwhile.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from attrs import define, field

__all__ = ["CpuClock", "descendants"]

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_BUSY: Final = (0, 1, 2, 5, 6)  # of the first line of /proc/stat: all but idle, waiting and stolen


def descendants() -> list[int]:
    """Processes that this one started, those that they did, and this one, which comes first."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        fields = _fields(path)
        if fields:
            parents[int(path.parent.name)] = int(fields[1])
    found = [os.getpid()]
    for one in found:
        found += [pid for pid, parent in parents.items() if parent == one]
    return found


@define
class CpuClock:
    """Counts processor seconds; a process that has ended counts as when it was looked at last."""

    _seen: dict[int, tuple[str, int]] = field(init=False, factory=dict)

    def read(self) -> dict[str, float]:
        """Processor seconds so far: of `driver` (this process), by program of others, `others`."""
        own = os.getpid()
        for pid in descendants():
            fields = _fields(Path(f"/proc/{pid}/stat"))
            if fields:
                name = "driver" if pid == own else _name(pid)
                self._seen[pid] = name, sum(int(one) for one in fields[11:13])
        found: dict[str, float] = {}
        for name, ticks in self._seen.values():
            found[name] = found.get(name, 0.0) + ticks / _TICKS_PER_S
        return {**found, "others": _busy_s() - sum(found.values())}


def _fields(path: Path) -> list[str]:
    """What stands behind the name in a `stat` of /proc; nothing if the process has ended."""
    try:
        return path.read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "ended"


def _busy_s() -> float:
    """Processor seconds that all processes of the machine had since it started."""
    counts = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    return sum(int(counts[place]) for place in _BUSY) / _TICKS_PER_S
