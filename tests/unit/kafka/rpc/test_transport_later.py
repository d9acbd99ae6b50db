"""Actions that the transport runs later: on its thread, after their delay, also after a crash."""

import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kafka.net.selector import NetworkSelector

from coopgroup.kafka.config.connection_settings import read_connection_settings
from coopgroup.kafka.rpc.transport import GroupTransport
from coopgroup.kafka.rpc.wire_log import THREAD_PREFIX
from coopgroup.member.effects import Lane

WAIT_S = 60.0


@contextmanager
def running(reported: list[BaseException]) -> Iterator[GroupTransport]:
    settings = read_connection_settings({"bootstrap.servers": "127.0.0.1:1"})
    transport = GroupTransport(settings, reported.append)
    transport.start()
    try:
        yield transport
    finally:
        assert transport.close()


def test_action_runs_later_on_the_transports_thread() -> None:
    reported: list[BaseException] = []
    error = ValueError("in the action")
    ran: queue.Queue[tuple[str, float]] = queue.Queue()

    def fail() -> None:
        raise error

    with running(reported) as transport:
        begun = time.monotonic()
        transport.later(0.0, fail)
        transport.later(
            0.2, lambda: ran.put((threading.current_thread().name, time.monotonic() - begun))
        )
        name, took_s = ran.get(timeout=5)
        assert name.startswith(THREAD_PREFIX)
        assert took_s >= 0.2
        transport.later(60.0, fail)  # does not delay the end
    assert reported == [error]


def test_action_runs_when_the_loop_crashes_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reported: list[BaseException] = []
    crash = OSError("the selector broke")
    poll: Any = NetworkSelector.poll
    broken = threading.Event()

    def poll_once_broken(net: NetworkSelector, *arguments: Any) -> None:  # noqa: ANN401
        if broken.is_set():
            broken.clear()
            raise crash
        poll(net, *arguments)

    monkeypatch.setattr(NetworkSelector, "poll", poll_once_broken)
    begun = threading.Event()
    ran: queue.Queue[int] = queue.Queue()
    with running(reported) as transport:
        transport.later(0.5, lambda: ran.put(1))
        transport.later(0.0, begun.set)
        begun.wait(WAIT_S)
        broken.set()
        transport.close_lane(Lane.COMMIT)
        assert ran.get(timeout=WAIT_S) == 1
        transport.later(0.0, lambda: ran.put(2))
        assert ran.get(timeout=WAIT_S) == 2
    assert (reported, ran.empty()) == ([crash], True)
