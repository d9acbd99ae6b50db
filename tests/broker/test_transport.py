"""The transport against real brokers that wait, freeze, die and refuse.

`test_model_conformance` has the answers to each request.
"""

import queue
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import attrs
import pytest

from coopgroup.core.member.effects import Lane
from coopgroup.core.model import group_api as api
from coopgroup.kafka.config.connection_settings import read_connection_settings
from coopgroup.kafka.rpc.outcomes import FailureKind, TransportFailure
from coopgroup.kafka.rpc.transport import GroupTransport
from coopgroup.testing import KafkaCluster
from tests.support.group_requests import heartbeat, join, sync
from tests.support.waiting import WAIT_S_MAX

# A join that waits is never answered within a test.
LONG_MS = 300_000
# Error codes of a broker that is not ready to coordinate yet.
NOT_YET = {14, 15, 16}
ID_REQUIRED, OLD_GENERATION, REBALANCE = 79, 22, 27
PROPERTIES = {"group.initial.rebalance.delay.ms": "0"}
T = TypeVar("T")


class Member:
    """A transport and the identity that the coordinator gave it.

    Attributes:
        work: the assignment of each member, when it leads.
    """

    protocol_type = "raw"
    work = b"work"

    def __init__(self, configuration: dict[str, Any], group_id: str) -> None:
        self.group_id = group_id
        self.reported: list[BaseException] = []
        self.transport = GroupTransport(
            read_connection_settings(configuration), self.reported.append
        )
        self.transport.start()
        self.node: api.Coordinator | None = None
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
        return self.begin(lane, request, timeout_ms).get(timeout=WAIT_S_MAX)

    def find(self) -> None:
        """Find the coordinator; a new broker needs a moment before it knows one."""

        def found() -> api.Coordinator | None:
            answer = self.ask(Lane.JOIN, api.FindCoordinatorRequest(group_id=self.group_id))
            return answer.coordinator if isinstance(answer, api.FindCoordinatorAnswer) else None

        self.node = eventually(found)

    def join(self) -> "queue.Queue[Any]":
        """Send a join, the first time with the id from the answer to an earlier join."""
        request = join(
            self.member_id,
            group_id=self.group_id,
            session_timeout_ms=300_000,  # tools that start meanwhile take long on a busy machine
            rebalance_timeout_ms=10_000,
            protocols=(("first", b"%d" % self.generation),),  # changed: a round begins
        )
        request = attrs.evolve(request, protocol_type=self.protocol_type)
        if self.member_id:
            return self.begin(Lane.JOIN, request)

        def given() -> api.JoinGroupAnswer | None:
            answer: api.JoinGroupAnswer = self.ask(Lane.JOIN, request)
            return None if answer.error_code in NOT_YET else answer

        answer = eventually(given)
        assert answer.error_code == ID_REQUIRED
        self.member_id = answer.member_id
        return self.join()

    def sync(self, joined: "queue.Queue[Any]", *member_ids: str) -> "queue.Queue[Any]":
        """Wait for the answer to a join, and send the sync."""
        answer = joined.get(timeout=WAIT_S_MAX)
        assert answer.error_code == 0
        self.generation = answer.generation
        request = sync(
            self.member_id,
            self.generation,
            tuple((one, self.work) for one in sorted(member_ids)),
            group_id=self.group_id,
            protocol_name="first",
        )
        return self.begin(Lane.JOIN, attrs.evolve(request, protocol_type=self.protocol_type))

    def heartbeat(self) -> api.HeartbeatRequest:
        return heartbeat(self.member_id, self.generation, group_id=self.group_id)

    def beat(self, timeout_ms: int = LONG_MS) -> Any:  # noqa: ANN401
        return self.ask(Lane.COMMIT, self.heartbeat(), timeout_ms)

    def until_rebalance(self) -> None:
        eventually(lambda: self.beat().error_code == REBALANCE or None)


def eventually(attempt: Callable[[], T | None]) -> T:
    """Return the first outcome that is not None."""
    end = time.monotonic() + WAIT_S_MAX
    while time.monotonic() < end:
        outcome = attempt()
        if outcome is not None:
            return outcome
        time.sleep(0.1)
    raise AssertionError("nothing came in time")


@contextmanager
def member_of(configuration: dict[str, Any], group_id: str) -> Iterator[Member]:
    """Return a member that is alone in a stable group."""
    member = Member(configuration, group_id)
    try:
        member.find()
        assert member.sync(member.join(), member.member_id).get(timeout=WAIT_S_MAX).error_code == 0
        yield member
    finally:
        assert member.transport.close()
    assert member.reported == []


@contextmanager
def pair_of(configuration: dict[str, Any]) -> Iterator[tuple[Member, Member]]:
    """Return two members of a stable group; the first one leads it."""
    other = Member(configuration, "pair")
    with member_of(configuration, "pair") as leader:
        try:
            other.find()
            rejoin(leader, other, other.join())
            yield leader, other
        finally:
            assert other.transport.close()


def rejoin(leader: Member, other: Member, waiting: "queue.Queue[Any]") -> None:
    """End the round that another member has begun."""
    leader.until_rebalance()
    synced = leader.sync(leader.join(), leader.member_id, other.member_id)
    for outcome in (synced, other.sync(waiting)):
        assert outcome.get(timeout=WAIT_S_MAX) == api.SyncGroupAnswer(
            error_code=0, assignment=b"work"
        )


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster(properties=PROPERTIES) as started:
        yield started


def test_one_connection_serves_one_request_when_a_join_waits(cluster: KafkaCluster) -> None:
    """The reason for two lanes: a heartbeat behind a waiting join gets no answer."""
    with pair_of(cluster.client_config()) as (leader, other):
        waiting = other.join()
        behind = other.begin(Lane.JOIN, other.heartbeat())
        leader.until_rebalance()
        time.sleep(0.5)
        assert behind.empty()
        rejoin(leader, other, waiting)
        # By now its generation is old, so the late answer is a refusal.
        assert behind.get(timeout=WAIT_S_MAX) == api.HeartbeatAnswer(error_code=OLD_GENERATION)


def test_requests_fail_in_time_when_the_broker_is_frozen(cluster: KafkaCluster) -> None:
    """A broker that keeps its connections but does not answer causes timeouts, then recovers."""
    with member_of(cluster.client_config(), "frozen") as member:
        cluster.pause(1)
        try:
            # The second one is on a connection that the kernel accepts and the broker never sees.
            for _ in range(2):
                assert member.beat(timeout_ms=500).kind is FailureKind.TIMED_OUT
        finally:
            cluster.resume(1)
        eventually(lambda: member.beat() == api.HeartbeatAnswer(error_code=0) or None)


@pytest.mark.slow
def test_transport_recovers_when_the_broker_is_killed() -> None:
    """SIGKILL fails the waiting requests; requests succeed again when the broker is back."""
    with (
        KafkaCluster(properties=PROPERTIES) as cluster,
        pair_of(cluster.client_config()) as (leader, _),
    ):
        waiting = leader.join()
        leader.until_rebalance()  # so the join has arrived
        cluster.kill(1)
        assert waiting.get(timeout=60).kind is FailureKind.DISCONNECTED
        assert leader.beat(timeout_ms=2_000).kind is FailureKind.DISCONNECTED
        cluster.start_broker(1)
        leader.find()

        def answered() -> api.HeartbeatAnswer | None:
            outcome = leader.beat()
            is_early = isinstance(outcome, TransportFailure) or outcome.error_code in NOT_YET
            return None if is_early else outcome

        # The group was stored on disk; a member that was joining may or may not be in it.
        assert eventually(answered).error_code in {0, 25, REBALANCE}


@pytest.mark.slow
def test_secured_broker_answers_when_the_settings_are_right() -> None:
    """SASL_SSL with SCRAM works from a file and from PEM text; wrong settings are distinguished."""
    with KafkaCluster(security="SASL_SSL", properties=PROPERTIES) as cluster:
        right = dict(cluster.client_config())
        no_authority = {key: value for key, value in right.items() if key != "ssl.ca.location"}
        as_text = {"ssl.ca.pem": Path(right["ssl.ca.location"]).read_text(encoding="ascii")}
        for settings in (right, no_authority | as_text):
            with member_of(settings, "secured") as member:
                assert member.beat() == api.HeartbeatAnswer(error_code=0)
                member.ask(Lane.COMMIT, _leave(member))
        assert _failure(right | {"sasl.password": "wrong"}) is FailureKind.AUTHENTICATION
        # A failed check of the broker's certificate may be temporary: certificates are renewed.
        assert _failure(no_authority) is FailureKind.HANDSHAKE
        plaintext = {"bootstrap.servers": right["bootstrap.servers"]}
        assert _failure(plaintext) in {FailureKind.DISCONNECTED, FailureKind.TIMED_OUT}


def _leave(member: Member) -> api.LeaveGroupRequest:
    return api.LeaveGroupRequest(
        group_id=member.group_id,
        member_id=member.member_id,
        group_instance_id=None,
        reason="test over",
    )


def _failure(configuration: dict[str, Any]) -> FailureKind:
    """Return how a look-up fails."""
    member = Member(configuration, "refused")
    try:
        request = api.FindCoordinatorRequest(group_id="refused")
        outcome = member.ask(Lane.JOIN, request, timeout_ms=5_000)
    finally:
        assert member.transport.close()
    assert isinstance(outcome, TransportFailure)
    return outcome.kind
