"""The reaper: a small process that ends a cluster's brokers when their owner dies.

It runs as a script, beside the owner and in a session of its own. The owner holds the other end of
its standard input, writes "+PID" for a broker that it starts and "-PID" for one that it has ended,
and names the data folder as the argument. However the owner ends, by SIGKILL too, the kernel closes
that pipe; the reaper then kills the brokers that are left and removes the folder.

Why not PR_SET_PDEATHSIG: that signal comes when the THREAD that started the child ends, so a
cluster started from a short-lived thread would lose its brokers; it exists on Linux only, too.
Only the standard library is imported here, and little of it: start-up takes some 15 ms.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Iterable

__all__ = ["reap"]

FOLDER_REMOVALS_MAX = 50


def reap(lines: Iterable[str], folder: str) -> None:
    """Follow the owner's lines to their end, then kill what is left and remove the folder.

    Args:
        lines: "+PID" or "-PID", one process each; a torn last line is ignored.
        folder: the cluster's data folder.
    """
    pids: set[int] = set()
    for line in lines:
        sign, digits = line[:1], line[1:].strip()
        if not line.endswith("\n") or not digits.isdigit():
            continue
        if sign == "+":
            pids.add(int(digits))
        else:
            pids.discard(int(digits))
    for pid in sorted(pids):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    # A broker that is being killed may still create a file while the tree is walked.
    for _ in range(FOLDER_REMOVALS_MAX):
        shutil.rmtree(folder, ignore_errors=True)
        if not os.path.exists(folder):  # noqa: PTH110 - pathlib would double the start-up time
            return


if __name__ == "__main__":
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    reap(sys.stdin, sys.argv[1])
