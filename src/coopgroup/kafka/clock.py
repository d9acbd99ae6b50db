"""The clock of the driver: monotonic, and it continues while the machine sleeps.

No function of this file may call another one: tests replace the clock in the modules that import
it, and not here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final

CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""CLOCK_MONOTONIC pauses while a virtual machine is suspended, CLOCK_BOOTTIME does not: a lease
must not outlive a suspension. Only Linux has it."""


now_s: Final[Callable[[], float]] = partial(time.clock_gettime, CLOCK)
"""Return the seconds since some moment before the process began.

It is no function of Python: an idle consumer reads the clock more often than it does anything else.
"""


def pause(seconds: float) -> None:
    """Wait, and hold no lock meanwhile: a signal handler may run, and close the consumer."""
    threading.Event().wait(seconds)


def now_ms() -> int:
    """Return the time of the same clock in whole milliseconds."""
    return time.clock_gettime_ns(CLOCK) // 1_000_000
