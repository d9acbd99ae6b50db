"""`interruption`: Ctrl-C and SIGTERM as an event, for commands that end with a signal."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["interruption"]


@contextmanager
def interruption() -> Iterator[threading.Event]:
    """Return an event that Ctrl-C and SIGTERM set; the second signal ends the process.

    An exception could strike inside a library that does not expect it. confluent_kafka turns an
    exception in a callback into a SystemError (seen with 2.16). PySpark loses its connection to
    Java (seen with 4.0). Afterwards the old signal handlers are restored.
    """
    interrupted = threading.Event()

    def interrupt(number: int, _frame: FrameType | None) -> None:
        interrupted.set()
        signal.signal(number, signal.SIG_DFL)

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, interrupt)
    try:
        yield interrupted
    finally:
        for number, meant in before.items():
            signal.signal(number, meant)
