"""The group's thread and its bell: it rings, hears, and lets the last ring arrive."""

from collections.abc import Callable
from typing import Any

import pytest
from attrs import define, field

from coopgroup.kafka.membership import bell as bell_module
from coopgroup.member.events import LeaveRequested
from coopgroup.model.group_api import HeartbeatRequest
from tests.support.by_hand import Hand
from tests.unit.kafka.one_member_group import running, subscribe

SLOW = {
    "coopgroup.bell.topic": "bell",
    "session.timeout.ms": 45_000,
    "heartbeat.interval.ms": 20_000,
    "max.poll.interval.ms": 60_000,
}


@define(kw_only=True)
class FakeBell:
    """Notes its calls, in order."""

    heard: Callable[[], None]
    topic: str
    group_id: str
    calls: list[str] = field(factory=list)

    def start(self) -> None:
        self.calls.append("start")

    def ring(self) -> None:
        self.calls.append("ring")

    def finish(self, timeout_s: float) -> None:
        assert timeout_s <= 1.0
        self.calls.append("finish")


@pytest.fixture
def bells(monkeypatch: pytest.MonkeyPatch) -> list[FakeBell]:
    made: list[FakeBell] = []

    def make(*, heard: Callable[[], None], topic: str, group_id: str, **_: Any) -> FakeBell:  # noqa: ANN401
        made.append(FakeBell(heard=heard, topic=topic, group_id=group_id))
        return made[-1]

    monkeypatch.setattr(bell_module, "TopicBell", make)
    return made


def test_member_that_leaves_rings_before_its_connections_close(
    hand: Hand, bells: list[FakeBell]
) -> None:
    with running(hand, more=SLOW) as (driver, _):
        subscribe(hand, driver)
        driver.post(LeaveRequested(reason="closed"))
        hand.run()
        assert "ring" in bells[0].calls
    (bell,) = bells
    assert (bell.topic, bell.group_id) == ("bell", driver.settings.member.group_id)
    assert bell.calls == ["start", "ring", "finish"]


def test_ring_that_is_heard_becomes_a_heartbeat(hand: Hand, bells: list[FakeBell]) -> None:
    with running(hand, more=SLOW) as (driver, group):
        subscribe(hand, driver)
        assert HeartbeatRequest not in group.requests
        bells[0].heard()
        hand.run()
        assert HeartbeatRequest in group.requests


def test_driver_without_a_topic_makes_no_bell(hand: Hand, bells: list[FakeBell]) -> None:
    without = {key: value for key, value in SLOW.items() if "bell" not in key}
    with running(hand, more=without) as (driver, _):
        subscribe(hand, driver)
    assert bells == []
