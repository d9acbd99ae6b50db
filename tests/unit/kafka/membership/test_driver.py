"""The group's thread over a transport that answers like a coordinator with one member."""

from __future__ import annotations

import math
import threading
import time

import pytest

from coopgroup.kafka.clock import now_s
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
    LeaveGroupRequest,
    SyncGroupRequest,
)
from coopgroup.session import SessionEvent
from tests.support.waiting import wait_for
from tests.unit.kafka.one_member_group import (
    ORDERS,
    WAIT_S,
    DriverAndGroup,
    Outcome,
    commit,
    running,
    subscribe,
)

PATIENT = {"session.timeout.ms": 6_000, "max.poll.interval.ms": 8_000}


def test_driver_joins_leads_and_holds_a_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    with running(monkeypatch, more=PATIENT) as (driver, group):
        assert (driver.lease_until_s, driver.is_quiet, driver.leads) == (math.inf, True, False)
        subscribe(driver)
        # A heartbeat may come between join and sync, if this process was not scheduled for a while.
        requests = [one for one in group.requests if one is not HeartbeatRequest]
        assert requests[:3] == [FindCoordinatorRequest, JoinGroupRequest, SyncGroupRequest]
        first = driver.lease_until_s
        assert now_s() < first <= now_s() + 6.0
        wait_for(lambda: driver.lease_until_s > first)
        assert (driver.is_quiet, driver.leads, driver.member.generation) == (True, True, 1)


def test_driver_at_rest_is_calm_until_its_next_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = {**PATIENT, "heartbeat.interval.ms": 300}
    with running(monkeypatch, more=slow) as (driver, group):
        subscribe(driver)
        wait_for(lambda: HeartbeatRequest in group.requests)
        calm_until_s = None
        while calm_until_s is None:
            calm_until_s = driver.calm_until_s
        sent = group.requests.count(HeartbeatRequest)
        wait_for(lambda: group.requests.count(HeartbeatRequest) > sent)
        assert calm_until_s <= now_s()
        group.silent = frozenset({HeartbeatRequest})
        wait_for(lambda: group.requests.count(HeartbeatRequest) > sent + 1)
        wait_for(lambda: driver.calm_until_s is None)


def test_driver_tells_the_member_how_fast_the_application_works(
    driver_and_group: DriverAndGroup,
) -> None:
    driver, _ = driver_and_group
    driver.meter.rate_per_s = 7.5
    subscribe(driver)
    assert driver.member.next_join.consumption_rate_per_s == 7.5
    driver.meter.rate_per_s = 9.0
    driver.post(Woken())
    wait_for(lambda: driver.member.next_join.consumption_rate_per_s == 9.0)


def test_driver_when_heartbeats_are_not_answered_lets_the_lease_end(
    driver_and_group: DriverAndGroup,
) -> None:
    driver, group = driver_and_group
    subscribe(driver)
    group.silent = frozenset({HeartbeatRequest})
    wait_for(lambda: driver.inbox.waiting)
    assert driver.inbox.take() == LoseResources(resources=ORDERS, cause="lease expired")
    assert (driver.lease_until_s, driver.member.state) == (math.inf, MemberState.LOSING)
    driver.inbox.take_call()
    group.silent = frozenset()
    driver.post(LossHandled())
    wait_for(lambda: driver.inbox.waiting)
    assert driver.inbox.take() == GrantResources(resources=ORDERS)


def test_driver_when_the_application_does_not_poll_leaves_the_group(
    driver_and_group: DriverAndGroup,
) -> None:
    driver, group = driver_and_group
    subscribe(driver)
    driver.polled_at_s = now_s()
    wait_for(lambda: driver.inbox.waiting)
    assert 0.8 <= now_s() - driver.polled_at_s < 10.0
    cause = "max.poll.interval.ms exceeded"
    assert driver.inbox.take() == LoseResources(resources=ORDERS, cause=cause)
    assert LeaveGroupRequest in group.requests


def test_driver_when_refused_permanently_fails_the_application(
    driver_and_group: DriverAndGroup,
) -> None:
    driver, group = driver_and_group

    def refuse(request: GroupRequest) -> Outcome:
        if not isinstance(request, JoinGroupRequest):
            return None
        return TransportFailure(kind=FailureKind.UNSUPPORTED, message="too old")

    group.override = refuse
    driver.post(SubscriptionChanged(topics=("orders",)))
    wait_for(lambda: driver.inbox.waiting)
    notice = driver.inbox.take()
    assert isinstance(notice, FailMember)
    assert (notice.code, has_left(driver.member)) == (ErrorCode.UNSUPPORTED_BY_BROKER, True)


def test_driver_when_it_leaves_drops_what_was_not_heard(driver_and_group: DriverAndGroup) -> None:
    driver, group = driver_and_group
    driver.post(SubscriptionChanged(topics=("orders",)))
    wait_for(lambda: driver.inbox.waiting)
    driver.post(LeaveRequested(reason="closed"))
    wait_for(lambda: has_left(driver.member))
    assert (driver.inbox.take(), driver.lease_until_s) == (None, math.inf)
    assert group.requests[-1] is LeaveGroupRequest


def test_post_when_a_signal_handler_posts_meanwhile_does_not_wait_for_itself(
    driver_and_group: DriverAndGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handler interrupts `post` on the same thread, and may close the consumer."""
    driver, _ = driver_and_group
    subscribe(driver)

    put = driver._events.put  # noqa: SLF001  (interrupted here)

    def interrupted(event: SessionEvent) -> None:
        if isinstance(event, CommitRequested):
            driver.post(LeaveRequested(reason="closed in a signal handler"))
        put(event)

    monkeypatch.setattr(GroupEvents, "put", lambda _, event: interrupted(event))
    poster = threading.Thread(target=commit, args=(driver,), daemon=True)
    poster.start()
    poster.join(WAIT_S)
    assert not poster.is_alive()
    wait_for(lambda: has_left(driver.member))


def test_driver_wakes_the_application_when_it_asked_for_it(
    driver_and_group: DriverAndGroup,
) -> None:
    driver, _ = driver_and_group
    asked_s = now_s()
    driver.remind(asked_s + 30)
    driver.remind(asked_s + 0.05)
    wait_for(lambda: driver.inbox.waiting)
    assert now_s() >= asked_s + 0.05
    assert (driver.inbox.take(), driver.inbox.take_call(), driver.inbox.waiting) == (
        None,
        None,
        False,
    )
    time.sleep(0.05)
    assert not driver.inbox.waiting
    driver.remind(now_s())
    wait_for(lambda: driver.inbox.waiting)
