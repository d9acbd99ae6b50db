"""`interruption`: Ctrl-C and SIGTERM as something to look at, for commands that end with them."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["interruption"]


@contextmanager
def interruption() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set; the second of them ends the process at once.

    No exception, which libraries do not expect to strike inside them: confluent_kafka answers one
    in a callback with a SystemError (seen with 2.16), and PySpark loses its connection to Java
    (seen with 4.0). Afterwards the two signals mean what they meant before.
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
