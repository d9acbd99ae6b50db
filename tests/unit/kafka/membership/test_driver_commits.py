"""Each commit requested from the group's thread ends exactly once."""

from __future__ import annotations

import pytest

from coopgroup.kafka.membership import driver as driver_module
from coopgroup.kafka.records.pending_commits import PendingCommits
from coopgroup.kafka.rpc.transport import FailureKind, TransportFailure
from coopgroup.member import ErrorCode, MemberState
from coopgroup.member.events import CommitRequested, CommitsAbandoned, Offset
from coopgroup.model.group_api import GroupRequest, OffsetCommitRequest
from coopgroup.session import Session, SessionEvent, step
from tests.support.by_hand import Hand
from tests.unit.kafka.one_member_group import (
    DriverAndGroup,
    Outcome,
    commit,
    fail,
    running,
    subscribe,
)

Codes = list[tuple[tuple[str, int, int], ...]]
# Without heartbeats in between, whose answers would prove that the coordinator is alive.
SELDOM = {
    "session.timeout.ms": 9_000,
    "max.poll.interval.ms": 9_000,
    "heartbeat.interval.ms": 8_000,
}


def ended(code: ErrorCode) -> Codes:
    return [(("orders", 0, int(code)),)]


def test_commits_are_answered_once_each(hand: Hand, driver_and_group: DriverAndGroup) -> None:
    driver, _ = driver_and_group
    outside = commit(driver)
    subscribe(hand, driver)
    inside = commit(driver)
    hand.run()
    assert (outside, inside) == (ended(ErrorCode.UNKNOWN_MEMBER_ID), ended(ErrorCode.NONE))


def test_commit_when_it_timed_out_is_not_sent_again(hand: Hand) -> None:
    """Its caller saw a timeout. A late retry would overwrite newer committed offsets."""

    def cut_off(request: GroupRequest) -> Outcome:
        if not isinstance(request, OffsetCommitRequest):
            return None
        return TransportFailure(kind=FailureKind.DISCONNECTED, message="cut off")

    with running(hand, more=SELDOM) as (driver, group):
        subscribe(hand, driver)
        group.override = cut_off
        outcome = commit(driver)
        hand.advance(1.0)
        assert outcome == ended(ErrorCode.REQUEST_TIMED_OUT)
        sent = group.requests.count(OffsetCommitRequest)
        group.override = None
        hand.advance(0.5)
        assert (sent > 0, group.requests.count(OffsetCommitRequest)) == (True, sent)
        assert driver.member.state is MemberState.STABLE


def test_commits_when_the_driver_stops_end_once_each(
    hand: Hand, driver_and_group: DriverAndGroup
) -> None:
    """Also those that are sent, that wait, that are not posted yet, and that come later."""
    driver, group = driver_and_group
    subscribe(hand, driver)
    outcomes = [commit(driver) for _ in range(10)]
    group.silent = frozenset({OffsetCommitRequest})
    hand.run()
    assert OffsetCommitRequest in group.requests
    outcomes += [commit(driver) for _ in range(10)]
    early: Codes = []
    commit_id = driver.new_commit(early.append)
    driver.stop()
    driver.stop()
    assert early == [()]  # ended without an offset
    driver.post(CommitRequested(commit_id=commit_id, offsets=(Offset("orders", 0, 5),)))
    outcomes.append(commit(driver))
    assert early == [()]
    assert outcomes == [ended(ErrorCode.UNKNOWN_MEMBER_ID)] * 21


COMMITS = 3_000


def test_commits_that_time_out_together_cost_the_member_one_step(
    hand: Hand,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps: list[object] = []

    def counted(session: Session, event: SessionEvent, *, now_ms: int) -> object:
        if isinstance(event, CommitsAbandoned):
            steps.append(event)
        return step(session, event, now_ms=now_ms)

    with running(hand, more=SELDOM) as (driver, group):
        subscribe(hand, driver)
        group.silent = frozenset({OffsetCommitRequest})
        monkeypatch.setattr(driver_module, "step", counted)
        outcomes = [commit(driver) for _ in range(COMMITS)]
        hand.advance(1.0)
    assert outcomes == [ended(ErrorCode.REQUEST_TIMED_OUT)] * COMMITS
    assert len(steps) < COMMITS // 10


def test_pending_commits_when_asked_who_is_overdue_look_at_the_oldest_only() -> None:
    """The thread checks after each event. Checking every commit made commits quadratic."""
    pending = PendingCommits(timeout_ms=0, warn=fail)
    outcomes: list[object] = []
    ids = [pending.register(outcomes.append) for _ in range(3)]
    for commit_id in ids:
        pending.take_up(CommitRequested(commit_id=commit_id, offsets=()))
    pending.end(ids[0], ErrorCode.NONE)
    assert pending.overdue() == ids[1:]
    assert pending.overdue() == []
    patient = PendingCommits(timeout_ms=60_000, warn=fail)
    patient.take_up(CommitRequested(commit_id=1, offsets=()))
    assert (patient.overdue(), patient.are_waited_for) == ([], True)


def test_wait_for_commits_is_over_when_those_asked_for_before_have_ended(
    hand: Hand,
    driver_and_group: DriverAndGroup,
) -> None:
    driver, group = driver_and_group
    subscribe(hand, driver)
    group.silent = frozenset({OffsetCommitRequest})
    outcomes = [commit(driver) for _ in range(3)]
    hand.run()
    assert not driver.wait_for_commits(0.0)
    assert not any(outcomes)
    group.answer_held()
    hand.run()
    assert driver.wait_for_commits(0.0)
    assert outcomes == [ended(ErrorCode.NONE)] * 3
