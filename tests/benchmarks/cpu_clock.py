"""CPU time and peak memory of this process and of all processes that it started, by Linux.

On a busy machine only CPU time is a valid measure. A benchmark should also say how busy the machine
was: `others_s` is the CPU time of all other processes.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from attrs import define, field

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
# from the first line of /proc/stat: all but idle, waiting and stolen
_BUSY: Final = (0, 1, 2, 5, 6)
_KB_PER_MB: Final = 1_024


def _descendants() -> list[int]:
    """Return this process, then its descendants."""
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
    """Counts CPU seconds; an ended process counts with its last reading."""

    _seen: dict[int, int] = field(init=False, factory=dict)

    def read(self) -> tuple[float, float]:
        """Return CPU seconds so far: of this process and its descendants, and of all others."""
        for pid in _descendants():
            fields = _fields(Path(f"/proc/{pid}/stat"))
            if fields:
                self._seen[pid] = sum(int(one) for one in fields[11:13])
        own_s = sum(self._seen.values()) / _TICKS_PER_S
        return own_s, _busy_s() - own_s


def peaks_mb() -> dict[str, int]:
    """Return the peak memory of the JVM and of any Python worker, in MB."""
    _, *started = _descendants()
    peaks: dict[bool, int] = {True: 0, False: 0}
    for pid in started:
        is_java = _status(pid, "Name:") == "java"
        peaks[is_java] = max(peaks[is_java], int(_status(pid, "VmHWM:") or 0))
    return {"jvm_mb": peaks[True] // _KB_PER_MB, "worker_mb": peaks[False] // _KB_PER_MB}


def _status(pid: int, name: str) -> str:
    """Return the first word of a line of a process' status; empty if the process has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return ""
    return next((line.split()[1] for line in lines if line.startswith(name)), "")


def _fields(path: Path) -> list[str]:
    """Return the fields behind the name in a `stat` of /proc; empty if the process has ended."""
    try:
        return path.read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _busy_s() -> float:
    """Return the CPU seconds of all processes of the machine since it started."""
    counts = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    return sum(int(counts[place]) for place in _BUSY) / _TICKS_PER_S
