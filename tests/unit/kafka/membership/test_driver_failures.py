"""Bugs inside the group's thread: the application is told, and the thread keeps running."""

from __future__ import annotations

import logging
import math
import time

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
from tests.support.waiting import wait_for
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
    driver_and_group: DriverAndGroup,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    driver, _ = driver_and_group
    subscribe(driver)
    monkeypatch.setattr(driver_module, "step", fail)
    waiting = commit(driver)
    wait_for(lambda: bool(waiting))
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
    subscribe(driver)
    assert driver.member.state is MemberState.STABLE


def test_driver_when_a_first_step_fails_tells_the_application(
    driver_and_group: DriverAndGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, _ = driver_and_group
    monkeypatch.setattr(driver_module, "step", fail)
    driver.post(SubscriptionChanged(topics=("orders",)))
    wait_for(lambda: driver.inbox.waiting)
    assert driver.inbox.take() == INTERNAL_ERROR
    assert driver.inbox.take_call() is None
    driver.post(SubscriptionChanged(topics=("orders",)))
    time.sleep(0.05)
    assert not driver.inbox.waiting  # reported once
    assert driver.member.state is MemberState.FAILED


def test_driver_when_the_member_cannot_even_fail_tells_the_application(
    driver_and_group: DriverAndGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, _ = driver_and_group
    monkeypatch.setattr(driver_module, "step", fail)
    monkeypatch.setattr(driver_module, "fail", fail)
    driver.post(LossHandled())
    wait_for(lambda: driver.inbox.waiting)
    assert driver.inbox.take() == INTERNAL_ERROR


def test_driver_when_a_deadline_cannot_be_told_fails_the_member_and_can_be_stopped(
    driver_and_group: DriverAndGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, _ = driver_and_group
    subscribe(driver)
    tries: list[object] = []

    def count(session: object) -> None:
        tries.append(session)
        raise LookupError("a bug")

    monkeypatch.setattr(driver_module, "session_deadline_ms", count)
    driver.post(CommitRequested(commit_id=driver.new_commit(lambda _: None), offsets=()))
    wait_for(lambda: driver.member.state is MemberState.FAILED)
    time.sleep(0.3)
    assert 1 <= len(tries) <= 10
    began = time.monotonic()
    driver.stop()
    assert time.monotonic() - began < 5.0


def test_driver_when_the_log_fails_lives_on(
    driver_and_group: DriverAndGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, _ = driver_and_group
    monkeypatch.setattr(logging.getLogger("coopgroup"), "handle", fail)
    monkeypatch.setattr(TelemetrySink, "write", fail)
    driver.post(LossHandled())  # refused, and the refusal is logged
    subscribe(driver)
    assert driver.member.state is MemberState.STABLE


def test_driver_when_a_commits_caller_fails_goes_on(
    driver_and_group: DriverAndGroup, caplog: pytest.LogCaptureFixture
) -> None:
    driver, group = driver_and_group
    subscribe(driver)
    for silent in (frozenset(), frozenset({OffsetCommitRequest, HeartbeatRequest})):
        caplog.clear()
        group.silent = silent
        commit_id = driver.new_commit(fail)
        driver.post(CommitRequested(commit_id=commit_id, offsets=(Offset("orders", 0, 5),)))
        wait_for(lambda: "internal_error" in warnings(caplog))
    group.silent = frozenset()
    driver.post(LossHandled())
    wait_for(lambda: driver.member.state is MemberState.STABLE)


def test_driver_when_the_transport_fails_inside_only_warns(
    driver_and_group: DriverAndGroup, caplog: pytest.LogCaptureFixture
) -> None:
    driver, group = driver_and_group
    subscribe(driver)
    assert group.report is not None
    group.report(OSError("a loop that failed"))
    assert "a loop that failed" in warnings(caplog)
    assert not driver.inbox.waiting
    first = driver.lease_until_s
    wait_for(lambda: driver.lease_until_s > first)


def test_driver_when_the_transport_takes_no_request_tries_again(
    driver_and_group: DriverAndGroup,
) -> None:
    """An unsent request needs an outcome, too; otherwise the member waits forever."""
    driver, group = driver_and_group
    group.failure = RuntimeError("the transport is not running")
    driver.post(SubscriptionChanged(topics=("orders",)))
    time.sleep(0.05)
    group.failure = None
    wait_for(lambda: driver.inbox.waiting)
    assert driver.inbox.take() == GrantResources(resources=ORDERS)
