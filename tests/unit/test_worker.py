"""Threads of jobs: bounded, urgent jobs first, ended when idle, new after a fork."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from functools import partial

import pytest

from coopgroup import worker as worker_module
from coopgroup.worker import URGENT, Worker

LIMIT_S = 60.0  # of a wait that an event ends; only a broken worker reaches it


def _threads(name: str) -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == name]


def _holding(gate: threading.Event, begun: threading.Event | None = None) -> Callable[[], None]:
    def call() -> None:
        if begun is not None:
            begun.set()
        _wait(gate)

    return call


def _write(pipe: int) -> None:
    os.write(pipe, b"done")


def _pass(barrier: threading.Barrier) -> None:
    barrier.wait()


def _wait(gate: threading.Event) -> None:
    assert gate.wait(LIMIT_S)


def test_jobs_when_threads_are_few_run_by_urgency() -> None:
    worker = Worker("worker-few")
    gate, begun, order = threading.Event(), threading.Event(), list[str]()
    worker.submit(_holding(gate, begun), urgency=9)
    _wait(begun)
    for urgency, name in [(3, "start"), (1, "soon"), (2, "stop"), (1, "soon too")]:
        worker.submit(partial(order.append, name), urgency=urgency)
    assert len(_threads("worker-few")) == 1
    gate.set()
    assert worker.close(LIMIT_S)
    assert order == ["soon", "soon too", "stop", "start"]
    assert _threads("worker-few") == []


def test_jobs_when_there_is_room_run_side_by_side() -> None:
    worker = Worker("worker-room", threads_max=2)
    both = threading.Barrier(2, timeout=LIMIT_S)
    for _ in range(2):
        worker.submit(partial(_pass, both))
    assert worker.close(LIMIT_S)
    assert not both.broken


def test_urgent_job_when_all_threads_are_busy_gets_its_own() -> None:
    worker = Worker("worker-urgent")
    gate = threading.Event()
    worker.submit(_holding(gate))
    worker.submit(gate.set, urgency=URGENT)
    assert worker.close(LIMIT_S)


def test_urgent_job_after_a_pause_when_all_threads_are_busy_gets_its_own() -> None:
    worker = Worker("worker-later")
    gate = threading.Event()
    worker.submit(gate.set, after_s=0.01, urgency=URGENT)
    worker.submit(_holding(gate))
    _wait(gate)
    assert worker.close(LIMIT_S)


def test_job_beside_an_urgent_one_that_pauses_runs_at_once() -> None:
    """Otherwise a leader would decide no round before its time limit."""
    worker = Worker("worker-beside")
    gate = threading.Event()
    for _ in range(20):
        limit = worker.submit(gate.set, after_s=3_600, urgency=URGENT)
        done = threading.Event()
        worker.submit(done.set)
        _wait(done)
        limit.cancel()
    assert len(_threads("worker-beside")) <= 3
    assert worker.close(LIMIT_S)


def test_jobs_after_pauses_run_in_the_order_of_their_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker, now_s, order = Worker("worker-order"), [0.0], list[int]()
    monkeypatch.setattr(worker_module, "monotonic", lambda: now_s[0])
    for number in (3, 1, 2):
        worker.submit(partial(order.append, number), after_s=number * 3_600)
    now_s[0] = 4 * 3_600
    done = threading.Event()
    worker.submit(done.set, urgency=9)
    _wait(done)
    assert order == [1, 2, 3]
    monkeypatch.undo()
    assert worker.close(LIMIT_S)


def test_cancelled_job_does_not_run() -> None:
    worker = Worker("worker-cancel")
    gate, order = threading.Event(), list[str]()
    worker.submit(_holding(gate))
    worker.submit(partial(order.append, "cancelled")).cancel()
    worker.submit(partial(order.append, "kept"))
    gate.set()
    assert worker.close(LIMIT_S)
    assert order == ["kept"]


def test_close_drops_pausing_jobs_and_refuses_later_ones() -> None:
    worker = Worker("worker-close")
    order = list[str]()
    worker.submit(partial(order.append, "pausing"), after_s=3_600)
    assert worker.close(LIMIT_S)
    assert worker.submit(partial(order.append, "late")).is_cancelled
    assert (order, _threads("worker-close")) == ([], [])


def test_close_when_a_job_hangs_says_so() -> None:
    worker = Worker("worker-hang")
    gate, begun = threading.Event(), threading.Event()
    worker.submit(_holding(gate, begun))
    _wait(begun)
    assert not worker.close(0.0)
    gate.set()
    assert worker.close(LIMIT_S)


def test_close_in_an_own_job_does_not_wait() -> None:
    worker = Worker("worker-own")
    answers, done = list[bool](), threading.Event()

    def close() -> None:
        answers.extend([worker.is_own_thread, worker.close(LIMIT_S)])
        done.set()

    worker.submit(close)
    _wait(done)
    assert answers == [True, True]
    assert not worker.is_own_thread
    assert worker.close(LIMIT_S)


def test_idle_thread_takes_the_next_job() -> None:
    worker = Worker("worker-idle")
    used, done = list[threading.Thread](), threading.Semaphore(0)

    def note() -> None:
        used.append(threading.current_thread())
        done.release()

    for _ in range(20):
        worker.submit(note)
        assert done.acquire(timeout=LIMIT_S)
    assert len(set(used)) <= 2  # the next job may come before the thread is idle
    assert worker.close(LIMIT_S)


def test_thread_without_a_job_ends() -> None:
    worker = Worker("worker-ends", idle_s=0.0)
    used: list[threading.Thread] = []
    done = threading.Event()

    def note() -> None:
        used.append(threading.current_thread())
        done.set()

    worker.submit(note)
    _wait(done)
    used[0].join(LIMIT_S)
    assert not used[0].is_alive()


def test_idle_thread_keeps_nothing_of_its_last_job() -> None:
    """A look-up's closure holds its consumer."""

    class Held:
        def __call__(self) -> None:
            pass

    worker, gone = Worker("worker-keeps"), threading.Event()
    held = Held()
    weakref.finalize(held, gone.set)
    worker.submit(held)
    del held
    _wait(gone)
    assert _threads("worker-keeps")
    assert worker.close(LIMIT_S)


def test_submit_without_a_free_thread_of_the_system_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    worker, order = Worker("worker-none"), list[str]()

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start"):
            worker.submit(partial(order.append, "refused"))
    worker.submit(partial(order.append, "taken"))
    assert worker.close(LIMIT_S)
    assert order == ["taken"]


def test_submit_in_a_forked_child_starts_a_thread_there() -> None:
    worker = Worker("worker-fork")
    gate = threading.Event()
    worker.submit(_holding(gate))
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover -- in the child
        worker.submit(partial(_write, writer))
        worker.close(LIMIT_S)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        assert answer.read() == b"done"
    assert os.waitpid(child, 0)[1] == 0
    gate.set()
    assert worker.close(LIMIT_S)
