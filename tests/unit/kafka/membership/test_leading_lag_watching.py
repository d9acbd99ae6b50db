"""Lag checks run off the group's thread, one at a time, and never delay a round."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from attrs import define, field

from coopgroup.assignors import LagAwareAssignor
from coopgroup.core.leader import Lags
from coopgroup.core.model import ResourceSet
from coopgroup.core.session import CheckLags, LagsChecked, LagWatch
from coopgroup.kafka.membership.leading import LagWatcher, RoundLeader
from coopgroup.policies import BalanceRule
from coopgroup.worker import Worker
from tests.support.by_hand import Hand
from tests.support.groups import claim, group_of

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
        looked: number of checks so far.
    """

    hand: Hand
    looks: list[Callable[[], Lags]] = field(factory=lambda: [lambda: UNEVEN])
    timeout_ms: int = 10_000
    looked: int = 0
    posted: list[LagsChecked] = field(factory=list)
    warned: list[tuple[str, dict[str, Any]]] = field(factory=list)
    watcher: LagWatcher = field(init=False)

    def __attrs_post_init__(self) -> None:
        unused: Any = None
        sink: Any = SimpleNamespace(
            warn=lambda event, **fields: self.warned.append((event, fields))
        )
        leader = RoundLeader(
            assignor=LagAwareAssignor(),
            policy=unused,
            lookup=cast("Any", SimpleNamespace(lags=self._lags)),
            timeout_ms=self.timeout_ms,
            post=unused,
            sink=sink,
        )
        self.watcher = LagWatcher(leader=leader, post=self.posted.append)

    def _lags(self, resources: ResourceSet) -> Lags:
        assert resources == GROUP.resources
        self.looked += 1
        return (self.looks.pop(0) if len(self.looks) > 1 else self.looks[0])()

    def look(self, number: int = 1) -> None:
        self.watcher.start(duty(number))
        self.hand.run()


def failing() -> Lags:
    raise TimeoutError("no answer")


def test_look_when_it_fails_warns_once_and_the_next_one_counts(hand: Hand) -> None:
    watched = Watched(hand, looks=[failing, failing, lambda: UNEVEN, failing])
    watched.look()
    watched.look()
    assert watched.posted == []
    assert watched.warned == [("lag_check_failed", {"error": "TimeoutError: no answer"})]
    watched.look()
    assert len(watched.posted) == 1
    watched.look()
    assert len(watched.warned) == 2


def test_look_when_the_last_one_is_still_under_way_is_left_out(hand: Hand) -> None:
    watched = Watched(hand)
    for number in range(5, 10):
        watched.watcher.start(duty(number))
    hand.run()
    (checked,) = watched.posted
    assert (watched.looked, checked.number, checked.looks) == (1, 5, (("A", 1),))
    assert (checked.request is not None, watched.warned) == (True, [])


def test_look_when_a_round_is_being_decided_is_left_out(hand: Hand) -> None:
    """An assignor may not be thread-safe, and a round must not wait for a check."""
    watched = Watched(hand)
    with watched.watcher.leader.turn:
        watched.look()
    assert watched.posted == []
    watched.look()
    assert len(watched.posted) == 1


def test_look_when_no_thread_is_to_be_had_is_left_out(
    hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_thread(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    watched = Watched(hand)
    with monkeypatch.context() as patched:
        patched.setattr(Worker, "submit", no_thread)
        watched.watcher.start(duty())
    assert watched.warned[0][0] == "lag_check_failed"
    watched.look()
    assert len(watched.posted) == 1
