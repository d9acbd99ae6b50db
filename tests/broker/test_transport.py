"""The transport against real brokers, with raw bytes as subscriptions and assignments."""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from coopgroup.kafka.config.connection_settings import read_connection_settings
from coopgroup.kafka.rpc.transport import FailureKind, GroupTransport, TransportFailure
from coopgroup.member.effects import Lane
from coopgroup.model import group_api as api
from coopgroup.testing import KafkaCluster
from tests.support.waiting import WAIT_S_MAX

TOPIC = "orders"
ANSWER_S = WAIT_S_MAX
# A join that waits is never answered within a test.
LONG_MS = 300_000
# Error codes of a broker that is not ready to coordinate yet.
NOT_YET = {14, 15, 16}
T = TypeVar("T")


class Member:
    """A transport and the identity that the coordinator gave it."""

    protocol_type = "raw"

    def __init__(self, configuration: dict[str, Any], group_id: str) -> None:
        self.group_id = group_id
        self.reported: list[BaseException] = []
        self.transport = GroupTransport(
            read_connection_settings(configuration), self.reported.append
        )
        self.transport.start()
        self.node = api.Coordinator(node_id=-1, host="", port=0)
        self.member_id = ""
        self.generation = -1

    def begin(
        self, lane: Lane, request: api.GroupRequest, timeout_ms: int = LONG_MS
    ) -> "queue.Queue[Any]":
        outcomes: queue.Queue[Any] = queue.Queue()
        node = None if isinstance(request, api.FindCoordinatorRequest) else self.node
        self.transport.send(lane, request, outcomes.put, node=node, timeout_ms=timeout_ms)
        return outcomes

    def ask(self, lane: Lane, request: api.GroupRequest, timeout_ms: int = LONG_MS) -> Any:  # noqa: ANN401
        return self.begin(lane, request, timeout_ms).get(timeout=ANSWER_S)

    def find(self) -> None:
        """Find the coordinator; a new broker needs a moment before it knows one."""

        def found() -> api.FindCoordinatorAnswer | None:
            answer = self.ask(Lane.JOIN, api.FindCoordinatorRequest(group_id=self.group_id))
            is_found = isinstance(answer, api.FindCoordinatorAnswer) and answer.coordinator
            return answer if is_found else None

        coordinator = eventually(found).coordinator
        assert coordinator is not None
        self.node = coordinator

    def join_request(self, metadata: bytes = b"", rebalance_timeout_ms: int = 10_000) -> Any:  # noqa: ANN401
        return api.JoinGroupRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            group_instance_id=None,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=rebalance_timeout_ms,
            protocol_type=self.protocol_type,
            protocols=(("first", metadata),),
            reason="test",
        )

    def take_id(self) -> None:
        """Get a member id from the answer to a first join."""

        def given() -> api.JoinGroupAnswer | None:
            answer = self.ask(Lane.JOIN, self.join_request())
            assert isinstance(answer, api.JoinGroupAnswer)
            return None if answer.error_code in NOT_YET else answer

        answer = eventually(given)
        assert (answer.error_code, answer.generation) == (79, -1)
        self.member_id = answer.member_id

    def joined(self, outcomes: "queue.Queue[Any]") -> api.JoinGroupAnswer:
        answer = outcomes.get(timeout=ANSWER_S)
        assert isinstance(answer, api.JoinGroupAnswer)
        assert (answer.error_code, answer.member_id) == (0, self.member_id)
        self.generation = answer.generation
        return answer

    def sync_request(self, assignments: dict[str, bytes] | None = None) -> api.SyncGroupRequest:
        return api.SyncGroupRequest(
            group_id=self.group_id,
            generation=self.generation,
            member_id=self.member_id,
            group_instance_id=None,
            protocol_type=self.protocol_type,
            protocol_name="first",
            assignments=tuple(sorted((assignments or {}).items())),
        )

    def heartbeat(self) -> api.HeartbeatRequest:
        return api.HeartbeatRequest(
            group_id=self.group_id,
            generation=self.generation,
            member_id=self.member_id,
            group_instance_id=None,
        )

    def commit(self, generation: int, offset: int = 1) -> Any:  # noqa: ANN401
        """Commit one offset on the commit lane and return the outcome."""
        request = api.OffsetCommitRequest(
            group_id=self.group_id,
            generation=generation,
            member_id=self.member_id,
            group_instance_id=None,
            offsets=((TOPIC, 1, offset, -1, ""), (TOPIC, 0, offset, 0, "note")),
        )
        return self.ask(Lane.COMMIT, request)

    def leave(self, lane: Lane) -> Any:  # noqa: ANN401
        request = api.LeaveGroupRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            group_instance_id=None,
            reason="test over",
        )
        return self.ask(lane, request)


def committed(code: int) -> api.OffsetCommitAnswer:
    """Return the answer to a commit whose partitions all have one error code."""
    return api.OffsetCommitAnswer(codes=((TOPIC, 0, code), (TOPIC, 1, code)))


def eventually(attempt: Callable[[], T | None], timeout_s: float = WAIT_S_MAX) -> T:
    """Return the first outcome that is not None."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        outcome = attempt()
        if outcome is not None:
            return outcome
        time.sleep(0.1)
    raise AssertionError("nothing came in time")


@contextmanager
def member_of(configuration: dict[str, Any], group_id: str) -> Iterator[Member]:
    """Return a member with a coordinator and a member id; close it at the end."""
    member = Member(configuration, group_id)
    try:
        member.find()
        member.take_id()
        yield member
    finally:
        assert member.transport.close()
    assert member.reported == []


@contextmanager
def pair_of(configuration: dict[str, Any], group_id: str) -> Iterator[tuple[Member, Member]]:
    """Return two members of a stable group; the first one leads it."""
    with member_of(configuration, group_id) as leader, member_of(configuration, group_id) as other:
        leader.joined(leader.begin(Lane.JOIN, leader.join_request(b"a")))
        leader.ask(Lane.JOIN, leader.sync_request({leader.member_id: b"all"}))
        rejoin_all(leader, other)
        yield leader, other


def rejoin_all(leader: Member, other: Member) -> None:
    """Lead both members through a round that gives each member its own bytes."""
    waiting = other.begin(Lane.JOIN, other.join_request(b"b"))
    eventually(lambda: leader.ask(Lane.COMMIT, leader.heartbeat()).error_code or None)
    answer = leader.joined(leader.begin(Lane.JOIN, leader.join_request(b"a")))
    other.joined(waiting)
    assert (answer.leader_id, len(answer.members)) == (leader.member_id, 2)
    synced = other.begin(Lane.JOIN, other.sync_request())
    assignments = {leader.member_id: b"to the leader", other.member_id: b"to the other"}
    assert leader.ask(Lane.JOIN, leader.sync_request(assignments)) == api.SyncGroupAnswer(
        error_code=0, assignment=b"to the leader"
    )
    assert synced.get(timeout=ANSWER_S) == api.SyncGroupAnswer(
        error_code=0, assignment=b"to the other"
    )


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster(properties={"group.initial.rebalance.delay.ms": "0"}) as started:
        started.create_topic(TOPIC, 2)
        yield started


def test_answers_when_two_members_share_a_group(cluster: KafkaCluster) -> None:
    """Join, sync, heartbeat, commit and leave carry raw bytes from one member to the other."""
    with member_of(cluster.client_config(), "whole") as first:
        joined = first.joined(first.begin(Lane.JOIN, first.join_request(b"subscription")))
        assert joined == api.JoinGroupAnswer(
            error_code=0,
            generation=1,
            protocol_name="first",
            leader_id=first.member_id,
            member_id=first.member_id,
            members=(
                api.JoinedMember(
                    member_id=first.member_id, group_instance_id=None, metadata=b"subscription"
                ),
            ),
            skip_assignment=False,
        )
        assert first.leave(Lane.JOIN) == api.LeaveGroupAnswer(error_code=0)
    with pair_of(cluster.client_config(), "whole") as (leader, other):
        for member in (leader, other):
            assert member.ask(Lane.COMMIT, member.heartbeat()) == api.HeartbeatAnswer(error_code=0)
            assert member.commit(member.generation) == committed(0)
        assert other.leave(Lane.JOIN) == api.LeaveGroupAnswer(error_code=0)
        assert other.leave(Lane.JOIN) == api.LeaveGroupAnswer(error_code=25)


def test_commits_pass_when_a_join_waits(cluster: KafkaCluster) -> None:
    """The commit lane works during a rebalance; the generation fences its commits exactly."""
    with pair_of(cluster.client_config(), "phases") as (leader, other):
        old = leader.generation
        assert leader.commit(old) == committed(0)
        waiting = leader.begin(Lane.JOIN, leader.join_request(b"changed"))
        eventually(lambda: other.ask(Lane.COMMIT, other.heartbeat()).error_code or None)
        assert leader.ask(Lane.COMMIT, leader.heartbeat()) == api.HeartbeatAnswer(error_code=27)
        assert leader.commit(old, 2) == committed(0)
        assert other.commit(old, 2) == committed(0)
        assert waiting.empty()
        other.joined(other.begin(Lane.JOIN, other.join_request(b"b")))
        leader.joined(waiting)
        assert leader.generation == old + 1
        # Between join and sync, the new generation still waits for its assignment.
        assert leader.commit(leader.generation, 3) == committed(27)
        assert leader.commit(old, 3) == committed(22)
        leader.ask(Lane.JOIN, leader.sync_request({leader.member_id: b"x", other.member_id: b""}))
        assert leader.commit(leader.generation, 3) == committed(0)
        assert leader.commit(old, 3) == committed(22)


def test_one_connection_serves_one_request_when_a_join_waits(cluster: KafkaCluster) -> None:
    """The reason for two lanes: a heartbeat behind a waiting join gets no answer."""
    with pair_of(cluster.client_config(), "serial") as (leader, other):
        waiting = leader.begin(Lane.JOIN, leader.join_request(b"changed"))
        behind = leader.begin(Lane.JOIN, leader.heartbeat())
        eventually(lambda: other.ask(Lane.COMMIT, other.heartbeat()).error_code or None)
        time.sleep(0.5)
        assert behind.empty()
        other.joined(other.begin(Lane.JOIN, other.join_request(b"b")))
        leader.joined(waiting)
        # By now its generation is old, so the late answer is a refusal.
        assert behind.get(timeout=ANSWER_S) == api.HeartbeatAnswer(error_code=22)


def test_leave_passes_when_a_join_waits(cluster: KafkaCluster) -> None:
    with pair_of(cluster.client_config(), "cancel") as (leader, other):
        waiting = leader.begin(Lane.JOIN, leader.join_request(b"changed"))
        eventually(lambda: other.ask(Lane.COMMIT, other.heartbeat()).error_code or None)
        leader.transport.close_lane(Lane.JOIN)
        assert waiting.get(timeout=ANSWER_S) == TransportFailure(
            kind=FailureKind.DISCONNECTED, message="the lane was closed"
        )
        assert leader.leave(Lane.COMMIT) == api.LeaveGroupAnswer(error_code=0)
        answer = other.joined(other.begin(Lane.JOIN, other.join_request(b"b")))
        assert (answer.leader_id, len(answer.members)) == (other.member_id, 1)
        # The lane can be used again.
        assert leader.ask(Lane.JOIN, leader.join_request()).error_code == 25


def test_static_member_keeps_its_place_when_it_comes_back(cluster: KafkaCluster) -> None:
    """The group instance id is in every request that supports it."""
    with member_of(cluster.client_config(), "static") as member:
        request = api.JoinGroupRequest(
            group_id="static",
            member_id="",
            group_instance_id="instance-1",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="raw",
            protocols=(("first", b""),),
            reason="",
        )
        first = member.ask(Lane.JOIN, request)
        sync = api.SyncGroupRequest(
            group_id="static",
            generation=first.generation,
            member_id=first.member_id,
            group_instance_id="instance-1",
            protocol_type="raw",
            protocol_name="first",
            assignments=((first.member_id, b"kept"),),
        )
        assert member.ask(Lane.JOIN, sync) == api.SyncGroupAnswer(error_code=0, assignment=b"kept")
        again = member.ask(Lane.JOIN, request)
        assert (again.error_code, again.generation, again.skip_assignment) == (0, 1, True)
        assert again.member_id != first.member_id
        fenced = api.HeartbeatRequest(
            group_id="static",
            generation=1,
            member_id=first.member_id,
            group_instance_id="instance-1",
        )
        assert member.ask(Lane.COMMIT, fenced) == api.HeartbeatAnswer(error_code=82)


def test_requests_fail_in_time_when_the_broker_is_frozen(cluster: KafkaCluster) -> None:
    """A broker that keeps its connections but does not answer causes timeouts, then recovers."""
    with member_of(cluster.client_config(), "frozen") as member:
        member.joined(member.begin(Lane.JOIN, member.join_request()))
        member.ask(Lane.JOIN, member.sync_request({member.member_id: b""}))
        cluster.pause(1)
        try:
            outcome = member.ask(Lane.COMMIT, member.heartbeat(), timeout_ms=500)
            assert outcome.kind is FailureKind.TIMED_OUT
            # Now on a connection that the kernel accepts and the broker never sees.
            outcome = member.ask(Lane.COMMIT, member.heartbeat(), timeout_ms=500)
            assert outcome.kind is FailureKind.TIMED_OUT
        finally:
            cluster.resume(1)
        eventually(
            lambda: (
                member.ask(Lane.COMMIT, member.heartbeat()) == api.HeartbeatAnswer(error_code=0)
                or None
            )
        )


def test_close_answers_everything_when_requests_wait(cluster: KafkaCluster) -> None:
    """After close, each request has exactly one outcome and no thread remains."""
    before = set(threading.enumerate())
    with pair_of(cluster.client_config(), "close") as (leader, other):
        waiting = leader.begin(Lane.JOIN, leader.join_request(b"changed"))
        eventually(lambda: other.ask(Lane.COMMIT, other.heartbeat()).error_code or None)
        assert leader.transport.close()
        assert waiting.get(timeout=0) == TransportFailure(
            kind=FailureKind.DISCONNECTED, message="the transport was closed"
        )
        with pytest.raises(RuntimeError, match="not running"):
            leader.begin(Lane.COMMIT, leader.heartbeat())
    assert waiting.empty()
    assert set(threading.enumerate()) <= before


@pytest.mark.slow
def test_transport_recovers_when_the_broker_is_killed() -> None:
    """SIGKILL fails the waiting requests; requests succeed again when the broker is back."""
    properties = {"group.initial.rebalance.delay.ms": "0"}
    with KafkaCluster(properties=properties) as cluster:
        cluster.create_topic(TOPIC, 2)
        with pair_of(cluster.client_config(), "killed") as (leader, _):
            waiting = leader.begin(Lane.JOIN, leader.join_request(b"changed"))
            assert leader.commit(leader.generation) == committed(0)
            cluster.kill(1)
            assert waiting.get(timeout=5).kind is FailureKind.DISCONNECTED
            outcome = leader.ask(Lane.COMMIT, leader.heartbeat(), timeout_ms=2_000)
            assert outcome.kind is FailureKind.DISCONNECTED
            cluster.start_broker(1)
            leader.find()
            answer = eventually(lambda: alive(leader.ask(Lane.COMMIT, leader.heartbeat())))
            # The group was stored on disk; a member that was joining may or may not be in it.
            assert answer.error_code in {0, 25, 27}


def alive(outcome: api.HeartbeatAnswer | TransportFailure) -> api.HeartbeatAnswer | None:
    if isinstance(outcome, TransportFailure) or outcome.error_code in NOT_YET:
        return None
    return outcome


@pytest.mark.slow
def test_secured_broker_answers_when_the_settings_are_right() -> None:
    """SASL_SSL with SCRAM works from a file and from PEM text; wrong settings are distinguished."""
    properties = {"group.initial.rebalance.delay.ms": "0"}
    with KafkaCluster(security="SASL_SSL", properties=properties) as cluster:
        cluster.create_topic(TOPIC, 2)
        right = dict(cluster.client_config())
        with pair_of(right, "secured") as (leader, _):
            assert leader.commit(leader.generation) == committed(0)
        as_text = {key: value for key, value in right.items() if key != "ssl.ca.location"}
        as_text["ssl.ca.pem"] = Path(right["ssl.ca.location"]).read_text(encoding="ascii")
        with member_of(as_text, "text") as member:
            assert member.leave(Lane.COMMIT) in {
                api.LeaveGroupAnswer(error_code=0),
                api.LeaveGroupAnswer(error_code=25),
            }
        no_authority = {key: value for key, value in right.items() if key != "ssl.ca.location"}
        wrong_password = right | {"sasl.password": "wrong"}
        assert failure_of(wrong_password).kind is FailureKind.AUTHENTICATION
        # A failed check of the broker's certificate may be temporary: certificates are renewed.
        assert failure_of(no_authority).kind is FailureKind.HANDSHAKE
        plaintext = {"bootstrap.servers": right["bootstrap.servers"]}
        assert failure_of(plaintext).kind in {FailureKind.DISCONNECTED, FailureKind.TIMED_OUT}


def failure_of(configuration: dict[str, Any]) -> TransportFailure:
    """Return how a look-up fails."""
    member = Member(configuration, "refused")
    try:
        request = api.FindCoordinatorRequest(group_id="refused")
        outcome = member.ask(Lane.JOIN, request, timeout_ms=5_000)
    finally:
        assert member.transport.close()
    assert isinstance(outcome, TransportFailure)
    return outcome
