"""The group's thread over a transport that answers like a coordinator with one member."""

from __future__ import annotations

import logging
import math
from typing import Any

import pytest
from attrs import define, field

from coopgroup.core.member import ErrorCode, GroupProtocol, MemberState
from coopgroup.core.member.effects import FailMember, GrantResources, LoseResources
from coopgroup.core.member.events import (
    Answered,
    CommitRequested,
    LeaveRequested,
    LossHandled,
    Offset,
    RequestFailed,
    RevocationCompleted,
    SubscriptionChanged,
    Woken,
)
from coopgroup.core.model import ResourceSet
from coopgroup.core.model.group_api import (
    LEAVES,
    ConsumerBeatRequest,
    FindCoordinatorRequest,
    HeartbeatAnswer,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    SyncGroupRequest,
)
from coopgroup.core.session import SessionEvent
from coopgroup.kafka.membership import driver as driver_module
from coopgroup.kafka.membership.driver import LateThread
from coopgroup.kafka.membership.group_events import GroupEvents
from coopgroup.kafka.membership.leading import RoundLeader
from coopgroup.kafka.membership.telemetry_sink import TelemetrySink
from coopgroup.kafka.rpc.outcomes import FailureKind, TransportFailure
from coopgroup.kafka.rpc.questions import FindTopics, FoundTopic, GroupTimeouts
from coopgroup.telemetry import ResourcesStarted, ResourcesStopped, StopReason
from coopgroup.worker import Worker
from tests.support.by_hand import Hand
from tests.support.programs import output_of
from tests.support.turned_driver import take_notice
from tests.unit.kafka.one_member_group import (
    ORDERS,
    ORDERS_ID,
    SETTINGS,
    DriverAndGroup,
    commit,
    fail,
    running,
    subscribe,
    warnings,
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
        hand.advance(0.3)
        assert driver.lease_until_s == hand.now_s + 6.0
        assert (driver.is_quiet, driver.leads, driver.member.generation) == (True, True, 1)


@pytest.mark.parametrize("protocol", list(GroupProtocol))
def test_leaders_side_is_loaded_when_a_member_that_may_lead_joins(
    hand: Hand, monkeypatch: pytest.MonkeyPatch, protocol: GroupProtocol
) -> None:
    prepared: list[RoundLeader] = []

    def prepare(leader: RoundLeader) -> None:
        prepared.append(leader)

    monkeypatch.setattr(RoundLeader, "prepare", prepare)
    with running(hand, protocol=protocol) as (driver, _):
        assert prepared == []
        driver.post(SubscriptionChanged(topics=("orders",)))
        hand.run()
        assert prepared == ([driver.leader] if protocol is GroupProtocol.CLASSIC else [])


@pytest.mark.parametrize("fails", [False, True])
def test_driver_looks_up_the_names_of_topic_ids(hand: Hand, fails: bool) -> None:
    """The broker assigns topic ids (KIP-848); a member without names works on nothing yet."""
    found: dict[str, Any] = {"orders": FoundTopic(0, 2, ORDERS_ID), "deleted": FoundTopic(3, 0)}
    failure = TransportFailure(kind=FailureKind.DISCONNECTED, message="gone")
    with running(hand, more=PATIENT, protocol=GroupProtocol.CONSUMER) as (driver, group):
        answers: list[Any] = [failure, found] if fails else [found]
        group.override = lambda one: answers.pop(0) if isinstance(one, FindTopics) else None
        driver.post(SubscriptionChanged(topics=("orders",)))
        hand.run()
        if fails:
            assert take_notice(driver) is None
            hand.advance(0.2)
        assert take_notice(driver) == GrantResources(resources=ORDERS)
        assert driver.member.state is MemberState.STABLE
        assert driver.member.member_id == driver.member.config.own_id


def test_driver_learns_the_session_timeout_of_a_group_of_kip_848(hand: Hand) -> None:
    with running(hand, protocol=GroupProtocol.CONSUMER) as (driver, group):
        found: Any = {"orders": FoundTopic(0, 2, ORDERS_ID)}
        group.override = lambda one: found if isinstance(one, FindTopics) else None
        group.timeouts = GroupTimeouts(error_code=0, session_ms=20_000)
        subscribe(hand, driver)
        assert driver.late.session_timeout_ms == 20_000
        hand.advance(0.1)  # the next heartbeat
        assert driver.member.lease.until_ms == (hand.now_s + 20.0) * 1_000


def test_leave_is_sent_although_nothing_waits_for_its_answer(hand: Hand) -> None:
    """A `close` that is short or interrupted ends the driver right after its request."""
    found: Any = {"orders": FoundTopic(0, 2, ORDERS_ID)}
    with running(hand, protocol=GroupProtocol.CONSUMER) as (driver, group):
        group.override = lambda one: found if isinstance(one, FindTopics) else None
        subscribe(hand, driver)
        own_id = driver.member.member_id
        group.silent = frozenset({ConsumerBeatRequest})
        driver.leave("interrupted", for_good=False)
        driver.stop()
    (leave, _) = group.held[-1]
    assert isinstance(leave, ConsumerBeatRequest)
    assert (leave.member_id, leave.epoch) == (own_id, LEAVES)


@pytest.mark.parametrize(
    ("answer", "is_told_at_once", "error"),
    [
        (GroupTimeouts(error_code=30), True, "GROUP_AUTHORIZATION_FAILED"),
        (TransportFailure(kind=FailureKind.DISCONNECTED, message="gone"), False, "gone"),
    ],
    ids=["no right", "no broker"],
)
def test_driver_says_that_it_assumes_the_session_timeout(
    hand: Hand,
    caplog: pytest.LogCaptureFixture,
    answer: GroupTimeouts | TransportFailure,
    is_told_at_once: bool,
    error: str,
) -> None:
    """A missing answer may pass, a missing right does not."""
    caplog.set_level("INFO")

    def told() -> list[str]:
        return [line for line in caplog.messages if line.startswith("session_timeout_")]

    with running(hand, protocol=GroupProtocol.CONSUMER) as (driver, group):
        found: Any = {"orders": FoundTopic(0, 2, ORDERS_ID)}
        group.override = lambda one: found if isinstance(one, FindTopics) else None
        group.timeouts = answer
        subscribe(hand, driver)
        assert bool(told()) is is_told_at_once
        hand.advance(301.0)
        (line,) = told()
        assert line.startswith("session_timeout_unknown ")
        assert f"error={error} assumed_ms=600" in line
        group.timeouts = GroupTimeouts(error_code=0, session_ms=600)
        hand.advance(301.0)
        assert told()[1].startswith("session_timeout_known ")


def test_post_when_a_signal_handler_posts_meanwhile_does_not_wait_for_itself(
    hand: Hand, joined: DriverAndGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handler interrupts `post` on the same thread, and may close the consumer."""
    driver, _ = joined
    put = driver._events.put  # noqa: SLF001  (interrupted here)

    def interrupted(event: SessionEvent) -> None:
        if isinstance(event, CommitRequested):
            driver.post(LeaveRequested(reason="closed in a signal handler"))
        put(event)

    monkeypatch.setattr(GroupEvents, "put", lambda _, event: interrupted(event))
    commit(driver)
    hand.run()
    assert driver.has_left


def test_driver_wakes_the_application_when_it_asked_for_it(
    hand: Hand, driver_and_group: DriverAndGroup
) -> None:
    driver, _ = driver_and_group
    driver.remind(hand.now_s + 30)
    driver.remind(hand.now_s + 0.05)
    hand.advance(0.049)
    assert not driver.inbox.waiting
    hand.advance(0.002)
    assert (driver.inbox.waiting, take_notice(driver), driver.inbox.take_call()) == (
        True,
        None,
        None,
    )
    hand.advance(0.05)
    assert not driver.inbox.waiting
    driver.remind(hand.now_s)
    hand.run()
    assert driver.inbox.waiting


# --- Each commit requested from the group's thread ends exactly once -----------------------------


Codes = list[tuple[tuple[str, int, int], ...]]
# Without heartbeats in between, whose answers would prove that the coordinator is alive.
SELDOM = {
    "session.timeout.ms": 9_000,
    "max.poll.interval.ms": 9_000,
    "heartbeat.interval.ms": 8_000,
}


def ended(code: ErrorCode) -> Codes:
    return [(("orders", 0, int(code)),)]


def test_commit_when_it_timed_out_is_not_sent_again(hand: Hand) -> None:
    """Its caller saw a timeout. A late retry would overwrite newer committed offsets."""
    with running(hand, more=SELDOM) as (driver, group):
        subscribe(hand, driver)
        group.refuse(OffsetCommitRequest, FailureKind.DISCONNECTED)
        outcome = commit(driver)
        hand.advance(1.0)
        assert outcome == ended(ErrorCode.REQUEST_TIMED_OUT)
        sent = group.requests.count(OffsetCommitRequest)
        group.override = None
        hand.advance(0.5)
        assert (sent > 0, group.requests.count(OffsetCommitRequest)) == (True, sent)
        assert driver.member.state is MemberState.STABLE


def test_commits_when_the_driver_stops_end_once_each(hand: Hand, joined: DriverAndGroup) -> None:
    """Also those that are sent, that wait, that are not posted yet, and that come later."""
    driver, group = joined
    outcomes = [commit(driver) for _ in range(10)]
    group.silent = frozenset({OffsetCommitRequest})
    hand.run()
    assert OffsetCommitRequest in group.requests
    outcomes += [commit(driver) for _ in range(10)]
    early: Codes = []
    offsets = (Offset("orders", 0, 5),)
    commit_id = driver.commits.register(offsets, early.append)
    driver.stop()
    driver.stop()
    driver.post(CommitRequested(commit_id=commit_id, offsets=offsets))
    outcomes.append(commit(driver))
    assert early == ended(ErrorCode.UNKNOWN_MEMBER_ID)
    assert outcomes == [ended(ErrorCode.UNKNOWN_MEMBER_ID)] * 21


COMMITS = 3_000


def test_commits_when_the_coordinator_is_silent_time_out_and_the_driver_wakes_for_them(
    hand: Hand,
) -> None:
    with running(hand, more=SELDOM) as (driver, group):
        subscribe(hand, driver)
        group.silent = frozenset({OffsetCommitRequest})
        outcomes = [commit(driver) for _ in range(COMMITS)]
        hand.run()
        assert outcomes == [[]] * COMMITS
        hand.advance(1.0)
        assert outcomes == [ended(ErrorCode.REQUEST_TIMED_OUT)] * COMMITS
        assert driver.wait_for_commits(0.0)


def test_wait_for_commits_is_over_when_those_asked_for_before_have_ended(
    hand: Hand, joined: DriverAndGroup
) -> None:
    driver, group = joined
    group.silent = frozenset({OffsetCommitRequest})
    outcomes = [commit(driver) for _ in range(3)]
    hand.run()
    began_s = hand.now_s
    assert not driver.wait_for_commits(0.5)
    assert 0.5 <= hand.now_s - began_s < 0.6
    assert not any(outcomes)
    Worker("broker").submit(group.answer_held, after_s=0.5)
    assert driver.wait_for_commits(5.0)
    assert hand.now_s - began_s < 1.1
    assert outcomes == [ended(ErrorCode.NONE)] * 3


# --- Bugs inside the group's thread --------------------------------------------------------------


INTERNAL_ERROR = FailMember(
    code=ErrorCode.UNKNOWN_SERVER_ERROR, message="internal error: LookupError: a bug"
)


def test_driver_when_a_step_fails_fails_the_member_until_it_subscribes_anew(
    hand: Hand,
    joined: DriverAndGroup,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    driver, _ = joined
    monkeypatch.setattr(driver_module, "step", fail)
    waiting = commit(driver)
    hand.run()
    assert take_notice(driver) == LoseResources(resources=ORDERS, cause=INTERNAL_ERROR.message)
    assert take_notice(driver) == INTERNAL_ERROR
    assert driver.inbox.take_call() is None
    assert "internal_error" in warnings(caplog)
    assert (driver.member.state, driver.lease_until_s) == (MemberState.FAILED, math.inf)
    assert waiting == ended(ErrorCode.UNKNOWN_MEMBER_ID)
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
    assert take_notice(driver) == INTERNAL_ERROR
    assert driver.inbox.take_call() is None
    if "fail" not in failing:
        driver.post(SubscriptionChanged(topics=("orders",)))
        hand.run()
        assert take_notice(driver) is None
        assert driver.member.state is MemberState.FAILED


def test_driver_when_a_deadline_cannot_be_told_fails_the_member_and_can_be_stopped(
    hand: Hand, joined: DriverAndGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, _ = joined
    tries: list[object] = []

    def count(session: object) -> None:
        tries.append(session)
        raise LookupError("a bug")

    monkeypatch.setattr(driver_module, "session_deadline_ms", count)
    driver.request_commit((), lambda _: None)
    hand.run()
    assert driver.member.state is MemberState.FAILED
    tries.clear()
    hand.advance(1.0)
    assert 1 <= len(tries) <= 25


def test_driver_when_the_log_fails_lives_on(
    hand: Hand, driver_and_group: DriverAndGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, group = driver_and_group
    monkeypatch.setattr(logging.getLogger("coopgroup"), "handle", fail)
    monkeypatch.setattr(TelemetrySink, "write", fail)
    subscribe(hand, driver)
    group.silent = frozenset({LeaveGroupRequest})
    driver.post(LEAVE)
    driver.post(SubscriptionChanged(topics=("t",)))  # refused, and the refusal is logged
    outcomes: list[object] = []
    driver.request_commit((Offset("orders", 0, 5),), outcomes.append)
    hand.advance(1.0)
    assert driver.member.state is MemberState.LEAVING
    assert outcomes


def test_driver_when_a_commits_caller_fails_goes_on(
    hand: Hand, joined: DriverAndGroup, caplog: pytest.LogCaptureFixture
) -> None:
    driver, group = joined
    for silent in (frozenset(), frozenset({OffsetCommitRequest, HeartbeatRequest})):
        caplog.clear()
        group.silent = silent
        driver.request_commit((Offset("orders", 0, 5),), fail)
        hand.advance(0.6)
        assert "internal_error" in warnings(caplog)
    group.silent = frozenset()
    driver.post(LossHandled())
    hand.advance(1.0)
    assert driver.member.state is MemberState.STABLE


def test_driver_when_the_transport_takes_no_request_tries_again(
    hand: Hand, driver_and_group: DriverAndGroup
) -> None:
    """An unsent request needs an outcome, too; otherwise the member waits forever."""
    driver, group = driver_and_group
    group.failure = RuntimeError("the transport is not running")
    driver.post(SubscriptionChanged(topics=("orders",)))
    hand.advance(0.05)
    group.failure = None
    hand.advance(1.0)
    assert driver.inbox.waiting
    assert take_notice(driver) == GrantResources(resources=ORDERS)


def test_stop_of_what_was_lost_is_told_under_the_lost_id(
    hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: without an id nobody knew whose stop it was, and two owners were not shown."""
    told = list[tuple[object, str]]()
    with running(hand) as (driver, group):
        subscribe(hand, driver)
        monkeypatch.setattr(
            TelemetrySink,
            "write",
            lambda _, record, *, member_id, **__: told.append((record, member_id)),
        )
        driver.write(ResourcesStarted(resources=ORDERS))
        unknown = HeartbeatAnswer(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        group.override = lambda one: unknown if isinstance(one, HeartbeatRequest) else None
        hand.advance(0.1)
        assert driver.member.member_id == ""
        driver.write(ResourcesStopped(resources=ORDERS, reason=StopReason.LOST, duration_ms=0))
        hand.run()
    assert [name for record, name in told if isinstance(record, ResourcesStopped)] == ["m"]


# --- The group's thread and its bell -------------------------------------------------------------


SLOW = {
    "coopgroup.bell.topic": "bell",
    "session.timeout.ms": 45_000,
    "heartbeat.interval.ms": 20_000,
    "max.poll.interval.ms": 60_000,
}


@define
class FakeBell:
    """Notes its calls, in order."""

    given: dict[str, Any]
    calls: list[str] = field(factory=list)

    def start(self) -> None:
        self.calls.append("start")

    def ring(self) -> None:
        self.calls.append("ring")

    def finish(self, timeout_s: float) -> None:
        assert timeout_s <= 1.0
        self.calls.append("finish")


def test_member_hears_rings_and_rings_as_it_leaves(
    hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ring becomes a heartbeat; the last ring is sent before the connections close."""
    bells: list[FakeBell] = []

    def make(**given: Any) -> FakeBell:  # noqa: ANN401
        bells.append(FakeBell(given))
        return bells[-1]

    monkeypatch.setattr("coopgroup.kafka.membership.bell.TopicBell", make)
    with running(hand, more=SLOW) as (driver, group):
        assert bells == []
        driver.listen()
        driver.listen()
        subscribe(hand, driver)
        (bell,) = bells
        assert (bell.given["topic"], bell.given["group_id"]) == ("bell", "g")
        assert HeartbeatRequest not in group.requests
        bell.given["heard"]()
        hand.run()
        assert HeartbeatRequest in group.requests
        driver.post(LeaveRequested(reason="closed"))
        hand.run()
        assert bell.calls == ["start", "ring"]
    assert bell.calls == ["start", "ring", "finish"]


@pytest.mark.parametrize(("topic", "is_imported"), [("bell", True), ("", False)])
def test_bell_is_imported_only_if_it_has_a_topic(topic: str, *, is_imported: bool) -> None:
    """Its requests take 50 ms to import."""
    program = (
        "import sys\n"
        "from coopgroup import CooperativeConsumer\n"
        f"with CooperativeConsumer({SETTINGS | {'coopgroup.bell.topic': topic}}) as consumer:\n"
        "    consumer.subscribe(['orders'])\n"
        "print('coopgroup.kafka.membership.bell' in sys.modules)\n"
    )
    assert output_of(program) == f"{is_imported}\n"


# --- Events for the group's thread ---------------------------------------------------------------


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


# --- a late thread --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("session_ms", "calls", "warned"),
    [
        pytest.param(4_000, [(1, -math.inf), (1, 0.999), (1, 1.0)], [(1_000, 0)], id="a quarter"),
        pytest.param(4_000, [(1, 3.999), (1, 4.0)], [(3_999, 0), (4_000, 0)], id="more than late"),
        pytest.param(
            4_000,
            [(1, 2.0), (1, 2.5), (1, 2.5), (1, 2.5), (57, 2.0), (60, 2.0)],
            [(2_000, 0), (2_000, 3), (2_000, 0)],
            id="once a minute",
        ),
        # A busy machine is no reason to warn.
        pytest.param(1_000, [(1, 0.49), (1, 0.5)], [(500, 0)], id="at least half a second"),
    ],
)
def test_delay_from_a_quarter_of_the_session_on_is_warned_of_once_a_minute(
    hand: Hand, session_ms: int, calls: list[tuple[float, float]], warned: list[tuple[int, int]]
) -> None:
    """A delay that may cost the membership is warned of although a lesser one was."""
    told: list[dict[str, Any]] = []

    def warn(event: str, **fields: object) -> None:
        assert event == "group_thread_late"
        told.append(fields)

    thread = LateThread(session_ms, warn)
    for after_s, late_s in calls:
        hand.now_s += after_s
        thread.look(hand.now_s - late_s)
    assert [(one["late_ms"], one["left_out"]) for one in told] == warned
    for one in told:
        may_have_left = one["late_ms"] >= session_ms
        said = "may have dropped" if may_have_left else "heartbeats were late"
        assert said in one["why"]
        assert "GIL" in one["why"]
        assert one["session_ms"] == session_ms
