"""Threads of callbacks: bounded, urgent calls first, and ended when idle."""

import threading
from functools import partial

import pytest

from coopgroup.groups import pool as pool_module
from coopgroup.groups.pool import URGENT, CallbackPool
from tests.support.waiting import wait_for

WAIT_S = 10.0


def _threads() -> int:
    return sum(one.name == "pool-test" for one in threading.enumerate())


def _wait(gate: threading.Event) -> None:
    gate.wait(WAIT_S)


def test_calls_when_threads_are_few_run_by_urgency() -> None:
    pool = CallbackPool(name="pool-test", threads_max=1)
    gate, order = threading.Event(), list[str]()

    def first() -> None:
        gate.wait(WAIT_S)
        order.append("first")

    pool.submit(9, first)
    for urgency, name in [(3, "start"), (1, "soon"), (2, "stop"), (1, "soon too")]:
        pool.submit(urgency, partial(order.append, name))
    assert _threads() == 1
    gate.set()
    wait_for(lambda: len(order) == 5)
    assert order == ["first", "soon", "soon too", "stop", "start"]
    pool.close()
    wait_for(lambda: _threads() == 0)


def test_calls_when_there_is_room_run_at_once() -> None:
    pool = CallbackPool(name="pool-test", threads_max=4)
    gate, done = threading.Event(), threading.Event()
    pool.submit(1, partial(_wait, gate))
    pool.submit(1, done.set)
    assert done.wait(WAIT_S)
    gate.set()
    pool.close()
    wait_for(lambda: _threads() == 0)


def test_threads_when_idle_are_reused_and_then_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "_IDLE_S", 0.05)
    pool = CallbackPool(name="pool-test", threads_max=4)
    for _ in range(3):
        done = threading.Event()
        pool.submit(1, done.set)
        assert done.wait(WAIT_S)
        wait_for(lambda: _threads() == 0)


def test_call_that_would_wait_for_itself_is_refused() -> None:
    pool = CallbackPool(name="pool-test", threads_max=4)
    refused = list[str]()

    def call() -> None:
        try:
            pool.refuse_own("close")
        except RuntimeError as error:
            refused.append(str(error))

    pool.submit(1, call)
    wait_for(lambda: bool(refused))
    assert refused == ["a callback cannot close: that would wait for itself"]
    pool.refuse_own("close")
    pool.close()


def test_call_when_no_thread_is_to_be_had_runs_with_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = CallbackPool(name="pool-test", threads_max=4)
    done = list[int]()

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        pool.submit(1, lambda: done.append(1))
    assert done == []
    pool.submit(1, lambda: done.append(2))
    wait_for(lambda: done == [1, 2])
    pool.close()


def test_urgent_call_runs_though_all_threads_are_caught() -> None:
    """A call with a deadline cannot wait for a hanging stop."""
    pool = CallbackPool(name="pool-test", threads_max=1)
    gate, done, later = threading.Event(), threading.Event(), threading.Event()
    pool.submit(1, partial(_wait, gate))
    pool.submit(2, later.set)
    pool.submit(URGENT, done.set)
    assert done.wait(WAIT_S)
    wait_for(lambda: _threads() == 1)
    assert not later.is_set()
    gate.set()
    assert later.wait(WAIT_S)
    pool.close()
    wait_for(lambda: _threads() == 0)
