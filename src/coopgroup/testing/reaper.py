"""The reaper: a small process that ends a cluster's brokers when their owner dies.

It runs as a script beside the owner, in its own session. Its argument is the data folder. The owner
writes to its standard input: "+PID" for each started broker, "-PID" for each ended broker. When the
owner ends, even by SIGKILL, the kernel closes this pipe. The reaper then kills the remaining
brokers and removes the folder.

PR_SET_PDEATHSIG would not work: it sends its signal when the THREAD that started the child ends,
so a cluster started from a short-lived thread would lose its brokers. It also exists on Linux only.
This file imports only a few modules of the standard library, so it starts in about 15 ms.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Iterable

FOLDER_REMOVALS_MAX = 50


def reap(lines: Iterable[str], folder: str) -> None:
    """Follow the owner's lines to their end, then kill the remaining brokers and remove the folder.

    Args:
        lines: "+PID" or "-PID", one process each; an incomplete last line is ignored.
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
    # A dying broker may still create a file during the removal.
    for _ in range(FOLDER_REMOVALS_MAX):
        shutil.rmtree(folder, ignore_errors=True)
        if not os.path.exists(folder):  # noqa: PTH110 - pathlib would double the start-up time
            return


if __name__ == "__main__":
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    reap(sys.stdin, sys.argv[1])
