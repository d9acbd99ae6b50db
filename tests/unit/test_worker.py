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


@pytest.fixture
def worker(request: pytest.FixtureRequest) -> Worker:
    """Return a worker whose name is that of the test."""
    return Worker(request.node.name)


def _threads(worker: Worker) -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == worker.name]


def _hold(worker: Worker) -> threading.Event:
    """Begin a job that holds a thread until the event is set."""
    gate, begun = threading.Event(), threading.Event()

    def call() -> None:
        begun.set()
        _wait(gate)

    worker.submit(call)
    _wait(begun)
    return gate


def _wait(gate: threading.Event) -> None:
    assert gate.wait(LIMIT_S)


def _run(worker: Worker, call: Callable[[], object] = lambda: None) -> None:
    """Run a job, and return when its call has ended."""
    done = threading.Event()

    def run() -> None:
        call()
        done.set()

    worker.submit(run, urgency=9)
    _wait(done)


def test_jobs_when_threads_are_few_run_by_urgency_unless_cancelled(worker: Worker) -> None:
    order = list[str]()
    gate = _hold(worker)
    for urgency, name in [(3, "start"), (1, "soon"), (2, "stop"), (1, "soon too")]:
        worker.submit(partial(order.append, name), urgency=urgency)
    worker.submit(partial(order.append, "cancelled")).cancel()
    assert len(_threads(worker)) == 1
    gate.set()
    assert worker.close(LIMIT_S)
    assert order == ["soon", "soon too", "stop", "start"]
    assert _threads(worker) == []


def test_jobs_when_there_is_room_run_side_by_side() -> None:
    worker = Worker("worker-room", threads_max=2)
    both = threading.Barrier(2, timeout=LIMIT_S)
    for _ in range(2):
        worker.submit(partial(_pass, both))
    assert worker.close(LIMIT_S)
    assert not both.broken


def _pass(barrier: threading.Barrier) -> None:
    barrier.wait()


@pytest.mark.parametrize("after_s", [0.0, 0.01])
def test_urgent_job_when_all_threads_are_busy_gets_its_own(worker: Worker, after_s: float) -> None:
    urgent = threading.Event()
    gate = _hold(worker)
    worker.submit(urgent.set, after_s=after_s, urgency=URGENT)
    _wait(urgent)
    gate.set()
    assert worker.close(LIMIT_S)


def test_job_beside_an_urgent_one_that_pauses_runs_at_once(worker: Worker) -> None:
    """Otherwise a leader would decide no round before its time limit."""
    for _ in range(20):
        limit = worker.submit(lambda: None, after_s=3_600, urgency=URGENT)
        _run(worker)
        limit.cancel()
    assert len(_threads(worker)) < 10  # a thread between its job and its rest is not idle yet
    assert worker.close(LIMIT_S)


def test_jobs_after_pauses_run_in_the_order_of_their_times(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s, order = [0.0], list[int]()
    monkeypatch.setattr(worker_module, "monotonic", lambda: now_s[0])
    for number in (3, 1, 2):
        worker.submit(partial(order.append, number), after_s=number * 3_600)
    now_s[0] = 4 * 3_600
    _run(worker)
    assert order == [1, 2, 3]
    monkeypatch.undo()
    assert worker.close(LIMIT_S)


def test_close_drops_pausing_jobs_and_refuses_later_ones(worker: Worker) -> None:
    order = list[str]()
    worker.submit(partial(order.append, "pausing"), after_s=3_600)
    assert worker.close(LIMIT_S)
    assert worker.submit(partial(order.append, "late")).is_cancelled
    assert (order, _threads(worker)) == ([], [])


def test_close_when_a_job_hangs_says_so(worker: Worker) -> None:
    gate = _hold(worker)
    assert not worker.close(0.0)
    gate.set()
    assert worker.close(LIMIT_S)


def test_close_in_an_own_job_does_not_wait(worker: Worker) -> None:
    answers = list[bool]()
    _run(worker, lambda: answers.extend([worker.is_own_thread, worker.close(LIMIT_S)]))
    assert answers == [True, True]
    assert not worker.is_own_thread
    assert worker.close(LIMIT_S)


def test_idle_thread_takes_the_next_job(worker: Worker) -> None:
    used = set[threading.Thread]()
    for _ in range(20):
        _run(worker, lambda: used.add(threading.current_thread()))
    assert len(used) <= 2  # the next job may come before the thread is idle
    assert worker.close(LIMIT_S)


def test_thread_without_a_job_ends() -> None:
    worker, used = Worker("worker-ends", idle_s=0.0), list[threading.Thread]()
    _run(worker, lambda: used.append(threading.current_thread()))
    used[0].join(LIMIT_S)
    assert not used[0].is_alive()


def test_idle_thread_keeps_nothing_of_its_last_job(worker: Worker) -> None:
    """A look-up's closure holds its consumer."""

    class Held:
        def __call__(self) -> None:
            pass

    gone, held = threading.Event(), Held()
    weakref.finalize(held, gone.set)
    worker.submit(held)
    del held
    _wait(gone)
    assert _threads(worker)
    assert worker.close(LIMIT_S)


def test_submit_without_a_free_thread_of_the_system_raises(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = list[str]()

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start"):
            worker.submit(partial(order.append, "refused"))
    worker.submit(partial(order.append, "taken"))
    assert worker.close(LIMIT_S)
    assert order == ["taken"]


def test_submit_in_a_forked_child_starts_a_thread_there(worker: Worker) -> None:
    gate = _hold(worker)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover -- in the child
        _run(worker, partial(os.write, writer, b"done"))
        worker.close(LIMIT_S)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        assert answer.read() == b"done"
    assert os.waitpid(child, 0)[1] == 0
    gate.set()
    assert worker.close(LIMIT_S)
