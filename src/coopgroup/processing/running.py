"""How processing ends: by a signal of the application, or by SIGTERM.

Kubernetes sends SIGTERM and waits for `terminationGracePeriodSeconds` (30 s by default) before it
kills. So everything here must end within `stop_timeout_ms`, which is below that.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Protocol

from attrs import define

from coopgroup.errors import ConfigurationError
from coopgroup.processing.failures import check_count

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopSignal(Protocol):
    """Tells when to stop, as `threading.Event` and `asyncio.Event` do."""

    def is_set(self) -> bool:
        """Return whether to stop."""


@define
class Timing:
    """How processing ends.

    Attributes:
        stop: ends processing when it is set; None to go on until the consumer is closed.
        stop_timeout_ms: how long records in flight may take to end when a partition is given up,
            and when processing stops.
        hands_over: whether processing goes on, once `stop` is set, until the group has taken over
            all partitions.
    """

    stop: StopSignal | None
    stop_timeout_ms: int
    hands_over: bool

    def __attrs_post_init__(self) -> None:
        check_count("stop_timeout_ms", self.stop_timeout_ms)

    @property
    def is_stopped(self) -> bool:
        """Return whether `stop` is set."""
        return self.stop is not None and self.stop.is_set()

    @property
    def stop_timeout_s(self) -> float:
        """Return `stop_timeout_ms` in seconds."""
        return self.stop_timeout_ms / 1000


@contextmanager
def stop_at_signals(stop: Callable[[], object]) -> Iterator[None]:
    """Call `stop` at the first SIGTERM or Ctrl-C; the second one acts as without this.

    Raises:
        ConfigurationError: this is not the main thread, which alone may have signal handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        raise ConfigurationError(
            "run", threading.current_thread().name, "the main thread: only it gets signals"
        )
    before = {number: signal.getsignal(number) for number in _SIGNALS}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def heard(_number: int, _frame: FrameType | None) -> None:
        restore()
        stop()

    for number in _SIGNALS:
        signal.signal(number, heard)
    try:
        yield
    finally:
        restore()
