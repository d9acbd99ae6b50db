"""Events for the group's thread: answers first, other events in their order."""

from __future__ import annotations

from coopgroup.kafka.membership.group_events import GroupEvents
from coopgroup.member.events import (
    Answered,
    BellRang,
    CommitRequested,
    LeaveRequested,
    RequestFailed,
    RevocationCompleted,
    Woken,
)
from coopgroup.model import ResourceSet
from coopgroup.model.group_api import HeartbeatAnswer

COMMIT = CommitRequested(commit_id=1, offsets=())
STOPPED = RevocationCompleted(resources=ResourceSet({"t": [0]}))
LEAVE = LeaveRequested(reason="closed")
ANSWER = Answered(request_id=1, answer=HeartbeatAnswer(error_code=0))
FAILURE = RequestFailed(request_id=2, code=-2, message="cut off")


def test_answers_when_commits_wait_are_taken_first() -> None:
    """A heartbeat's answer renews the lease, however many commits were requested before."""
    events = GroupEvents()
    for event in (COMMIT, STOPPED, ANSWER, FAILURE, LEAVE):
        events.put(event)
    events.end()
    taken = [events.take(0.0) for _ in range(8)]
    # If an answer was taken early, its token later wakes the thread for nothing.
    assert taken == [ANSWER, FAILURE, COMMIT, STOPPED, Woken(), Woken(), LEAVE, None]


def test_answer_that_comes_alone_is_taken_once() -> None:
    events = GroupEvents()
    events.put(COMMIT)
    assert events.take(None) == COMMIT
    events.put(ANSWER)
    assert [events.take(0.0) for _ in range(3)] == [ANSWER, Woken(), Woken()]


def test_ring_overtakes_commits() -> None:
    events = GroupEvents()
    for event in (COMMIT, COMMIT, BellRang()):
        events.put(event)
    assert events.take(0.0) == BellRang()
