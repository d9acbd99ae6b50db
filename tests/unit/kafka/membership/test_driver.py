"""The group's thread over a transport that answers like a coordinator with one member."""

from __future__ import annotations

import math

import pytest

from coopgroup.kafka.membership.group_events import GroupEvents
from coopgroup.kafka.membership.leaving import has_left
from coopgroup.kafka.rpc.transport import FailureKind, TransportFailure
from coopgroup.member import ErrorCode, MemberState
from coopgroup.member.effects import FailMember, GrantResources, LoseResources
from coopgroup.member.events import (
    CommitRequested,
    LeaveRequested,
    LossHandled,
    SubscriptionChanged,
    Woken,
)
from coopgroup.model.group_api import (
    FindCoordinatorRequest,
    GroupRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    SyncGroupRequest,
)
from coopgroup.session import SessionEvent
from tests.support.by_hand import Hand
from tests.unit.kafka.one_member_group import (
    ORDERS,
    DriverAndGroup,
    Outcome,
    commit,
    running,
    subscribe,
)

PATIENT = {
    "session.timeout.ms": 6_000,
    "heartbeat.interval.ms": 300,
    "max.poll.interval.ms": 8_000,
}


def test_driver_joins_leads_and_holds_a_lease(hand: Hand) -> None:
    with running(hand, more=PATIENT) as (driver, group):
        assert (driver.lease_until_s, driver.is_quiet, driver.leads) == (math.inf, True, False)
        subscribe(hand, driver)
        assert group.requests == [FindCoordinatorRequest, JoinGroupRequest, SyncGroupRequest]
        assert driver.lease_until_s == hand.now_s + 6.0
        assert driver.calm_until_s == pytest.approx(hand.now_s + 0.3)
        hand.advance(0.3)
        assert driver.lease_until_s == hand.now_s + 6.0
        assert (driver.is_quiet, driver.leads, driver.member.generation) == (True, True, 1)
        group.silent = frozenset({HeartbeatRequest})
        hand.advance(0.31)
        assert group.requests.count(HeartbeatRequest) == 2
        assert driver.calm_until_s is None


def test_driver_tells_the_member_how_fast_the_application_works(
    hand: Hand,
    driver_and_group: DriverAndGroup,
) -> None:
    driver, _ = driver_and_group
    driver.meter.rate_per_s = 7.5
    subscribe(hand, driver)
    assert driver.member.next_join.consumption_rate_per_s == 7.5
    driver.meter.rate_per_s = 9.0
    driver.post(Woken())
    hand.run()
    assert driver.member.next_join.consumption_rate_per_s == 9.0


def test_driver_when_heartbeats_are_not_answered_lets_the_lease_end(
    hand: Hand,
    driver_and_group: DriverAndGroup,
) -> None:
    driver, group = driver_and_group
    subscribe(hand, driver)
    group.silent = frozenset({HeartbeatRequest})
    hand.advance(0.599)
    assert not driver.inbox.waiting
    hand.advance(0.001)
    assert driver.inbox.take() == LoseResources(resources=ORDERS, cause="lease expired")
    assert (driver.lease_until_s, driver.member.state) == (math.inf, MemberState.LOSING)
    driver.inbox.take_call()
    group.silent = frozenset()
    driver.post(LossHandled())
    hand.advance(1.0)
    assert driver.inbox.take() == GrantResources(resources=ORDERS)


def test_driver_when_refused_permanently_fails_the_application(
    hand: Hand,
    driver_and_group: DriverAndGroup,
) -> None:
    driver, group = driver_and_group

    def refuse(request: GroupRequest) -> Outcome:
        if not isinstance(request, JoinGroupRequest):
            return None
        return TransportFailure(kind=FailureKind.UNSUPPORTED, message="too old")

    group.override = refuse
    driver.post(SubscriptionChanged(topics=("orders",)))
    hand.run()
    assert driver.inbox.waiting
    notice = driver.inbox.take()
    assert isinstance(notice, FailMember)
    assert (notice.code, has_left(driver.member)) == (ErrorCode.UNSUPPORTED_BY_BROKER, True)


def test_driver_when_it_leaves_drops_what_was_not_heard(
    hand: Hand, driver_and_group: DriverAndGroup
) -> None:
    driver, _ = driver_and_group
    driver.post(SubscriptionChanged(topics=("orders",)))
    hand.run()
    driver.post(LeaveRequested(reason="closed"))
    hand.run()
    assert has_left(driver.member)
    assert (driver.inbox.take(), driver.lease_until_s) == (None, math.inf)


def test_post_when_a_signal_handler_posts_meanwhile_does_not_wait_for_itself(
    hand: Hand, driver_and_group: DriverAndGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handler interrupts `post` on the same thread, and may close the consumer."""
    driver, _ = driver_and_group
    subscribe(hand, driver)

    put = driver._events.put  # noqa: SLF001  (interrupted here)

    def interrupted(event: SessionEvent) -> None:
        if isinstance(event, CommitRequested):
            driver.post(LeaveRequested(reason="closed in a signal handler"))
        put(event)

    monkeypatch.setattr(GroupEvents, "put", lambda _, event: interrupted(event))
    commit(driver)
    hand.run()
    assert has_left(driver.member)


def test_driver_wakes_the_application_when_it_asked_for_it(
    hand: Hand,
    driver_and_group: DriverAndGroup,
) -> None:
    driver, _ = driver_and_group
    driver.remind(hand.now_s + 30)
    driver.remind(hand.now_s + 0.05)
    hand.advance(0.049)
    assert not driver.inbox.waiting
    hand.advance(0.002)
    assert (driver.inbox.waiting, driver.inbox.take(), driver.inbox.take_call()) == (
        True,
        None,
        None,
    )
    hand.advance(0.05)
    assert not driver.inbox.waiting
    driver.remind(hand.now_s)
    hand.run()
    assert driver.inbox.waiting
