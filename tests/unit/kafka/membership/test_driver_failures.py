"""Bugs inside the group's thread: the application is told, and the thread keeps running."""

from __future__ import annotations

import logging
import math

import pytest

from coopgroup.kafka.membership import driver as driver_module
from coopgroup.kafka.membership.telemetry_sink import TelemetrySink
from coopgroup.member import ErrorCode, MemberState
from coopgroup.member.effects import FailMember, GrantResources, LoseResources
from coopgroup.member.events import (
    CommitRequested,
    LeaveRequested,
    LossHandled,
    Offset,
    SubscriptionChanged,
)
from coopgroup.model.group_api import HeartbeatRequest, OffsetCommitRequest
from tests.support.by_hand import Hand
from tests.unit.kafka.one_member_group import (
    ORDERS,
    DriverAndGroup,
    commit,
    fail,
    subscribe,
    warnings,
)

INTERNAL_ERROR = FailMember(
    code=ErrorCode.UNKNOWN_SERVER_ERROR, message="internal error: LookupError: a bug"
)


def test_driver_when_a_step_fails_fails_the_member_until_it_subscribes_anew(
    hand: Hand,
    driver_and_group: DriverAndGroup,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    driver, _ = driver_and_group
    subscribe(hand, driver)
    monkeypatch.setattr(driver_module, "step", fail)
    waiting = commit(driver)
    hand.run()
    assert bool(waiting)
    assert driver.inbox.take() == LoseResources(resources=ORDERS, cause=INTERNAL_ERROR.message)
    assert driver.inbox.take() == INTERNAL_ERROR
    assert driver.inbox.take_call() is None
    assert "internal_error" in warnings(caplog)
    assert (driver.member.state, driver.lease_until_s) == (MemberState.FAILED, math.inf)
    assert waiting == [(("orders", 0, int(ErrorCode.UNKNOWN_MEMBER_ID)),)]
    assert not driver.leads
    monkeypatch.undo()
    driver.post(LossHandled())
    driver.post(LeaveRequested(reason="subscribed anew"))
    subscribe(hand, driver)
    assert driver.member.state is MemberState.STABLE


@pytest.mark.parametrize("failing", [["step"], ["step", "fail"]])
def test_driver_when_a_first_step_fails_tells_the_application_once(
    hand: Hand,
    driver_and_group: DriverAndGroup,
    monkeypatch: pytest.MonkeyPatch,
    failing: list[str],
) -> None:
    """Even if the member cannot fail either."""
    driver, _ = driver_and_group
    for name in failing:
        monkeypatch.setattr(driver_module, name, fail)
    driver.post(SubscriptionChanged(topics=("orders",)))
    hand.run()
    assert driver.inbox.take() == INTERNAL_ERROR
    assert driver.inbox.take_call() is None
    if "fail" not in failing:
        driver.post(SubscriptionChanged(topics=("orders",)))
        hand.run()
        assert driver.inbox.take() is None
        assert driver.member.state is MemberState.FAILED


def test_driver_when_a_deadline_cannot_be_told_fails_the_member_and_can_be_stopped(
    hand: Hand, driver_and_group: DriverAndGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, _ = driver_and_group
    subscribe(hand, driver)
    tries: list[object] = []

    def count(session: object) -> None:
        tries.append(session)
        raise LookupError("a bug")

    monkeypatch.setattr(driver_module, "session_deadline_ms", count)
    driver.post(CommitRequested(commit_id=driver.new_commit(lambda _: None), offsets=()))
    hand.run()
    assert driver.member.state is MemberState.FAILED
    tries.clear()
    hand.advance(1.0)
    assert 1 <= len(tries) <= 25


def test_driver_when_the_log_fails_lives_on(
    hand: Hand, driver_and_group: DriverAndGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, _ = driver_and_group
    monkeypatch.setattr(logging.getLogger("coopgroup"), "handle", fail)
    monkeypatch.setattr(TelemetrySink, "write", fail)
    driver.post(LossHandled())  # refused, and the refusal is logged
    subscribe(hand, driver)
    assert driver.member.state is MemberState.STABLE


def test_driver_when_a_commits_caller_fails_goes_on(
    hand: Hand, driver_and_group: DriverAndGroup, caplog: pytest.LogCaptureFixture
) -> None:
    driver, group = driver_and_group
    subscribe(hand, driver)
    for silent in (frozenset(), frozenset({OffsetCommitRequest, HeartbeatRequest})):
        caplog.clear()
        group.silent = silent
        commit_id = driver.new_commit(fail)
        driver.post(CommitRequested(commit_id=commit_id, offsets=(Offset("orders", 0, 5),)))
        hand.advance(0.6)
        assert "internal_error" in warnings(caplog)
    group.silent = frozenset()
    driver.post(LossHandled())
    hand.advance(1.0)
    assert driver.member.state is MemberState.STABLE


def test_driver_when_the_transport_fails_inside_only_warns(
    hand: Hand, driver_and_group: DriverAndGroup, caplog: pytest.LogCaptureFixture
) -> None:
    driver, group = driver_and_group
    subscribe(hand, driver)
    assert group.report is not None
    group.report(OSError("a loop that failed"))
    assert "a loop that failed" in warnings(caplog)
    assert not driver.inbox.waiting
    first = driver.lease_until_s
    hand.advance(0.02)
    assert driver.lease_until_s > first


def test_driver_when_the_transport_takes_no_request_tries_again(
    hand: Hand,
    driver_and_group: DriverAndGroup,
) -> None:
    """An unsent request needs an outcome, too; otherwise the member waits forever."""
    driver, group = driver_and_group
    group.failure = RuntimeError("the transport is not running")
    driver.post(SubscriptionChanged(topics=("orders",)))
    hand.advance(0.05)
    group.failure = None
    hand.advance(1.0)
    assert driver.inbox.waiting
    assert driver.inbox.take() == GrantResources(resources=ORDERS)
