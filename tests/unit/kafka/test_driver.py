"""The group's thread over a transport that answers as a coordinator of one member would."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from attrs import define, field

from coopgroup.assignors.sticky import StickyAssignor
from coopgroup.kafka import driver as driver_module
from coopgroup.kafka.clock import now_s
from coopgroup.kafka.driver import GroupDriver, has_left
from coopgroup.kafka.settings import read_settings
from coopgroup.kafka.telemetry_sink import TelemetrySink
from coopgroup.kafka.transport import FailureKind, TransportFailure
from coopgroup.leader import TopicMetadata
from coopgroup.member import ErrorCode, MemberState
from coopgroup.member.effects import FailMember, GrantResources, Lane, LoseResources
from coopgroup.member.events import (
    CommitRequested,
    LeaveRequested,
    LossHandled,
    Offset,
    SubscriptionChanged,
)
from coopgroup.model import ResourceSet
from coopgroup.model.group_api import (
    Answer,
    Coordinator,
    FindCoordinatorAnswer,
    FindCoordinatorRequest,
    GroupRequest,
    HeartbeatAnswer,
    HeartbeatRequest,
    JoinedMember,
    JoinGroupAnswer,
    JoinGroupRequest,
    LeaveGroupAnswer,
    LeaveGroupRequest,
    OffsetCommitAnswer,
    OffsetCommitRequest,
    SyncGroupAnswer,
    SyncGroupRequest,
)
from coopgroup.policies.simple import SimplePolicy

WAIT_S = 5.0
ORDERS = ResourceSet({"orders": [0, 1]})
SETTINGS = {
    "bootstrap.servers": "127.0.0.1:1",
    "group.id": "g",
    "session.timeout.ms": 600,
    "heartbeat.interval.ms": 20,
    "max.poll.interval.ms": 800,
}
Outcome = Answer | TransportFailure | None


@define(eq=False)
class OneMemberGroup:
    """A transport and a coordinator in one.

    Attributes:
        requests: kinds of requests, in order.
        override: answers instead, where it has one; None keeps a request waiting.
        is_closed: whether the driver ended it.
    """

    requests: list[type] = field(factory=list)
    override: Callable[[GroupRequest], Outcome] | None = None
    silent: frozenset[type] = frozenset()
    is_closed: bool = False

    def start(self) -> None:
        """Nothing to connect to."""

    def close(self, _timeout_ms: int) -> None:
        """Remember it."""
        self.is_closed = True

    def close_lane(self, _lane: Lane) -> None:
        """No lanes."""

    def send(
        self,
        _lane: Lane,
        request: GroupRequest,
        on_answer: Callable[[Any], None],
        *,
        node: Coordinator | None,
        timeout_ms: int,
    ) -> None:
        """Answer at once."""
        assert timeout_ms > 0
        self.requests.append(type(request))
        if type(request) in self.silent:
            return
        answer = None if self.override is None else self.override(request)
        on_answer(_answer(request) if answer is None else answer)


def _answer(request: GroupRequest) -> Answer:
    match request:
        case FindCoordinatorRequest():
            here = Coordinator(node_id=1, host="localhost", port=1)
            return FindCoordinatorAnswer(error_code=0, error_message="", coordinator=here)
        case JoinGroupRequest():
            name, subscription = request.protocols[0]
            member = JoinedMember(member_id="m", group_instance_id=None, metadata=subscription)
            return JoinGroupAnswer(
                error_code=0,
                generation=1,
                protocol_name=name,
                leader_id="m",
                member_id="m",
                members=(member,),
                skip_assignment=False,
            )
        case SyncGroupRequest():
            return SyncGroupAnswer(error_code=0, assignment=dict(request.assignments)["m"])
        case HeartbeatRequest():
            return HeartbeatAnswer(error_code=0)
        case LeaveGroupRequest():
            return LeaveGroupAnswer(error_code=0)
        case OffsetCommitRequest():
            codes = tuple((one[0], one[1], 0) for one in request.offsets)
            return OffsetCommitAnswer(codes=codes)


class _Lookup:
    """A cluster with one topic."""

    def metadata(self, _topics: object) -> TopicMetadata:
        """What exists."""
        return TopicMetadata(resources=ORDERS)

    def close(self) -> None:
        """Nothing is open."""


Made = tuple[GroupDriver, OneMemberGroup]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[Made]:
    """A driver that runs, its application polling."""
    group = OneMemberGroup()
    monkeypatch.setattr(driver_module, "GroupTransport", lambda *_: group)
    lookup: Any = _Lookup()
    driver = GroupDriver(
        settings=read_settings(SETTINGS),
        assignor=StickyAssignor(),
        policy=SimplePolicy(),
        lookup=lookup,
        sink=TelemetrySink("g"),
    )
    driver.start()
    yield driver, group
    driver.stop()
    assert group.is_closed


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for the group's thread."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def subscribe(driver: GroupDriver) -> None:
    """Be in the group, the grant taken from the inbox."""
    driver.post(SubscriptionChanged(topics=("orders",)))
    wait_until(lambda: driver.inbox.waiting)
    assert driver.inbox.take() == GrantResources(resources=ORDERS)
    assert driver.inbox.take_call() is None


def commit(driver: GroupDriver) -> list[tuple[tuple[str, int, int], ...]]:
    """Ask for a commit; the list gets the outcome."""
    outcome: list[tuple[tuple[str, int, int], ...]] = []
    commit_id = driver.new_commit(outcome.append)
    driver.post(CommitRequested(commit_id=commit_id, offsets=(Offset("orders", 0, 5),)))
    return outcome


def test_driver_joins_leads_and_holds_a_lease(made: Made) -> None:
    """Requests in order; the lease is finite from the grant on and grows with heartbeats."""
    driver, group = made
    assert (driver.lease_until_s, driver.is_quiet, driver.leads) == (math.inf, True, False)
    subscribe(driver)
    assert group.requests[:3] == [FindCoordinatorRequest, JoinGroupRequest, SyncGroupRequest]
    first = driver.lease_until_s
    assert now_s() < first <= now_s() + 0.6
    wait_until(lambda: driver.lease_until_s > first)
    assert (driver.is_quiet, driver.leads, driver.member.generation) == (True, True, 1)


def test_driver_when_heartbeats_are_not_answered_lets_the_lease_end(made: Made) -> None:
    """By itself, and tells the application what it lost."""
    driver, group = made
    subscribe(driver)
    group.silent = frozenset({HeartbeatRequest})
    wait_until(lambda: driver.inbox.waiting)
    assert driver.inbox.take() == LoseResources(resources=ORDERS, cause="lease expired")
    assert (driver.lease_until_s, driver.member.state) == (math.inf, MemberState.LOSING)
    driver.inbox.take_call()
    group.silent = frozenset()
    driver.post(LossHandled())
    wait_until(lambda: driver.inbox.waiting)
    assert driver.inbox.take() == GrantResources(resources=ORDERS)


def test_driver_when_the_application_does_not_poll_leaves_the_group(made: Made) -> None:
    """After `max.poll.interval.ms`, and is back when the loss was heard."""
    driver, group = made
    subscribe(driver)
    driver.polled_at_s = now_s()
    wait_until(lambda: driver.inbox.waiting)
    assert 0.8 <= now_s() - driver.polled_at_s < 2.0
    cause = "max.poll.interval.ms exceeded"
    assert driver.inbox.take() == LoseResources(resources=ORDERS, cause=cause)
    assert LeaveGroupRequest in group.requests


def test_commits_are_answered_once_each(made: Made) -> None:
    """By the coordinator; without membership at once."""
    driver, _ = made
    outside = commit(driver)
    wait_until(lambda: bool(outside))
    assert outside == [(("orders", 0, int(ErrorCode.UNKNOWN_MEMBER_ID)),)]
    subscribe(driver)
    inside = commit(driver)
    wait_until(lambda: bool(inside))
    assert inside == [(("orders", 0, 0),)]


def test_commit_when_the_driver_stops_ends_too(made: Made) -> None:
    """Nobody waits for ever; stopping twice is no error."""
    driver, group = made
    subscribe(driver)
    group.silent = frozenset({OffsetCommitRequest})
    waiting = commit(driver)
    wait_until(lambda: OffsetCommitRequest in group.requests)
    driver.stop()
    driver.stop()
    assert waiting == [(("orders", 0, int(ErrorCode.UNKNOWN_MEMBER_ID)),)]


def test_driver_when_refused_for_good_fails_the_application(made: Made) -> None:
    """With the broker's code; failures of the transport have codes of their own."""
    driver, group = made

    def refuse(request: GroupRequest) -> Outcome:
        if not isinstance(request, JoinGroupRequest):
            return None
        return TransportFailure(kind=FailureKind.UNSUPPORTED, message="too old")

    group.override = refuse
    driver.post(SubscriptionChanged(topics=("orders",)))
    wait_until(lambda: driver.inbox.waiting)
    notice = driver.inbox.take()
    assert isinstance(notice, FailMember)
    assert (notice.code, has_left(driver.member)) == (ErrorCode.UNSUPPORTED_BY_BROKER, True)


def test_driver_when_it_leaves_drops_what_was_not_heard(made: Made) -> None:
    """A grant that nobody took is void."""
    driver, group = made
    driver.post(SubscriptionChanged(topics=("orders",)))
    wait_until(lambda: driver.inbox.waiting)
    driver.post(LeaveRequested(reason="closed"))
    wait_until(lambda: has_left(driver.member))
    assert (driver.inbox.take(), driver.lease_until_s) == (None, math.inf)
    assert group.requests[-1] is LeaveGroupRequest


def test_driver_when_a_step_fails_tells_the_application_and_lives_on(
    made: Made, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A dead thread would be a member that nobody serves."""
    driver, _ = made

    def fail(*_: object, **__: object) -> None:
        raise LookupError("a bug")

    monkeypatch.setattr(driver_module, "step", fail)
    driver.post(LossHandled())
    wait_until(lambda: driver.inbox.waiting)
    message = "internal error: LookupError('a bug')"
    assert driver.inbox.take() == FailMember(code=ErrorCode.UNKNOWN_SERVER_ERROR, message=message)
    driver.inbox.take_call()
    monkeypatch.undo()
    driver.post(LossHandled())
    wait_until(lambda: any("event_refused" in one.getMessage() for one in caplog.records))
    subscribe(driver)
