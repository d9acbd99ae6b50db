"""Lag checks run off the group's thread, one at a time, and never delay a round."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from attrs import define, field

from coopgroup.assignors import LagAwareAssignor
from coopgroup.kafka.membership import lag_watching as lag_watching_module
from coopgroup.kafka.membership.lag_watching import LagWatcher
from coopgroup.kafka.membership.leading import RoundLeader
from coopgroup.leader import Lags
from coopgroup.model import ResourceSet
from coopgroup.policies import BalanceRule
from coopgroup.session import CheckLags, LagsChecked, LagWatch
from tests.support.groups import claim, group_of

WAIT_S = 10.0
RULE = BalanceRule(
    interval_ms=1_000,
    ratio=1.5,
    calm_ratio=1.2,
    looks=1,
    lag_min=10,
    cooldown_ms=10_000,
    moves_max=2,
)
GROUP = group_of({"T": range(4)}, claim("A", {"T": [0, 1]}), claim("B", {"T": [2, 3]}))
UNEVEN = Lags.from_mapping({"T": {0: 500, 1: 500}})


def duty(number: int = 1) -> CheckLags:
    watch = LagWatch(rule=RULE, group=GROUP, asked=False, moved=False)
    return CheckLags(number=number, watch=watch)


@define
class Watched:
    """A watcher, with its posts and warnings.

    Attributes:
        looks: results of the look-ups in order; the last one repeats.
        timeout_ms: time limit of a round, and so of a check.
        looked: thread of each check.
    """

    looks: list[Callable[[], Lags]] = field(factory=lambda: [lambda: UNEVEN])
    timeout_ms: int = 10_000
    looked: list[str] = field(factory=list)
    posted: queue.SimpleQueue[LagsChecked] = field(factory=queue.SimpleQueue)
    warned: queue.SimpleQueue[tuple[str, dict[str, Any]]] = field(factory=queue.SimpleQueue)
    watcher: LagWatcher = field(init=False)

    def __attrs_post_init__(self) -> None:
        unused: Any = None
        lookup: Any = SimpleNamespace(lags=self._lags)
        sink: Any = SimpleNamespace(warn=self._warn)
        leader = RoundLeader(
            assignor=LagAwareAssignor(),
            policy=unused,
            lookup=lookup,
            timeout_ms=self.timeout_ms,
            post=unused,
            sink=sink,
        )
        self.watcher = LagWatcher(leader=leader, post=self.posted.put, sink=sink)

    def _lags(self, resources: ResourceSet) -> Lags:
        assert resources == GROUP.resources
        self.looked.append(threading.current_thread().name)
        look = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        return look()

    def _warn(self, event: str, **fields: Any) -> None:  # noqa: ANN401  (any field of a log event)
        self.warned.put((event, fields))

    def look(self, number: int = 1) -> None:
        self.watcher.start(duty(number))
        self.wait()

    def wait(self) -> None:
        deadline = time.monotonic() + WAIT_S
        while any(thread.name == "coopgroup-lag-watcher" for thread in threading.enumerate()):
            assert time.monotonic() < deadline
            time.sleep(0.002)


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Release the look-ups that wait for the event; it is set at the end of the test."""
    opened = threading.Event()
    yield opened
    opened.set()


def failing() -> Lags:
    raise TimeoutError("no answer")


def test_look_is_posted_from_a_thread_of_its_own() -> None:
    watched = Watched()
    watched.look(number=5)
    checked = watched.posted.get(timeout=WAIT_S)
    assert (checked.number, checked.looks) == (5, (("A", 1),))
    assert checked.request is not None
    assert watched.looked == ["coopgroup-lag-watcher"]
    assert watched.warned.empty()


def test_look_when_it_fails_warns_once_and_the_next_one_counts() -> None:
    watched = Watched(looks=[failing, failing, lambda: UNEVEN, failing])
    watched.look()
    watched.look()
    assert watched.posted.empty()
    assert watched.warned.get_nowait() == (
        "lag_check_failed",
        {"error": "TimeoutError: no answer"},
    )
    assert watched.warned.empty()
    watched.look()
    assert not watched.posted.empty()
    watched.look()
    assert not watched.warned.empty()


def test_look_when_the_last_one_is_still_under_way_is_left_out(gate: threading.Event) -> None:
    def waiting() -> Lags:
        gate.wait(WAIT_S)
        return UNEVEN

    watched = Watched(looks=[waiting])
    for number in range(5):
        watched.watcher.start(duty(number))
    gate.set()
    watched.wait()
    assert (len(watched.looked), watched.posted.get_nowait().number) == (1, 0)
    assert watched.posted.empty()


def test_look_when_a_round_is_being_decided_is_left_out() -> None:
    """An assignor may not be thread-safe, and a round must not wait for a check."""
    watched = Watched()
    with watched.watcher.leader.turn:
        watched.look()
    assert watched.posted.empty()
    watched.look()
    assert not watched.posted.empty()


def test_look_when_it_takes_longer_than_a_round_may_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = SimpleNamespace(now_s=0.0)

    def slow() -> Lags:
        clock.now_s += 0.051
        return UNEVEN

    monkeypatch.setattr(lag_watching_module, "now_s", lambda: clock.now_s)
    watched = Watched(looks=[slow], timeout_ms=50)
    watched.look()
    assert len(watched.looked) == 1
    assert watched.posted.empty()


def test_look_when_no_thread_is_to_be_had_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    watched = Watched()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_thread)
        watched.watcher.start(duty())
    assert watched.warned.get_nowait()[0] == "lag_check_failed"
    watched.look()
    assert not watched.posted.empty()


def test_stop_ends_what_is_under_way_and_lets_nothing_begin(gate: threading.Event) -> None:
    def closed() -> Lags:
        gate.wait(WAIT_S)
        raise TimeoutError("closed")

    watched = Watched(looks=[closed])
    watched.watcher.start(duty())
    threading.Timer(0.05, gate.set).start()
    watched.watcher.stop()
    watched.wait()
    watched.look()
    assert len(watched.looked) == 1
    assert watched.posted.empty()
    assert watched.warned.empty()
