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


def test_member_hears_rings_and_rings_as_it_leaves(hand: Hand, bells: list[FakeBell]) -> None:
    """A ring becomes a heartbeat; the last ring is sent before the connections close."""
    with running(hand, more=SLOW) as (driver, group):
        subscribe(hand, driver)
        (bell,) = bells
        assert (bell.topic, bell.group_id) == ("bell", driver.settings.member.group_id)
        assert HeartbeatRequest not in group.requests
        bell.heard()
        hand.run()
        assert HeartbeatRequest in group.requests
        driver.post(LeaveRequested(reason="closed"))
        hand.run()
        assert bell.calls == ["start", "ring"]
    assert bell.calls == ["start", "ring", "finish"]


def test_driver_without_a_topic_makes_no_bell(hand: Hand, bells: list[FakeBell]) -> None:
    without = {key: value for key, value in SLOW.items() if "bell" not in key}
    with running(hand, more=without) as (driver, _):
        subscribe(hand, driver)
    assert bells == []
