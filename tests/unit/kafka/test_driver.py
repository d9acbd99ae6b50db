"""The group's thread over a transport that answers as a coordinator of one member would."""

from __future__ import annotations

import errno
import logging
import math
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import attrs
import pytest
from attrs import define, field

from coopgroup.assignors.sticky import StickyAssignor
from coopgroup.kafka import driver as driver_module
from coopgroup.kafka.clock import now_s
from coopgroup.kafka.driver import GroupDriver, has_left
from coopgroup.kafka.identity import IdentitySlot, take_slot
from coopgroup.kafka.leading import RoundLeader, SeenTopics
from coopgroup.kafka.settings import read_settings
from coopgroup.kafka.telemetry_sink import TelemetrySink
from coopgroup.kafka.transport import FailureKind, TransportFailure
from coopgroup.leader import TopicMetadata
from coopgroup.member import ErrorCode, KeptIdentity, MemberState
from coopgroup.member.effects import FailMember, GrantResources, Lane, LoseResources
from coopgroup.member.events import (
    CommitRequested,
    LeaveRequested,
    LossHandled,
    Offset,
    SubscriptionChanged,
    Woken,
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
from coopgroup.protocol import Assignment, encode_assignment

WAIT_S = 5.0
ORDERS = ResourceSet({"orders": [0, 1]})
SEEN = SeenTopics(topics=("orders",), partitions=ORDERS)
SETTINGS = {
    "bootstrap.servers": "127.0.0.1:1",
    "group.id": "g",
    "session.timeout.ms": 600,
    "heartbeat.interval.ms": 20,
    "max.poll.interval.ms": 800,
    "socket.timeout.ms": 200,
}
STATE = {"coopgroup.state.dir": "the slot counts"}
Outcome = Answer | TransportFailure | None


@define(eq=False)
class OneMemberGroup:
    """A transport and a coordinator in one.

    Attributes:
        requests: kinds of requests, in order.
        override: answers instead, where it has one; None keeps a request waiting.
        is_closed: whether the driver ended it.
        report: where it tells of its own errors.
        failure: raised instead of taking a request.
    """

    requests: list[type] = field(factory=list)
    override: Callable[[GroupRequest], Outcome] | None = None
    silent: frozenset[type] = frozenset()
    is_closed: bool = False
    report: Callable[[BaseException], None] | None = None
    failure: Exception | None = None

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
        if self.failure is not None:
            raise self.failure
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
    with running(monkeypatch) as both:
        yield both


@pytest.fixture
def made_with_state(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[tuple[Made, IdentitySlot]]:
    """A driver with a slot."""
    slot = take_slot(str(tmp_path), "g", fail)
    with running(monkeypatch, slot, STATE) as both:
        yield both, slot
    slot.release()


@contextmanager
def running(
    monkeypatch: pytest.MonkeyPatch,
    slot: IdentitySlot | None = None,
    more: Mapping[str, object] = MappingProxyType({}),
) -> Iterator[Made]:
    """A driver with settings of its own."""
    settings = SETTINGS | dict(more)
    group = OneMemberGroup()

    def transport(_settings: object, report: Callable[[BaseException], None]) -> OneMemberGroup:
        group.report = report
        return group

    monkeypatch.setattr(driver_module, "GroupTransport", transport)
    lookup: Any = _Lookup()
    driver = GroupDriver(
        settings=read_settings(settings),
        assignor=StickyAssignor(),
        policy=SimplePolicy(),
        lookup=lookup,
        sink=TelemetrySink("g"),
        slot=slot,
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


def test_driver_joins_leads_and_holds_a_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests in order; the lease is finite from the grant on and grows with heartbeats."""
    patient = {"session.timeout.ms": 6_000, "max.poll.interval.ms": 8_000}
    with running(monkeypatch, more=patient) as (driver, group):
        assert (driver.lease_until_s, driver.is_quiet, driver.leads) == (math.inf, True, False)
        subscribe(driver)
        assert group.requests[:3] == [FindCoordinatorRequest, JoinGroupRequest, SyncGroupRequest]
        first = driver.lease_until_s
        assert now_s() < first <= now_s() + 6.0
        wait_until(lambda: driver.lease_until_s > first)
        assert (driver.is_quiet, driver.leads, driver.member.generation) == (True, True, 1)


def test_driver_tells_the_member_how_fast_the_application_works(made: Made) -> None:
    """As measured when the member takes its next step, so each join tells the newest."""
    driver, _ = made
    driver.meter.rate_per_s = 7.5
    subscribe(driver)
    assert driver.member.consumption_rate_per_s == 7.5
    driver.meter.rate_per_s = 9.0
    driver.post(Woken())
    wait_until(lambda: driver.member.consumption_rate_per_s == 9.0)


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


def test_driver_keeps_who_the_member_is(made_with_state: tuple[Made, IdentitySlot]) -> None:
    """After each completed round; what is kept stays when the consumer is closed."""
    (driver, _), slot = made_with_state
    subscribe(driver)
    slot.release()
    again = take_slot(str(slot.path.parent), "g", fail)
    kept = KeptIdentity(member_id="m", generation=1, topics=("orders",))
    assert (again.path, again.kept) == (slot.path, kept)
    assert again.seen == driver.leader.seen == SEEN
    again.release()


@pytest.mark.parametrize("seen", [None, SEEN], ids=["follower", "leader"])
def test_driver_comes_back_as_who_was_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seen: SeenTopics | None
) -> None:
    """Without a join; a leader goes on to look after its topics until another one leads."""
    slot = take_slot(str(tmp_path), "g", fail)
    slot.keep(KeptIdentity(member_id="m", generation=1, topics=("orders",)), seen)
    slot.release()
    stored = encode_assignment(
        Assignment(assigned=ORDERS, revoked=None, scheduled_rebalance_timeout_ms=0)
    )

    def settled(request: GroupRequest) -> Outcome:
        if isinstance(request, SyncGroupRequest):
            assert (request.member_id, request.generation) == ("m", 1)
            return SyncGroupAnswer(error_code=0, assignment=stored)
        return None

    with running(monkeypatch, take_slot(str(tmp_path), "g", fail), STATE) as (driver, group):
        group.override = settled
        assert not driver.leads
        subscribe(driver)
        assert JoinGroupRequest not in group.requests
        assert (driver.member.member_id, driver.member.generation) == ("m", 1)
        assert driver.leads is (seen is not None)
        assert driver.leader.seen == (seen or SeenTopics())
        driver.post(LeaveRequested(reason="closed"))
        wait_until(lambda: has_left(driver.member))
        assert not driver.leads


@pytest.mark.parametrize("for_good", [False, True])
def test_driver_that_leaves_for_good_keeps_nobody(
    made_with_state: tuple[Made, IdentitySlot], *, for_good: bool
) -> None:
    """And tells the group; otherwise its place is kept until its session ends."""
    (driver, group), slot = made_with_state
    subscribe(driver)
    driver.leave("closed", for_good=for_good)
    wait_until(lambda: has_left(driver.member))
    assert (LeaveGroupRequest in group.requests) is for_good
    slot.release()
    again = take_slot(str(slot.path.parent), "g", fail)
    again.release()
    assert (again.kept is None) is for_good


def test_driver_when_the_identity_cannot_be_written_only_warns(
    made_with_state: tuple[Made, IdentitySlot],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The member works; its next process joins as a new one."""
    (driver, _), slot = made_with_state

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    subscribe(driver)
    said = warnings(caplog)
    assert "identity_not_kept" in said
    assert str(slot.path) in said
    assert "No space left on device" in said


def fail(*_: object, **__: object) -> Any:  # noqa: ANN401  (never returns)
    """Stand in for a part that has a bug."""
    raise LookupError("a bug")


def warnings(caplog: pytest.LogCaptureFixture) -> str:
    """What was logged so far."""
    return "\n".join(one.getMessage() for one in caplog.records)


INTERNAL_ERROR = FailMember(
    code=ErrorCode.UNKNOWN_SERVER_ERROR, message="internal error: LookupError: a bug"
)


def test_driver_when_a_step_fails_fails_the_member_until_it_subscribes_anew(
    made: Made, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What the step was about is lost, so the member is of no use; the thread lives on."""
    driver, _ = made
    subscribe(driver)
    monkeypatch.setattr(driver_module, "step", fail)
    waiting = commit(driver)
    wait_until(lambda: bool(waiting))
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
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member that was never in the group has failed as well."""
    driver, _ = made
    monkeypatch.setattr(driver_module, "step", fail)
    driver.post(SubscriptionChanged(topics=("orders",)))
    wait_until(lambda: driver.inbox.waiting)
    assert driver.inbox.take() == INTERNAL_ERROR
    assert driver.inbox.take_call() is None
    driver.post(SubscriptionChanged(topics=("orders",)))
    time.sleep(0.05)
    assert not driver.inbox.waiting  # it is told once
    assert driver.member.state is MemberState.FAILED


def test_driver_when_the_member_cannot_even_fail_tells_the_application(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one thing that must not happen is silence."""
    driver, _ = made
    monkeypatch.setattr(driver_module, "step", fail)
    monkeypatch.setattr(driver_module, "fail", fail)
    driver.post(LossHandled())
    wait_until(lambda: driver.inbox.waiting)
    assert driver.inbox.take() == INTERNAL_ERROR


def test_driver_when_a_deadline_cannot_be_told_fails_the_member_and_can_be_stopped(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing outside a step ends the thread either, nor does it spin."""
    driver, _ = made
    subscribe(driver)
    tries: list[object] = []

    def count(session: object) -> None:
        tries.append(session)
        raise LookupError("a bug")

    monkeypatch.setattr(driver_module, "session_deadline_ms", count)
    driver.post(CommitRequested(commit_id=driver.new_commit(lambda _: None), offsets=()))
    wait_until(lambda: driver.member.state is MemberState.FAILED)
    time.sleep(0.3)
    assert 1 <= len(tries) <= 10
    began = time.monotonic()
    driver.stop()
    assert time.monotonic() - began < 1.0


def test_driver_when_the_log_fails_lives_on(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """An application's own log handler may raise, and again while that is logged."""
    driver, _ = made
    monkeypatch.setattr(logging.getLogger("coopgroup"), "handle", fail)
    monkeypatch.setattr(TelemetrySink, "write", fail)
    driver.post(LossHandled())  # refused, which is logged
    subscribe(driver)
    assert driver.member.state is MemberState.STABLE


def test_driver_when_a_commits_caller_fails_goes_on(
    made: Made, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where the commit is ended because nothing is heard of the coordinator."""
    driver, group = made
    subscribe(driver)
    for silent in (frozenset(), frozenset({OffsetCommitRequest, HeartbeatRequest})):
        caplog.clear()
        group.silent = silent
        commit_id = driver.new_commit(fail)
        driver.post(CommitRequested(commit_id=commit_id, offsets=(Offset("orders", 0, 5),)))
        wait_until(lambda: "internal_error" in warnings(caplog))
    group.silent = frozenset()
    driver.post(LossHandled())
    wait_until(lambda: driver.member.state is MemberState.STABLE)


def test_driver_when_the_transport_fails_inside_only_warns(
    made: Made, caplog: pytest.LogCaptureFixture
) -> None:
    """It restarts, and what was on its way fails as disconnected."""
    driver, group = made
    subscribe(driver)
    assert group.report is not None
    group.report(OSError("a loop that failed"))
    assert "a loop that failed" in warnings(caplog)
    assert not driver.inbox.waiting
    first = driver.lease_until_s
    wait_until(lambda: driver.lease_until_s > first)


def test_driver_when_the_transport_takes_no_request_tries_again(made: Made) -> None:
    """A request that was never sent has an outcome, too, or the member would wait for ever."""
    driver, group = made
    group.failure = RuntimeError("the transport is not running")
    driver.post(SubscriptionChanged(topics=("orders",)))
    time.sleep(0.05)
    group.failure = None
    wait_until(lambda: driver.inbox.waiting)
    assert driver.inbox.take() == GrantResources(resources=ORDERS)


def test_commit_when_the_driver_was_stopped_ends_at_once(made: Made) -> None:
    """Nobody waits for ever, whichever comes first."""
    driver, _ = made
    subscribe(driver)
    ended: list[tuple[tuple[str, int, int], ...]] = []
    early = driver.new_commit(ended.append)
    driver.stop()
    assert ended == [()]  # nobody said of what
    driver.post(CommitRequested(commit_id=early, offsets=(Offset("orders", 0, 5),)))
    assert ended == [()]
    assert commit(driver) == [(("orders", 0, int(ErrorCode.UNKNOWN_MEMBER_ID)),)]


def test_post_when_a_signal_handler_posts_meanwhile_does_not_wait_for_itself(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handler runs on the same thread, in the midst of it; it may close the consumer."""
    driver, _ = made
    subscribe(driver)

    class InterruptedQueue(queue.SimpleQueue[Any]):
        def put(self, item: Any, *more: Any, **named: Any) -> None:  # noqa: ANN401  (as queue has it)
            if isinstance(item, CommitRequested):
                driver.post(LeaveRequested(reason="closed in a signal handler"))
            super().put(item, *more, **named)

    monkeypatch.setattr(driver, "_events", InterruptedQueue())
    poster = threading.Thread(target=commit, args=(driver,), daemon=True)
    poster.start()
    poster.join(WAIT_S)
    assert not poster.is_alive()
    wait_until(lambda: has_left(driver.member))


def test_commits_when_the_driver_stops_meanwhile_end_once_each(made: Made) -> None:
    """From several threads."""
    driver, _ = made
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


def test_driver_wakes_the_application_when_it_asked_for_it(made: Made) -> None:
    """Once for each time that it asked for, also while nothing else happens."""
    driver, _ = made
    asked_s = now_s()
    driver.remind(asked_s + 30)
    driver.remind(asked_s + 0.05)
    wait_until(lambda: driver.inbox.waiting)
    assert now_s() >= asked_s + 0.05
    assert (driver.inbox.take(), driver.inbox.take_call(), driver.inbox.waiting) == (
        None,
        None,
        False,
    )
    time.sleep(0.05)
    assert not driver.inbox.waiting
    driver.remind(now_s())
    wait_until(lambda: driver.inbox.waiting)


@pytest.mark.parametrize("in_ms", [None, 60])
def test_driver_that_comes_back_asks_for_the_round_that_its_policy_wanted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, in_ms: int | None
) -> None:
    """Once, and keeps that it is to until it has: nobody else in the group knows of it."""
    slot = take_slot(str(tmp_path), "g", fail)
    slot.keep(KeptIdentity(member_id="m", generation=1, topics=("orders",)), SEEN, in_ms)
    slot.release()
    stored = encode_assignment(
        Assignment(assigned=ORDERS, revoked=None, scheduled_rebalance_timeout_ms=0)
    )
    joins: list[str] = []

    def settled(request: GroupRequest) -> Outcome:
        if isinstance(request, JoinGroupRequest):
            joins.append(request.reason)
            return attrs.evolve(cast("JoinGroupAnswer", _answer(request)), generation=2)
        if isinstance(request, SyncGroupRequest) and not request.assignments:
            return SyncGroupAnswer(error_code=0, assignment=stored)
        return None

    slot = take_slot(str(tmp_path), "g", fail)
    began_s = now_s()
    with running(monkeypatch, slot, STATE) as (driver, group):
        group.override = settled
        subscribe(driver)
        slot.release()
        again = take_slot(str(tmp_path), "g", fail)
        again.release()
        if in_ms is None:
            time.sleep(0.1)
            assert (joins, again.next_round_in_ms) == ([], None)
            return
        assert again.next_round_in_ms is not None
        assert 0 <= again.next_round_in_ms <= in_ms
        wait_until(lambda: driver.member.claim_generation == 2)
        assert now_s() >= began_s + in_ms / 1000
        time.sleep(0.1)
        assert joins == ["a deadline of the policy has come"]


def test_leader_that_came_back_where_an_application_looks_has_shared_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What it sees now is not what its group shares: whoever looks asks for a round."""
    looked = list[object]()

    def keep(request: GroupRequest) -> Outcome:
        match request:
            case JoinGroupRequest():
                answer = _answer(request)
                assert isinstance(answer, JoinGroupAnswer)
                return attrs.evolve(answer, skip_assignment=True)
            case SyncGroupRequest():
                kept = Assignment(assigned=ORDERS, revoked=None)
                return SyncGroupAnswer(error_code=0, assignment=encode_assignment(kept))
            case _:
                return None

    with running(monkeypatch) as (driver, group):
        monkeypatch.setattr(RoundLeader, "look_over", lambda _, members: looked.append(members))
        driver.application = driver.inbox
        group.override = keep
        subscribe(driver)
        assert (driver.leads, looked) == (True, [])
        assert driver.leader.seen == SeenTopics()
