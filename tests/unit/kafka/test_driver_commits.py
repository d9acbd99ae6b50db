"""Commits that the group's thread is asked for end once each, whatever comes between."""

from __future__ import annotations

import threading
import time

import pytest

from coopgroup.kafka.transport import FailureKind, TransportFailure
from coopgroup.member import ErrorCode, MemberState
from coopgroup.member.events import CommitRequested, Offset
from coopgroup.model.group_api import GroupRequest, OffsetCommitRequest
from tests.unit.kafka.one_member_group import (
    DriverAndGroup,
    Outcome,
    commit,
    running,
    subscribe,
    wait_until,
)


def test_commits_are_answered_once_each(driver_and_group: DriverAndGroup) -> None:
    """By the coordinator; without membership at once."""
    driver, _ = driver_and_group
    outside = commit(driver)
    wait_until(lambda: bool(outside))
    assert outside == [(("orders", 0, int(ErrorCode.UNKNOWN_MEMBER_ID)),)]
    subscribe(driver)
    inside = commit(driver)
    wait_until(lambda: bool(inside))
    assert inside == [(("orders", 0, 0),)]


def test_commit_when_the_driver_stops_ends_too(driver_and_group: DriverAndGroup) -> None:
    """Nobody waits for ever; stopping twice is no error."""
    driver, group = driver_and_group
    subscribe(driver)
    group.silent = frozenset({OffsetCommitRequest})
    waiting = commit(driver)
    wait_until(lambda: OffsetCommitRequest in group.requests)
    driver.stop()
    driver.stop()
    assert waiting == [(("orders", 0, int(ErrorCode.UNKNOWN_MEMBER_ID)),)]


def test_commit_when_it_timed_out_is_not_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its caller was told so; sent later it would overwrite what was committed since."""

    def cut_off(request: GroupRequest) -> Outcome:
        if not isinstance(request, OffsetCommitRequest):
            return None
        return TransportFailure(kind=FailureKind.DISCONNECTED, message="cut off")

    # No heartbeat in between: an answer to it would mean that the coordinator lives.
    seldom = {
        "session.timeout.ms": 9_000,
        "max.poll.interval.ms": 9_000,
        "heartbeat.interval.ms": 8_000,
    }
    with running(monkeypatch, more=seldom) as (driver, group):
        subscribe(driver)
        group.override = cut_off
        outcome = commit(driver)
        wait_until(lambda: bool(outcome))
        assert outcome == [(("orders", 0, int(ErrorCode.REQUEST_TIMED_OUT)),)]
        sent = group.requests.count(OffsetCommitRequest)
        group.override = None
        time.sleep(0.5)
        assert (sent > 0, group.requests.count(OffsetCommitRequest)) == (True, sent)
        assert driver.member.state is MemberState.STABLE


def test_commit_when_the_driver_was_stopped_ends_at_once(driver_and_group: DriverAndGroup) -> None:
    """Nobody waits for ever, whichever comes first."""
    driver, _ = driver_and_group
    subscribe(driver)
    ended: list[tuple[tuple[str, int, int], ...]] = []
    early = driver.new_commit(ended.append)
    driver.stop()
    assert ended == [()]  # nobody said of what
    driver.post(CommitRequested(commit_id=early, offsets=(Offset("orders", 0, 5),)))
    assert ended == [()]
    assert commit(driver) == [(("orders", 0, int(ErrorCode.UNKNOWN_MEMBER_ID)),)]


def test_commits_when_the_driver_stops_meanwhile_end_once_each(
    driver_and_group: DriverAndGroup,
) -> None:
    """From several threads."""
    driver, _ = driver_and_group
    subscribe(driver)
    outcomes: list[list[tuple[tuple[str, int, int], ...]]] = []
    stopped = threading.Event()

    def commit_until_stopped() -> None:
        while not stopped.wait(0.0002):
            outcomes.append(commit(driver))
        outcomes.append(commit(driver))

    threads = [threading.Thread(target=commit_until_stopped) for _ in range(3)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(outcomes) > 10)
    driver.stop()
    stopped.set()
    for thread in threads:
        thread.join()
    wait_until(lambda: all(outcomes))
    assert {len(one) for one in outcomes} == {1}
