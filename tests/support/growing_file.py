"""Files that another process writes, or wrote until it was killed.

A reader may come between two halves of a line, and a killed process leaves its last line without
an end. So a line counts only when its end is there. A process that continues such a file would
complete the torn line with its own first one: each process writes a file of its own.
"""

from __future__ import annotations

from pathlib import Path

from attrs import define, field


@define
class GrowingFile:
    """Reads the lines of a file; the file may not exist yet."""

    path: Path
    _position: int = field(default=0, init=False)

    def read_new(self) -> list[bytes]:
        """Return the lines that were completed since the last call, without their ends."""
        if not self.path.exists():
            return []
        with self.path.open("rb") as file:
            file.seek(self._position)
            whole, end, _ = file.read().rpartition(b"\n")
        self._position += len(whole) + len(end)
        return whole.split(b"\n") if end else []


def whole_lines(path: Path) -> list[bytes]:
    """Return the lines that are complete so far."""
    return GrowingFile(path).read_new()
