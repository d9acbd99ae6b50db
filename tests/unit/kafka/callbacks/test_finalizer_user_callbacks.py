"""An exception of a configuration callback is raised by `poll`, from Python, C or a signal."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from coopgroup import CooperativeConsumer

NOBODY = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0}


def by_python(_: object) -> None:
    raise LookupError("no")


def by_c(_: object) -> None:
    int("x")


def by_exit(_: object) -> None:
    sys.exit(3)


def by_signal(_: object) -> None:
    """Raise SIGINT, even if the parent process ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def poll_on(consumer: CooperativeConsumer, count: int) -> None:
    """Poll for a while, for one record or for several."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        consumer.consume(count, 0.05) if count > 1 else consumer.poll(0.05)


@pytest.mark.parametrize("key", ["error_cb", "stats_cb"])
@pytest.mark.parametrize("count", [1, 10])
@pytest.mark.parametrize(
    ("callback", "expected", "message"),
    [
        (by_python, LookupError, "no"),
        (by_c, ValueError, "invalid literal for int() with base 10: 'x'"),
        (by_exit, SystemExit, "3"),
        (by_signal, KeyboardInterrupt, ""),
    ],
)
def test_callback_when_it_raises_is_heard_from_poll(
    key: str, count: int, callback: Callable[..., None], expected: type[BaseException], message: str
) -> None:
    raising: list[Any] = [callback]

    def once(event: object) -> None:
        if raising:
            raising.pop()(event)

    consumer = CooperativeConsumer({**NOBODY, key: once, "statistics.interval.ms": 20})
    with consumer, pytest.raises(expected) as caught:
        poll_on(consumer, count)
    assert str(caught.value) == message
